// One keyboard, two writers: a person who presses single keys, and a barcode scanner that types fast and ends with Enter.
import { isTyping } from "./shared.js";

const SCANNER_GAP_MS = 60; // scanners leave 2 to 40 ms between characters; the fastest typists more than 70
const LEAST_LENGTH = 3;
const MODIFIERS = new Set(["Shift", "CapsLock", "AltGraph", "Control", "Alt", "Meta"]);

/**
 * onKey(key, event) for a key that a person pressed (a letter, when no scanner went on after it); onScan(text) for a code.
 * Keys typed into a field belong to it; to a dialog, all but a scanner's.
 */
export function listenToKeys({ onKey, onScan }) {
  let typed = "";
  let last = -Infinity;
  let waiting = 0;

  document.addEventListener("keydown", (event) => {
    if (MODIFIERS.has(event.key)) return; // scanners press Shift for capital letters
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (isTyping(event.target)) return;
    const inDialog = document.querySelector("dialog[open]") !== null;
    const quick = event.timeStamp - last <= SCANNER_GAP_MS;
    clearTimeout(waiting);
    if (event.key === "Enter" && quick && typed.length >= LEAST_LENGTH) {
      event.preventDefault();
      onScan(typed);
      typed = "";
      last = -Infinity;
      return;
    }
    if (event.key.length > 1 || (event.key === " " && !(quick && typed))) {
      typed = "";
      last = -Infinity;
      if (!inDialog) onKey(event.key, event);
      return;
    }
    if (event.repeat) return;
    typed = quick ? typed + event.key : event.key;
    last = event.timeStamp;
    if (typed.length > 1) event.preventDefault();
    waiting = setTimeout(() => {
      const single = typed.length === 1 ? typed : "";
      typed = "";
      if (single && !inDialog) onKey(single, event);
    }, SCANNER_GAP_MS + 20);
  });
}
