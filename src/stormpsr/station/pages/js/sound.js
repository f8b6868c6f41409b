// A tone for a new alarm, again every 20 seconds until somebody acknowledges it. No sound files, nothing to load.
const REPEAT_MS = 20000;
const GRAVE = new Set(["wrong", "skipped", "unexpected"]);

let context = null;
let known = new Set();
let last = 0;

export const muted = () => localStorage.getItem("muted") === "yes";

export function setMuted(value) {
  localStorage.setItem("muted", value ? "yes" : "no");
}

/** Browsers let a page sound only after the first touch or key. */
export const blocked = () => !muted() && context?.state !== "running";

export function unlockOnFirstTouch(onChange) {
  const unlock = async () => {
    context ??= new AudioContext();
    await context.resume();
    onChange();
  };
  for (const kind of ["pointerdown", "keydown"]) addEventListener(kind, unlock, { once: true });
}

function tone(start, hertz, seconds) {
  const oscillator = new OscillatorNode(context, { frequency: hertz, type: "triangle" });
  const volume = new GainNode(context, { gain: 0 });
  const at = context.currentTime + start;
  volume.gain.setValueAtTime(0, at);
  volume.gain.linearRampToValueAtTime(0.35, at + 0.02);
  volume.gain.linearRampToValueAtTime(0, at + seconds);
  oscillator.connect(volume).connect(context.destination);
  oscillator.start(at);
  oscillator.stop(at + seconds + 0.05);
}

export function play(grave) {
  if (context?.state !== "running") return;
  last = Date.now();
  const melody = grave ? [880, 660, 880, 660] : [523, 659];
  melody.forEach((hertz, i) => tone(i * 0.2, hertz, 0.18));
}

/** Called with every snapshot's alarms. */
export function soundFor(alarms) {
  const open = alarms.filter((alarm) => !alarm.acknowledged);
  const fresh = open.some((alarm) => !known.has(alarm.id));
  known = new Set(open.map((alarm) => alarm.id));
  if (muted() || !open.length) return;
  if (fresh || Date.now() - last > REPEAT_MS) play(open.some((alarm) => GRAVE.has(alarm.kind)));
}
