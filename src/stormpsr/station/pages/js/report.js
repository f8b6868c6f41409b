// What the pages of the station share: its pages in the bar, lines of the record, tables, status words.
import { icon } from "./icons.js";
import { $, el, get, hasText, setText, t } from "./shared.js";

const PAGES = [
  ["station", "/", "back"],
  ["figures", "/figures", "chart"],
  ["stations", "/stations", "grid"],
];

/** The other pages, for the bar. */
export const linksFrom = (here) => PAGES.filter(([name]) => name !== here);

/** One line of the record in words. */
export function eventText(entry) {
  const values = { text: entry.text ?? "", to: entry.to ? t(`status.${entry.to}`) : "" };
  if (entry.kind === "alarm" && entry.alarm) values.text = t(`alarm.${entry.alarm}`, { step: entry.text ?? "" });
  if (entry.kind === "camera" && hasText(`camera.${entry.text}`)) return t(`camera.${entry.text}`);
  if (entry.kind === "unit_finished" && entry.result) values.text = `${values.text} · ${t(`result.${entry.result}`)}`;
  let key = entry.kind;
  if (key === "completed" && entry.by === "operator") key = "completed_by_operator";
  if (key === "correction" && entry.to) key = "correction_to";
  return t(`log.${key}`, values).trim();
}

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
