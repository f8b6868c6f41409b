// The report of one unit, for the screen and for paper.
import { icon } from "./icons.js";
import { eventText, firstUpper, linksFrom, readStation, status, table, unitName } from "./report.js";
import { $, buildBar, clock, dateTime, duration, el, get, loadTexts, t, toastError } from "./shared.js";

const id = location.pathname.split("/").filter(Boolean).pop();

function facts(unit, station) {
  const pairs = [
    ["report.started", dateTime(unit.started)],
    ["report.finished", unit.finished ? dateTime(unit.finished) : "–"],
    ["report.duration", duration(unit.seconds)],
    ["report.procedure", station.title],
    ["report.variant", unit.variant],
    ["report.station", station.name],
    ["report.model", `${station.model}, ${station.method_title}`],
  ];
  return el(
    "dl",
    { class: "facts" },
    ...pairs.map(([key, value]) => el("div", {}, el("dt", {}, t(key)), el("dd", {}, value ?? "–"))),
  );
}

function picture(url, title) {
  if (!url) return null;
  if (url.endsWith(".mp4")) return el("a", { class: "button noprint", href: url }, icon("play"), t("do.clip"));
  return el("a", { class: "shot", href: url, title }, el("img", { class: "evidence-picture", src: url, alt: title }));
}

function stepTable(steps) {
  const columns = [
    ["col.number", "number"],
    ["col.step", "main"],
    ["col.status"],
    ["col.time", "nowrap"],
    ["col.duration", "nowrap wide-only"],
    ["col.by", "wide-only"],
    ["col.evidence"],
  ];
  return table(
    columns,
    steps.map((step) => [
      String(step.number),
      firstUpper(step.text),
      status(step.status),
      step.time ? clock(step.time) : null,
      typeof step.seconds === "number" ? duration(step.seconds) : null,
      step.by ? t(`by.${step.by}`) : null,
      picture(step.evidence, t("do.evidence", { step: step.text })),
    ]),
  );
}

const orNone = (rows, columns) => (rows.length ? table(columns, rows) : el("p", { class: "quiet" }, t("report.none")));

function corrections(list) {
  return orNone(
    list.map((one) => [clock(one.time), firstUpper(one.text), t(`status.${one.from}`), t(`status.${one.to}`)]),
    [["col.time", "nowrap"], ["col.step", "main"], ["col.from"], ["col.to"]],
  );
}

function alarms(list) {
  const shots = (alarm) =>
    el("span", { class: "status" }, picture(alarm.picture, t("do.picture")), picture(alarm.clip, t("do.clip")));
  return orNone(
    list.map((alarm) => [
      clock(alarm.time),
      t(`alarm.${alarm.kind}`, { step: alarm.text ?? "" }),
      t(alarm.acknowledged ? "report.acknowledged" : "report.not_acknowledged"),
      shots(alarm),
    ]),
    [["col.time", "nowrap"], ["col.error", "main"], ["col.status"], ["col.evidence"]],
  );
}

function events(list) {
  return orNone(
    list.map((event) => [clock(event.time), eventText(event), t(`by.${event.by}`)]),
    [["col.time", "nowrap"], ["col.event"], ["col.by"]],
  );
}

const section = (key, content, kind = "") => el("section", { class: `card ${kind}` }, el("h2", {}, t(key)), content);

async function start() {
  await loadTexts();
  buildBar({ links: linksFrom("unit"), extra: [["print", "print", () => print()]] });
  try {
    const [report, here] = await Promise.all([get(`/api/units/${encodeURIComponent(id)}`), readStation()]);
    const { unit } = report;
    const station = report.station ?? here;
    document.title = `${unitName(unit)} · ${t(`result.${unit.status}`)}`;
    const verdict = status(unit.status, "result");
    verdict.classList.add("verdict");
    $("#main").replaceChildren(
      el("div", { class: "head" }, el("h1", {}, `${t("unit.label")} ${unitName(unit)}`), verdict),
      el("section", { class: "card" }, facts(unit, station)),
      section("report.steps", stepTable(report.steps), "long"),
      section("report.alarms", alarms(report.alarms)),
      section("report.corrections", corrections(report.corrections)),
      section("report.events", events(report.events), "long"),
      el("div", { class: "sign" }, el("span", {}, t("report.sign")), el("span", {}, t("report.date"))),
      el(
        "p",
        { class: "printed" },
        t("report.printed", {
          time: dateTime(new Date().toISOString()),
          version: station.version,
          digest: station.model_digest.slice(0, 12),
        }),
      ),
    );
  } catch (error) {
    if (error.status !== 404) toastError(error);
    $("#main").replaceChildren(el("h1", {}, t("report.missing")));
  }
  $("#main").removeAttribute("aria-busy");
}

start();
