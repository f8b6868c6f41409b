// One card per station, asked again every two seconds.
import { icon } from "./icons.js";
import { linksFrom } from "./report.js";
import { $, buildBar, el, get, loadTexts, t } from "./shared.js";

const REFRESH_MS = 2000;
const KINDS = { ok: "good", degraded: "warn", down: "bad" };

function card(station) {
  const { name, url, status, camera, unit, done, total, alarms } = station;
  const fill = el("div", { class: "fill" });
  fill.style.width = total ? `${(100 * done) / total}%` : "0";
  const words =
    unit || total
      ? [
          el("span", { class: "big" }, unit ?? t("unit.label")),
          el("span", { class: "big" }, t("unit.of", { done, total })),
        ]
      : [el("span", { class: "quiet" }, t("stations.no_unit"))];
  const alarmWords = alarms === 1 ? t("stations.one_alarm") : t("stations.alarm", { n: alarms });
  return el(
    "a",
    { class: `place card ${status}`, href: url },
    el(
      "div",
      { class: "row" },
      el("h2", {}, name),
      el(
        "span",
        { class: `pill ${KINDS[status] ?? ""}` },
        icon(status === "ok" ? "link" : status === "down" ? "link_off" : "alarm"),
        t(`stations.${status}`),
      ),
    ),
    el("div", { class: "row" }, ...(status === "down" ? [el("span", { class: "quiet" }, "–")] : words)),
    el("div", { class: "rail", "aria-hidden": "true" }, fill),
    el(
      "div",
      { class: "row" },
      el(
        "span",
        { class: `pill ${camera === "ok" ? "good" : "bad"}` },
        icon(camera === "ok" ? "camera" : "camera_off"),
        t(`camera.${camera}`),
      ),
      alarms ? el("span", { class: "pill bad" }, icon("alarm"), alarmWords) : null,
    ),
  );
}

let shown = "";

async function read() {
  try {
    const { stations } = await get("/api/stations");
    $("#main").classList.remove("stale");
    const now = JSON.stringify(stations);
    if (now === shown) return;
    shown = now;
    const focused = [...$("#stations").children].indexOf(document.activeElement);
    $("#stations").replaceChildren(...stations.map(card));
    $("#stations").children[focused]?.focus();
  } catch {
    $("#main").classList.add("stale"); // the next reading comes in two seconds
  } finally {
    $("#main").removeAttribute("aria-busy");
  }
}

async function start() {
  await loadTexts();
  buildBar({ links: linksFrom("stations") });
  document.title = t("stations.title");
  await read();
  setInterval(() => document.visibilityState === "visible" && read(), REFRESH_MS);
}

start();
