// The live film: reads multipart JPEG and draws it on a canvas. An <img> could show the same stream, but it cannot be told
// to let go of what it has shown, does not say when the stream ends, and falls behind where drawing is slow.
const RETRY_MS = 2000;
const HEADER_END = [13, 10, 13, 10];

function findHeaderEnd(bytes) {
  for (let at = bytes.indexOf(13); at >= 0; at = bytes.indexOf(13, at + 1)) {
    if (HEADER_END.every((byte, i) => bytes[at + i] === byte)) return at;
  }
  return -1;
}

/** The last complete image among the bytes, if there is one, and the bytes after it. */
export function lastImage(bytes) {
  let image = null;
  for (;;) {
    const end = findHeaderEnd(bytes);
    if (end < 0) return { image, rest: bytes };
    const header = new TextDecoder("latin1").decode(bytes.subarray(0, end));
    const length = Number(/content-length: *(\d+)/i.exec(header)?.[1]);
    if (!length) throw new Error("an image without its length");
    if (bytes.length < end + 4 + length) return { image, rest: bytes };
    image = bytes.subarray(end + 4, end + 4 + length);
    bytes = bytes.subarray(end + 4 + length);
  }
}

async function draw(canvas, jpeg) {
  const image = await createImageBitmap(new Blob([jpeg], { type: "image/jpeg" }));
  if (canvas.width !== image.width || canvas.height !== image.height) {
    canvas.width = image.width;
    canvas.height = image.height;
  }
  canvas.getContext("2d").drawImage(image, 0, 0);
  image.close();
}

async function play(canvas, signal) {
  const response = await fetch("/api/video", { signal });
  if (!response.ok) throw new Error(`status ${response.status}`);
  const reader = response.body.getReader();
  let kept = new Uint8Array();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const bytes = new Uint8Array(kept.length + value.length);
    bytes.set(kept);
    bytes.set(value, kept.length);
    const { image, rest } = lastImage(bytes);
    kept = rest.slice();
    if (image) await draw(canvas, image);
  }
}

/** Returns a function run(wanted): plays while wanted, again after every break; keeps the last picture when not. */
export function film(canvas) {
  let stop = null;
  return (wanted) => {
    if (wanted === Boolean(stop)) return;
    stop?.abort();
    stop = wanted ? new AbortController() : null;
    if (stop) keepPlaying(canvas, stop.signal);
  };
}

async function keepPlaying(canvas, signal) {
  while (!signal.aborted) {
    await play(canvas, signal).catch(() => {}); // whatever broke it is shown by the camera's and the connection's state
    if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}
