// What the figures and the unit report share: tables, status words, the name of the station in the bar.
import { icon } from "./icons.js";
import { $, el, get, setText, t } from "./shared.js";

const ICONS = {
  open: "clock",
  next: "arrow",
  probable: "help",
  done: "check",
  wrong: "wrong",
  skipped: "skip",
  removed: "minus",
  running: "play",
  pass: "check",
  fail: "wrong",
  incomplete: "skip",
};

/** A word with its icon: status("done") of a step, status("pass", "result") of a unit. */
export function status(name, kind = "status") {
  return el("span", { class: `status ${name}` }, icon(ICONS[name] ?? "help"), t(`${kind}.${name}`));
}

/**
 * columns: [["col.step", "class of the cells"], ...]; rows: lists of texts and nodes, one per column. A table with a "main"
 * column becomes a list of small cards on a phone.
 */
export function table(columns, rows) {
  const head = el("tr", {}, ...columns.map(([key, kind = ""]) => el("th", { class: kind, scope: "col" }, t(key))));
  const body = rows.map((cells) =>
    el("tr", {}, ...cells.map((cell, i) => el("td", { class: columns[i][1] ?? "" }, cell ?? "–"))),
  );
  const stack = columns.some(([, kind = ""]) => kind.includes("main"));
  return el(
    "div",
    { class: "scroll" },
    el("table", { class: stack ? "stack" : null }, el("thead", {}, head), el("tbody", {}, ...body)),
  );
}

export const unitName = (unit) => unit.serial || t("unit.unnamed", { id: unit.id });

export const firstUpper = (text) => el("span", { class: "first-upper" }, text ?? "");

/** The station's description, and its title in the bar. */
export async function readStation() {
  const { station } = await get("/api/state");
  setText($("#title"), station.title);
  return station;
}
