// The stream of snapshots: one connection, opened again for ever, and a watch that notices when it falls silent.
const SILENCE_MS = { running: 8000, idle: 40000 }; // a running camera speaks every 2 s, any station every 15 s
const RETRY_MS = 1500;

/**
 * onState(snapshot) for every snapshot; onLink({live, since}) when the connection is lost or comes back.
 * `since` is when the station was last heard.
 */
export function follow(onState, onLink) {
  let source = null;
  let heard = Date.now();
  let live = null;
  let running = false;
  let retry = 0;

  function setLive(now) {
    if (live === now) return;
    live = now;
    onLink({ live, since: new Date(heard).toISOString() });
  }

  function open() {
    clearTimeout(retry);
    source?.close();
    source = new EventSource("/api/stream");
    source.addEventListener("state", (event) => {
      heard = Date.now();
      const snapshot = JSON.parse(event.data);
      running = snapshot.camera.status === "ok";
      setLive(true);
      onState(snapshot);
    });
    source.addEventListener("ping", () => {
      heard = Date.now();
      setLive(true);
    });
    source.addEventListener("error", lost);
  }

  async function lost() {
    source.close(); // the browser gives up by itself after some answers; we never do
    clearTimeout(retry);
    retry = setTimeout(open, RETRY_MS);
    setLive(false);
    const response = await fetch("/api/state").catch(() => null);
    if (response?.status === 401) location.reload(); // the token was changed: the station asks for it
  }

  setInterval(() => {
    if (live && Date.now() - heard > (running ? SILENCE_MS.running : SILENCE_MS.idle)) lost();
  }, 1000);
  addEventListener("online", open);
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => event.persisted && open());
  open();
}
