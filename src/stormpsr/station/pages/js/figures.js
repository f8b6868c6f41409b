// Figures of the day: what was made, how long it took, what went wrong; every number as CSV and JSON.
import { icon, svg } from "./icons.js";
import { linksFrom, readStation, status, table, unitName } from "./report.js";
import {
  $,
  buildBar,
  clock,
  duration,
  el,
  get,
  hasText,
  loadTexts,
  longDate,
  percent,
  setText,
  show,
  t,
  toastError,
} from "./shared.js";

const DAY_MS = 86400000;
const REFRESH_MS = 15000;
const PAGE = 50;

const isoDay = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60000).toISOString().slice(0, 10);
const asked = new URLSearchParams(location.search).get("day");
let day = /^\d{4}-\d\d-\d\d$/.test(asked ?? "") ? asked : isoDay(new Date());
let units = [];

// ---- tiles

function tile(value, what, { detail = null, bad = false } = {}) {
  return el(
    "div",
    { class: bad ? "tile card bad" : "tile card" },
    el("strong", {}, value),
    el("span", { class: "what" }, what),
    detail,
  );
}

function shareBar(figures) {
  const bar = el("div", { class: "share", "aria-hidden": "true" });
  const counts = { pass: figures.passed, fail: figures.failed, incomplete: figures.incomplete };
  const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
  for (const [kind, n] of Object.entries(counts)) {
    if (!n) continue;
    const part = el("span", { class: kind });
    part.style.width = `${(100 * n) / total}%`;
    bar.append(part);
  }
  return bar;
}

function renderTiles(figures) {
  const { unit_seconds: spread } = figures;
  const quiet = (text) => el("div", { class: "quiet" }, text);
  const rate = el("div", {}, shareBar(figures), quiet(t("day.pass_detail", figures)));
  $("#tiles").replaceChildren(
    tile(String(figures.passed + figures.failed + figures.incomplete), t("day.units"), {
      detail: figures.running ? quiet(t("day.in_work", { n: figures.running })) : null,
    }),
    tile(figures.pass_rate === null ? "–" : percent(figures.pass_rate), t("day.pass_rate"), { detail: rate }),
    tile(spread ? duration(spread.median) : "–", t("day.unit_time"), {
      detail: spread ? quiet(t("day.spread", { p10: duration(spread.p10), p90: duration(spread.p90) })) : null,
    }),
    tile(String(figures.open_alarms), t("day.alarms"), { bad: figures.open_alarms > 0 }),
    tile(String(figures.corrections), t("day.corrections")),
  );
}

// ---- plots

function text(x, y, words, attributes = {}) {
  const node = svg("text", { x, y, ...attributes });
  node.textContent = words;
  return node;
}

function renderHours(hours) {
  const [width, height, foot] = [560, 190, 26];
  const most = Math.max(1, ...hours.map((hour) => hour.units));
  const busy = hours.filter((hour) => hour.units).map((hour) => hour.hour);
  const from = Math.max(0, Math.min(6, ...busy)),
    to = Math.min(23, Math.max(18, ...busy));
  const shown = hours.filter((hour) => hour.hour >= from && hour.hour <= to);
  const step = width / (to - from + 1);
  const words = shown
    .filter((hour) => hour.units)
    .map((hour) => `${hour.hour}: ${hour.units}`)
    .join(", ");
  const plot = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": `${t("day.by_hour")}. ${words}`,
  });
  for (const { hour, units: n } of shown) {
    const x = (hour - from) * step;
    const tall = ((height - foot - 24) * n) / most;
    plot.append(
      svg("rect", { x: x + 4, y: height - foot - tall, width: step - 8, height: tall, rx: 4, class: "column" }),
    );
    if (n)
      plot.append(text(x + step / 2, height - foot - tall - 6, String(n), { "text-anchor": "middle", class: "value" }));
    plot.append(text(x + step / 2, height - 6, String(hour), { "text-anchor": "middle" }));
  }
  plot.append(svg("line", { x1: 0, x2: width, y1: height - foot, y2: height - foot, class: "base" }));
  $("#hours .plot").replaceChildren(plot);
}

/** Tick marks at 1, 2 or 5 times a power of ten, or at halves and whole minutes. */
function ticks(most) {
  const step =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400].find((one) => most / one <= 6) ?? most / 5;
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

function renderSpreads(steps) {
  const measured = steps.filter((step) => step.spread);
  if (!measured.length) return $("#steps .plot").replaceChildren(el("p", { class: "quiet" }, t("day.no_units")));
  const narrow = matchMedia("(max-width: 699px)").matches;
  const [width, left, right, row] = narrow ? [420, 8, 76, 54] : [1100, 330, 90, 40];
  const most = Math.max(1, ...measured.map((step) => step.spread.max)) * 1.02;
  const height = measured.length * row + 26;
  const x = (seconds) => left + ((width - left - right) * seconds) / most;
  const words = measured.map((step) => `${step.text}: ${duration(step.spread.median)}`).join(", ");
  const plot = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": `${t("day.step_times")}. ${words}`,
  });
  for (const tick of ticks(most)) {
    plot.append(svg("line", { x1: x(tick), x2: x(tick), y1: 0, y2: height - 22, class: "grid" }));
    plot.append(text(x(tick), height - 6, duration(tick), { "text-anchor": "middle" }));
  }
  measured.forEach((step, i) => {
    const middle = i * row + (narrow ? row * 0.66 : row / 2);
    const name = step.text[0].toUpperCase() + step.text.slice(1);
    if (narrow) plot.append(text(left, i * row + 16, name, { class: "name" }));
    else plot.append(text(left - 16, middle + 5, name, { "text-anchor": "end", class: "name" }));
    const { median, p10, p90, min, max } = step.spread;
    plot.append(svg("line", { x1: x(min), x2: x(max), y1: middle, y2: middle, class: "whisker" }));
    plot.append(
      svg("rect", { x: x(p10), y: middle - 9, width: Math.max(2, x(p90) - x(p10)), height: 18, rx: 4, class: "range" }),
    );
    plot.append(svg("line", { x1: x(median), x2: x(median), y1: middle - 10, y2: middle + 10, class: "median" }));
    plot.append(text(width - right + 14, middle + 5, duration(median), { class: "value" }));
  });
  return $("#steps .plot").replaceChildren(plot);
}

// ---- tables

function renderErrors(errors) {
  const words = ({ kind, text: step }) =>
    hasText(`alarm.${kind}`) ? t(`alarm.${kind}`, { step }) : t(`log.${kind}`, { text: step });
  const rows = errors.map((error) => [words(error), String(error.n)]);
  const content = rows.length
    ? table([["col.error"], ["col.count", "number"]], rows)
    : el("p", { class: "quiet" }, t("day.no_errors"));
  $("#errors .content").replaceChildren(content);
}

function renderUnits() {
  const rows = units.map((unit) => [
    el("a", { href: `/units/${unit.id}` }, unitName(unit)),
    clock(unit.started, false),
    duration(unit.seconds),
    status(unit.status, "result"),
    t("unit.of", unit),
  ]);
  const columns = [
    ["col.unit", "nowrap"],
    ["col.start"],
    ["col.duration", "nowrap"],
    ["col.result"],
    ["col.done", "nowrap"],
  ];
  $("#units .content").replaceChildren(
    rows.length ? table(columns, rows) : el("p", { class: "quiet" }, t("day.no_units")),
  );
}

async function readUnits(before = null) {
  const page = (await get(`/api/units?day=${day}&limit=${PAGE}${before ? `&before=${before}` : ""}`)).units;
  units = before ? [...units, ...page] : page;
  show($("#more"), page.length === PAGE);
  renderUnits();
}

function renderExports() {
  const link = (what, format) =>
    el(
      "a",
      {
        class: "button",
        href: `/api/export?what=${what}&format=${format}&day=${day}`,
        download: `${what}-${day}.${format}`,
      },
      icon("download"),
      format.toUpperCase(),
    );
  const groups = ["units", "events", "corrections", "alarms"].map((what) =>
    el("span", {}, t(`what.${what}`), link(what, "csv"), link(what, "json")),
  );
  $("#export .content").replaceChildren(el("div", { class: "exports" }, ...groups));
}

// ---- the day

function goTo(date) {
  day = isoDay(date);
  history.replaceState(null, "", `/figures?day=${day}`);
  renderDay();
  read();
}

const noon = () => new Date(`${day}T12:00:00`);

function renderDay() {
  setText($("#heading"), longDate(noon()));
  $("#date").value = day;
  $("#after").disabled = $("#today").disabled = day >= isoDay(new Date());
  renderExports();
}

async function read() {
  try {
    const figures = await get(`/api/figures?day=${day}`);
    renderTiles(figures);
    renderHours(figures.by_hour);
    renderSpreads(figures.steps);
    renderErrors(figures.errors);
    if (units.length <= PAGE || !units.length) await readUnits();
    $("#main").removeAttribute("aria-busy");
  } catch (error) {
    $("#main").removeAttribute("aria-busy");
    toastError(error);
  }
}

async function start() {
  await loadTexts();
  buildBar({ links: linksFrom("figures"), extra: [["print", "print", () => print()]] });
  $("#before").append(icon("back"));
  $("#after").append(icon("arrow"));
  $("#before").addEventListener("click", () => goTo(new Date(noon().getTime() - DAY_MS)));
  $("#after").addEventListener("click", () => goTo(new Date(noon().getTime() + DAY_MS)));
  $("#today").addEventListener("click", () => goTo(new Date()));
  $("#date").addEventListener(
    "change",
    (event) => event.target.value && goTo(new Date(`${event.target.value}T12:00:00`)),
  );
  $("#more").addEventListener("click", () => readUnits(units.at(-1).id).catch(toastError));
  renderDay();
  await Promise.all([read(), readStation().catch(() => null)]);
  document.title = `${t("day.title")} · ${$("#title").textContent}`;
  setInterval(() => document.visibilityState === "visible" && day === isoDay(new Date()) && read(), REFRESH_MS);
}

start();
