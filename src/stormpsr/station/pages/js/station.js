// The live page: one function, render(snapshot), writes everything that is shown. The page keeps nothing of its own but
// which step is selected, so a reload loses nothing and two screens agree.
import { film } from "./film.js";
import { icon, mark, setIcon } from "./icons.js";
import { listenToKeys } from "./keys.js";
import { follow } from "./live.js";
import { eventText, linksFrom } from "./report.js";
import {
  $,
  buildBar,
  clock,
  decimal,
  duration,
  el,
  hasText,
  label,
  loadTexts,
  percent,
  post,
  setAttribute,
  setName,
  setText,
  show,
  stopwatch,
  t,
  toast,
  toastError,
} from "./shared.js";
import { blocked, muted, play, setMuted, soundFor, unlockOnFirstTouch } from "./sound.js";

const GRAVE = new Set(["wrong", "skipped", "unexpected"]);
const MOST_ALARMS = 2;
const FOLLOW_AGAIN_MS = 20000; // a step chosen by hand stays chosen this long; then the next step is the chosen one again

let state = null;
let received = 0; // when, by this machine's steady clock
let live = { live: null, since: null };
let selected = null; // number of a step
let selectedAt = 0;
let lastLogId = null;
let knownAlarms = new Set();
let version = null;

// ---- what to do now

const isFinished = (step) => step.status === "done";
const serialOf = (unit) => unit.serial || t("unit.unnamed", { id: unit.id });

/** The step that the page speaks of: a wrong one first, then what is probably being done, then what may come next. */
function currentStep() {
  if (!state.unit) return null;
  const { steps } = state;
  const wrong = steps.find((step) => step.status === "wrong");
  if (wrong) return wrong;
  const probable = steps.filter((step) => step.status === "probable").sort((a, b) => b.share - a.share)[0];
  const open = steps.filter((step) => !isFinished(step));
  return probable ?? open.find((step) => step.next) ?? open[0] ?? null;
}

function chosenStep() {
  const chosen = state.steps.find((step) => step.number === selected);
  return chosen && performance.now() - selectedAt < FOLLOW_AGAIN_MS ? chosen : currentStep();
}

function resultIfFinishedNow() {
  if (state.steps.some((step) => step.status === "wrong")) return "fail";
  return state.steps.every(isFinished) ? "pass" : "incomplete";
}

// ---- saying something to the station

const may = () => state && live.live && !state.station.read_only;

async function tell(url, body, said) {
  if (!may()) return;
  try {
    await post(url, body);
    if (said) toast(said.text, said);
  } catch (error) {
    toastError(error);
  }
}

function setStep(step, status) {
  const row = rows.get(step.number);
  row?.node.setAttribute("aria-busy", "true");
  const undoIt = { text: t("do.undo"), run: undo };
  return tell(
    `/api/steps/${step.step_id}`,
    { status },
    { text: t(`said.${status}`, { step: step.text }), action: undoIt },
  ).finally(() => row?.node.removeAttribute("aria-busy"));
}

const undo = () => tell("/api/undo", {}, { text: t("said.undone") });
const acknowledge = (alarm) => tell(`/api/alarms/${alarm.id}/acknowledge`, {});

function scan(text) {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close();
  return tell("/api/scan", { text }, { text: t("said.scanned", { text }) });
}

const finishUnit = () => tell("/api/units/finish", {}, { text: t("said.finished") });

function askForUnit() {
  if (!may()) return;
  const { unit, station } = state;
  show($("#start-notice"), Boolean(unit));
  if (unit) {
    const result = t(`result.${resultIfFinishedNow() === "pass" ? "pass" : "incomplete"}`);
    setText($("#start-notice"), t("start.finishes", { serial: serialOf(unit), result }));
  }
  const variants = station.variants ?? [];
  show($("#start-variant-field"), variants.length > 1);
  $("#start-variant").replaceChildren(
    ...variants.map((name) => el("option", { value: name, selected: name === station.variant }, name)),
  );
  $("#start-serial").value = "";
  openDialog("#unit-dialog", () => {
    const serial = $("#start-serial").value.trim() || null;
    const variant = $("#start-variant").value || null;
    return tell("/api/units/start", { serial, variant }, { text: t("said.started") });
  });
}

function askToFinish() {
  if (!may()) return;
  if (!state.unit) return toast(t("said.nothing_to_finish"));
  const result = resultIfFinishedNow();
  if (result === "pass") return finishUnit();
  const open = state.steps.filter((step) => !isFinished(step)).length;
  const key = result === "fail" ? "finish.wrong" : open === 1 ? "finish.open_one" : "finish.open";
  setText($("#finish-words"), t(key, { n: open, result: t(`result.${result}`) }));
  openDialog("#finish-dialog", finishUnit);
}

function openDialog(selector, onOk = null) {
  const dialog = $(selector);
  if (dialog.open) return;
  dialog.returnValue = "";
  dialog.onclose = () => dialog.returnValue === "ok" && onOk?.();
  dialog.showModal();
}

function help() {
  if (state) {
    const { model, model_digest: digest, method_title: method, version: release } = state.station;
    setText($("#about"), t("help.about", { model, digest: digest.slice(0, 12), method, version: release }));
  }
  openDialog("#help-dialog");
}

function view(url, title) {
  setText($("#view-title"), title);
  const isFilm = url.endsWith(".mp4");
  $("#view").replaceChildren(
    isFilm
      ? el("video", { src: url, controls: true, autoplay: true, loop: true })
      : el("img", { src: url, alt: title }),
  );
  openDialog("#view-dialog");
  $("#view-dialog").addEventListener("close", () => $("#view").replaceChildren(), { once: true });
}

// ---- the check-list

const rows = new Map(); // by number

function button(glyph, { text = "", key = "", title = "", kind = "" }, onclick) {
  const node = el("button", { class: `button ${kind}`, type: "button", onclick }, icon(glyph));
  if (text) node.append(el("span", {}, text));
  if (key) node.append(el("kbd", { "aria-hidden": "true" }, key));
  if (title) label(node, title);
  return node;
}

const DOINGS = { done: "check", open: "undo", wrong: "wrong" };
const OFFERED = { done: ["open", "wrong"], wrong: ["done", "open"] };

function buildRow() {
  const row = {
    node: el("li", { class: "step", tabindex: "-1" }),
    markPlace: el("span", { class: "unseen" }),
    text: el("span", { class: "text" }),
    word: el("span", { class: "word" }),
    detail: el("span", { class: "detail" }),
    shot: el("button", { class: "button shot", type: "button" }, el("img", { alt: "", loading: "lazy" })),
    actions: el("span", { class: "do controls" }),
    rail: el("div", { class: "rail", "aria-hidden": "true" }, el("div", { class: "fill" })),
    shape: "",
    step: null,
  };
  row.node.append(
    row.markPlace,
    row.text,
    el("span", { class: "state" }, row.word, row.detail),
    row.shot,
    row.actions,
    row.rail,
  );
  row.shot.addEventListener("click", () => view(row.step.evidence ?? row.step.picture, row.step.text));
  row.node.addEventListener("pointerdown", (event) => event.target.closest("button") || select(row.step.number, false));
  row.node.addEventListener("focus", () => select(row.step.number, false));
  return row;
}

function renderRow(row, step, current) {
  const before = row.step;
  row.step = step;
  const mayCome = Boolean(state.unit && (step.status === "probable" || (step.next && step.status === "open")));
  const isNext = mayCome && step === current;
  const classes = [
    "step",
    step.status,
    isNext ? "next" : "",
    before && before.status !== step.status && isFinished(step) ? "new" : "",
  ];
  if (!(before && before.status === step.status)) row.node.className = classes.filter(Boolean).join(" ");
  row.node.classList.toggle("next", isNext);
  row.node.classList.toggle("possible", mayCome && !isNext);
  const shape = [
    step.status,
    step.number,
    isNext,
    step.status === "probable" ? Math.round(step.share * 50) : "",
  ].join();
  if (shape !== row.shape) {
    row.node.replaceChild(mark(step.status, step.number, step.share, isNext), row.node.firstChild);
    row.shape = shape;
  }
  setText(row.text, step.text);
  const word = t(`status.${step.status !== "open" || !mayCome ? step.status : isNext ? "next" : "possible"}`);
  setText(row.word, step.status === "probable" ? `${word} ${percent(step.share)}` : word);
  renderDetail(row, step);
  const shot = step.evidence ?? step.picture;
  row.shot.classList.toggle("none", !shot);
  if (shot) {
    setAttribute(row.shot.firstChild, "src", shot);
    label(row.shot, t(step.evidence ? "do.evidence" : "do.step_picture", { step: step.text }));
  }
  const offered = OFFERED[step.status] ?? ["done", "wrong"];
  if (row.actions.dataset.offered !== offered.join()) {
    row.actions.dataset.offered = offered.join();
    row.actions.replaceChildren(
      ...offered.map((status) =>
        button(DOINGS[status], { title: t(`do.${status}_step`, { step: step.text }), kind: "square" }, () =>
          setStep(row.step, status),
        ),
      ),
    );
  }
  for (const action of row.actions.children) if (action.disabled !== !canCorrect()) action.disabled = !canCorrect();
  const share = step.status === "probable" || (isNext && step.share > 0.02) ? step.share : 0;
  row.rail.firstChild.style.transform = `translateX(${(share - 1) * 100}%)`;
  setAttribute(row.node, "aria-current", step === current ? "step" : null);
  setAttribute(
    row.node,
    "aria-label",
    [step.number, step.text, row.word.textContent, row.detail.dataset.words].filter(Boolean).join(", "),
  );
  setAttribute(row.node, "tabindex", (chosenStep() ?? state.steps[0]) === step ? 0 : -1);
}

function renderDetail(row, step) {
  const parts = [];
  if (step.time && step.status !== "open") parts.push(el("span", {}, clock(step.time)));
  if (isFinished(step) && typeof step.seconds === "number")
    parts.push(el("span", { class: "took" }, duration(step.seconds)));
  if (step.by === "operator" && step.status !== "open")
    parts.push(el("span", { class: "hand" }, icon("hand"), t("status.by_operator")));
  if (step.overdue && !isFinished(step)) parts.push(el("span", { class: "late" }, t("status.overdue")));
  const words = parts.map((part) => part.textContent).join(", ");
  if (row.detail.dataset.words === words) return;
  row.detail.dataset.words = words;
  row.detail.replaceChildren(...parts);
}

function renderSteps(current) {
  const list = $("#steps");
  const signature = state.steps.map((step) => `${step.number}:${step.step_id}`).join();
  if (list.dataset.signature !== signature) {
    list.dataset.signature = signature;
    rows.clear();
    for (const step of state.steps) rows.set(step.number, buildRow());
    list.replaceChildren(...[...rows.values()].map((row) => row.node));
    $("#segments").replaceChildren(...state.steps.map(() => el("span")));
  }
  const focused = [...rows.values()].find((row) => row.node === document.activeElement);
  const wasOpen = focused?.step && !isFinished(focused.step);
  state.steps.forEach((step, i) => {
    renderRow(rows.get(step.number), step, current);
    const kind = state.unit && step === current && step.status === "open" ? "next" : step.status;
    if ($("#segments").children[i].className !== kind) $("#segments").children[i].className = kind;
  });
  if (wasOpen && isFinished(focused.step) && current) select(current.number, true); // so that Enter goes on from step to step
  if (current && list.dataset.shown !== String(current.number)) {
    list.dataset.shown = current.number;
    keepInView(list, rows.get(current.number).node);
  }
}

/** Scrolls the list alone (not the page), and only where the list is what scrolls. */
function keepInView(list, node) {
  if (list.scrollHeight <= list.clientHeight + 1) return;
  const above = node.offsetTop - list.offsetTop;
  list.scrollTo({ top: above - list.clientHeight / 3, behavior: "smooth" });
}

function select(number, focus) {
  const changed = selected !== number;
  selected = number;
  selectedAt = performance.now();
  for (const [key, row] of rows) setAttribute(row.node, "tabindex", key === number ? 0 : -1);
  if (focus) rows.get(number).node.focus();
  return changed;
}

function move(by) {
  const numbers = state.steps.map((step) => step.number);
  if (!numbers.length) return;
  const focused = rows.get(selected)?.node === document.activeElement;
  const from = numbers.indexOf(chosenStep()?.number ?? numbers[0]);
  select(numbers[Math.min(Math.max(from + (focused ? by : 0), 0), numbers.length - 1)], true);
}

// ---- what comes next, in large letters

let nowButtons = "";

function canCorrect() {
  return Boolean(may() && state.unit);
}

function renderNow(step) {
  const { unit, steps, last_unit: last, station } = state;
  const ready = unit && steps.length > 0 && steps.every(isFinished);
  const kind = !unit ? "idle" : step?.status === "wrong" ? "wrong" : ready ? "ready" : "";
  setAttribute($("#now"), "class", `now card ${kind}`.trim());
  const place = step ? { number: step.number, total: steps.length } : { total: steps.length };
  let kicker, headline;
  if (!unit) {
    kicker = last
      ? t("now.finished", { serial: serialOf(last), result: t(`result.${last.status}`) })
      : t("now.waiting");
    headline = station.read_only ? t("now.waiting") : t("now.waiting_text");
  } else if (ready) {
    kicker = t("now.all_done", place);
    headline = t("now.finish");
  } else if (step) {
    kicker = t(`now.${step.status === "wrong" || step.status === "probable" ? step.status : "next"}`, place);
    headline = step.text;
  } else {
    kicker = headline = t("list.title");
  }
  setText($("#now-kicker"), kicker);
  setText($("#now-text"), headline);
  const share = step && !ready && step.status !== "wrong" ? step.share : 0;
  show($("#now-evidence"), Boolean(step) && !ready && step.status !== "wrong");
  $("#now-evidence .fill").style.transform = `translateX(${(share - 1) * 100}%)`;
  setText($("#now-evidence > span"), t(share < 0.05 ? "now.no_evidence" : "now.evidence", { share: percent(share) }));
  const picture = unit && step?.picture;
  show($("#now-picture"), Boolean(picture));
  if (picture) setAttribute($("#now-picture"), "src", picture);
  renderNowButtons(unit, step, ready);
  renderAside();
}

function renderNowButtons(unit, step, ready) {
  const signature = [unit?.id, ready, step?.number, step?.status === "wrong"].join();
  if (signature !== nowButtons) {
    nowButtons = signature;
    const place = $("#now-buttons");
    if (!unit) place.replaceChildren(button("plus", { text: t("do.new"), key: "N", kind: "solid first" }, askForUnit));
    else if (ready)
      place.replaceChildren(button("flag", { text: t("do.finish"), key: "F", kind: "good first" }, askToFinish));
    else if (step) {
      const act = (status) => () => setStep(currentStep() ?? step, status);
      place.replaceChildren(
        button("check", { text: t("do.done"), key: t("key.space"), kind: "solid first" }, act("done")),
        step.status === "wrong"
          ? button("undo", { text: t("do.open"), key: "O" }, act("open"))
          : button("wrong", { text: t("do.wrong"), key: "W" }, act("wrong")),
      );
    } else place.replaceChildren();
  }
  for (const node of $("#now-buttons").children) node.disabled = !may();
}

/** Runs by the clock as well as by the stream. */
function renderAside() {
  if (!state) return;
  const { unit, steps, last_unit: last } = state;
  const step = currentStep();
  const parts = [];
  if (!unit && last) parts.push(el("a", { href: `/units/${last.id}` }, t("do.report", { serial: serialOf(last) })));
  if (unit && step && step.status !== "wrong") {
    const before = steps.filter((other) => isFinished(other) && other.time).map((other) => Date.parse(other.time));
    const since = Math.max(Date.parse(unit.started), ...before);
    const elapsed = (stationNow() - since) / 1000;
    parts.push(el("span", {}, t("now.so_far", { elapsed: stopwatch(elapsed) })));
    if (step.usual_seconds) parts.push(el("span", {}, t("now.usually", { duration: duration(step.usual_seconds) })));
    if (step.overdue) parts.push(el("span", { class: "warn" }, t("now.overdue")));
  }
  const names = (list) => list.map((other) => other.text).join(", ");
  const others =
    unit && step?.status !== "wrong"
      ? steps.filter((other) => other.next && other !== step && !isFinished(other)).slice(0, 3)
      : [];
  if (others.length) parts.push(el("span", {}, t("now.or", { steps: names(others) })));
  const skipped = unit ? steps.filter((other) => other.status === "skipped") : [];
  if (skipped.length) parts.push(el("span", { class: "warn" }, t("now.skipped", { steps: names(skipped) })));
  const place = $("#now-aside");
  const words = parts.map((part) => part.textContent).join();
  if (place.dataset.words === words) return;
  place.dataset.words = words;
  place.replaceChildren(...parts.flatMap((part, i) => (i ? [" · ", part] : [part])));
}

/** The station's clock, as far as this page knows it. */
function stationNow() {
  return Date.parse(state.time) + (live.live ? performance.now() - received : 0);
}

// ---- the unit

function renderUnit() {
  const { unit, steps } = state;
  document.body.classList.toggle("idle", !unit);
  setText($("#unit-label"), t("unit.label"));
  setText($("#unit-serial"), unit ? serialOf(unit) : t("unit.waiting"));
  setText($("#unit-count"), t("unit.of", unit ?? { done: 0, total: steps.length }));
  setText($("#unit-count-label"), t("unit.steps_done"));
  setText($("#unit-time-label"), t("unit.elapsed"));
  renderUnitTime();
}

function renderUnitTime() {
  if (!state) return;
  const sinceHeard = live.live ? (performance.now() - received) / 1000 : 0;
  setText($("#unit-time"), state.unit ? stopwatch(state.unit.seconds + sinceHeard) : "–");
}

// ---- alarms

function alarmText(alarm) {
  return t(`alarm.${alarm.kind}`, { step: alarm.text ?? "" });
}

/** Of a unit that is no longer in work: nobody can go back and do something about it. */
const isPast = (alarm) => Number.isInteger(alarm.unit) && alarm.unit !== state.unit?.id;

const alarmKey = (alarm) => [alarm.id, alarm.acknowledged, alarm.picture, alarm.clip, isPast(alarm)].join();

const alarmNodes = new Map();

function buildAlarm(alarm) {
  const shots = el("div", { class: "shots" });
  const title = alarmText(alarm);
  if (alarm.picture) {
    shots.append(
      el(
        "button",
        {
          class: "button shot",
          type: "button",
          title: t("do.picture"),
          "aria-label": `${t("do.picture")}: ${title}`,
          onclick: () => view(alarm.picture, title),
        },
        el("img", { src: alarm.picture, alt: "" }),
      ),
    );
  }
  if (alarm.clip) shots.append(button("play", { text: t("do.clip") }, () => view(alarm.clip, title)));
  const past = isPast(alarm);
  const kinds = [GRAVE.has(alarm.kind) && "grave", past && "past", alarm.acknowledged && "seen"].filter(Boolean);
  const advice = past
    ? t("alarm.past", { serial: serialOf({ id: alarm.unit, serial: alarm.serial }) })
    : t(`alarm.do.${alarm.kind}`);
  const node = el(
    "div",
    { class: ["alarm", ...kinds].join(" "), dataset: { kind: alarm.kind } },
    icon(alarm.kind === "too_long" ? "clock" : alarm.step_id === null ? "camera_off" : "alarm"),
    el(
      "div",
      {},
      el("strong", { title }, title),
      " ",
      el("span", { class: "what" }, `${clock(alarm.time)} · ${advice}`),
    ),
    shots,
  );
  if (!alarm.acknowledged)
    node.append(
      button("check", { text: t("do.acknowledge"), key: "A", kind: "acknowledge controls" }, () => acknowledge(alarm)),
    );
  return node;
}

function renderAlarms() {
  const rank = (alarm) => 2 * alarm.acknowledged + isPast(alarm);
  const ordered = [...state.alarms].sort((a, b) => rank(a) - rank(b)); // newest first within each
  const shown = ordered.slice(0, MOST_ALARMS);
  const place = $("#alarms");
  const signature = ordered.map(alarmKey).join(";");
  if (place.dataset.signature !== signature) {
    place.dataset.signature = signature;
    const keys = new Set();
    const nodes = shown.map((alarm) => {
      const key = alarmKey(alarm);
      keys.add(key);
      if (!alarmNodes.has(key)) alarmNodes.set(key, buildAlarm(alarm));
      return alarmNodes.get(key);
    });
    for (const key of alarmNodes.keys()) if (!keys.has(key)) alarmNodes.delete(key);
    const more = ordered.length - shown.length;
    if (more) nodes.push(el("p", { class: "more" }, more === 1 ? t("alarms.one_more") : t("alarms.more", { n: more })));
    place.replaceChildren(...nodes);
    show(place, nodes.length > 0);
  }
  for (const node of place.querySelectorAll(".acknowledge")) node.disabled = !may();
  const fresh = state.alarms.filter((alarm) => !alarm.acknowledged && !knownAlarms.has(alarm.id));
  knownAlarms = new Set(state.alarms.map((alarm) => alarm.id));
  if (fresh.length) setText($("#shout"), fresh.map(alarmText).join(". "));
  soundFor(state.alarms);
}

// ---- what the camera says

const CALM_WORDS = new Set([
  "waiting_for",
  "waiting_for_unit",
  "all_done",
  "corrected",
  "starting",
  "sure",
  "not_in_view",
]);

function sentence({ key, args = {} }) {
  const values = { ...args };
  if (typeof values.seconds === "number") values.seconds = duration(values.seconds);
  if (typeof values.share === "number") values.share = percent(values.share);
  return t(`words.${key}`, values);
}

function renderWords(current) {
  const isSaid = ({ key, args }) => key === "waiting_for" && args.step === current?.text; // in large letters already
  const known = state.words.filter((word) => hasText(`words.${word.key}`) && !isSaid(word));
  const watching = state.camera.status === "ok" && state.unit ? [{ key: state.box ? "sure" : "not_in_view" }] : [];
  const words = known.length ? known.slice(0, 2) : watching;
  const place = $("#says");
  show(place, words.length > 0);
  const text = words.map(sentence).join(" ");
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  place.classList.toggle(
    "unsure",
    words.some((word) => !CALM_WORDS.has(word.key)),
  );
  if (!place.querySelector(".icon"))
    place.replaceChildren(icon("eye"), el("span", { class: "unseen" }, `${t("words.name")}: `), el("span"));
  setText(place.lastChild, text);
}

// ---- the live picture

const NO_PICTURE = new Set(["lost", "stalled", "frozen", "ended", "starting"]);

function renderPicture() {
  const { camera, box } = state;
  const bad = NO_PICTURE.has(camera.status);
  const figure = $("#picture");
  figure.classList.toggle("bad", bad);
  if (camera.width && camera.height) {
    figure.style.setProperty("--aspect", camera.width / camera.height);
    setAttribute($("#overlay"), "viewBox", `0 0 ${camera.width} ${camera.height}`);
  }
  const place = bad ? null : box;
  for (const rect of $("#overlay").children) {
    setAttribute(rect, "visibility", place ? "visible" : "hidden");
    if (!place) continue;
    const [x0, y0, x1, y1] = place;
    for (const [name, value] of Object.entries({ x: x0, y: y0, width: x1 - x0, height: y1 - y0 }))
      setAttribute(rect, name, value);
  }
  show($("#veil"), bad);
  if (bad)
    setText(
      $("#veil"),
      camera.status === "starting"
        ? t("picture.waiting")
        : t("camera.veil", { status: t(`camera.${camera.status}`), time: clock(camera.since) }),
    );
  const parts = [camera.name];
  if (camera.fps) parts.push(t("picture.rate", { fps: decimal(camera.fps) }));
  if (camera.latency_ms) parts.push(t("picture.delay", { ms: Math.round(camera.latency_ms) }));
  if (!place && !bad) parts.push(t("picture.no_box"));
  const words = parts.filter(Boolean).join("|");
  if ($("#picture-words").dataset.words !== words) {
    $("#picture-words").dataset.words = words;
    $("#picture-words").replaceChildren(...parts.filter(Boolean).map((part) => el("span", {}, part)));
  }
}

let runFilm = null;

/** The film runs only while somebody can see it: a browser keeps few connections, and several pages may be open. */
function playFilm() {
  runFilm(Boolean(live.live) && document.visibilityState === "visible");
}

// ---- the log, the bar, the title

const LOG_ICONS = {
  completed: "check",
  unexpected: "help",
  wrong: "wrong",
  skipped: "skip",
  removed: "minus",
  correction: "hand",
  unit_started: "plus",
  unit_finished: "flag",
  alarm: "alarm",
  camera: "camera",
};

function renderLog() {
  const place = $("#log");
  const newest = state.log[0]?.id ?? 0;
  if (place.dataset.newest === String(newest)) return;
  place.dataset.newest = newest;
  place.replaceChildren(
    ...state.log.map((entry) =>
      el(
        "li",
        { class: entry.kind === "alarm" ? "alarm-line" : entry.kind },
        icon(LOG_ICONS[entry.kind] ?? "clock"),
        el("time", { datetime: entry.time }, clock(entry.time)),
        el("span", {}, eventText(entry)),
      ),
    ),
    ...(state.log.length ? [] : [el("li", { class: "quiet" }, t("log.empty"))]),
  );
  if (lastLogId !== null) {
    const news = state.log.filter((entry) => entry.id > lastLogId && entry.kind !== "alarm").reverse();
    if (news.length) setText($("#news"), news.map(eventText).join(". "));
  }
  lastLogId = newest;
}

function setPill(pill, kind, glyph, text) {
  setAttribute(pill, "class", `pill ${kind}`);
  if (!pill.firstChild) pill.append(icon(glyph), el("span", { class: "words" }));
  setIcon(pill, glyph);
  setText(pill.querySelector(".words"), text);
  label(pill, text);
}

function renderBar() {
  const { station, camera, unit } = state;
  setText($("#title"), station.title);
  const parts = [station.name, (station.variants ?? []).length > 1 ? (unit?.variant ?? station.variant) : null];
  setText($("#subtitle"), parts.filter(Boolean).join(" · "));
  show($("#demo"), station.demo);
  show($("#read-only"), station.read_only);
  document.body.classList.toggle("read-only", station.read_only);
  const waiting = ["mqtt", "webhook"].filter((channel) => station[channel] === "waiting");
  show($("#channels"), waiting.length > 0);
  setText($("#channels"), waiting.map((channel) => t(`channel.${channel}`)).join(" · "));
  const kinds = { ok: "good", starting: "", ended: "warn", dark: "warn", stalled: "warn" };
  setPill(
    $("#camera-pill"),
    kinds[camera.status] ?? "bad",
    camera.status === "ok" ? "camera" : "camera_off",
    t(`camera.${camera.status}`),
  );
  const warning = state.alarms.some((alarm) => !alarm.acknowledged) ? "⚠ " : "";
  const progress = unit ? `${unit.done}/${unit.total} ${serialOf(unit)} · ` : "";
  if (document.title !== warning + progress + station.title) document.title = warning + progress + station.title;
}

function renderLink() {
  const isLive = live.live;
  setPill(
    $("#link-pill"),
    isLive ? "good" : live.live === null ? "" : "bad",
    isLive ? "link" : "link_off",
    t(isLive ? "link.live" : live.live === null ? "link.opening" : "link.lost"),
  );
  document.body.classList.toggle("stale", live.live === false);
  show($("#lost"), live.live === false);
  if (live.live === false) {
    if (!$("#lost").firstChild) $("#lost").append(icon("link_off"), el("span"));
    const ago = duration((Date.now() - Date.parse(live.since)) / 1000);
    setText($("#lost").lastChild, t("link.lost_since", { time: clock(live.since), ago }));
  }
}

// ---- all of it

function render() {
  const step = currentStep();
  document.body.classList.remove("loading");
  renderBar();
  renderUnit();
  renderSteps(step);
  renderNow(step);
  renderWords(step);
  renderAlarms();
  renderPicture();
  renderLog();
  for (const node of $("#actions").children) node.disabled = !may();
  finishButton.disabled ||= !state.unit;
}

function onState(snapshot) {
  version ??= snapshot.station.version;
  if (version !== snapshot.station.version) return location.reload(); // the station was updated, so the page is too
  state = snapshot;
  received = performance.now();
  render();
  return undefined;
}

function onLink(now) {
  const wasLost = live.live === false;
  live = now;
  playFilm();
  renderLink();
  if (!now.live) {
    $(".toasts").replaceChildren();
    setText($("#shout"), t("link.lost"));
  }
  if (wasLost && now.live) toast(t("link.back"), { seconds: 4 });
  if (state) render();
}

function everySecond() {
  setText($("#clock"), clock(new Date().toISOString(), false));
  renderUnitTime();
  renderAside();
  if (live.live === false) renderLink();
}

// ---- keys

const onButton = (event) => event.target.closest?.("button, a, summary");

function onKey(key, event) {
  if (!state) return;
  const step = chosenStep();
  const doings = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Home: () => select(state.steps[0]?.number, true),
    End: () => select(state.steps.at(-1)?.number, true),
    n: askForUnit,
    f: askToFinish,
    u: undo,
    w: () => step && canCorrect() && setStep(step, "wrong"),
    o: () => step && canCorrect() && setStep(step, "open"),
    a: () => {
      const alarm =
        state.alarms.find((one) => !one.acknowledged && !isPast(one)) ?? state.alarms.find((one) => !one.acknowledged);
      if (alarm) acknowledge(alarm);
    },
    "?": help,
    h: help,
  };
  if (key === "Enter" || key === " ") {
    if (onButton(event)) return; // the button's own business
    event.preventDefault();
    if (event.repeat) return;
    if (step && canCorrect() && !isFinished(step)) setStep(step, "done");
    else if (state.unit && state.steps.every(isFinished)) askToFinish();
    return;
  }
  const doing = doings[key.length === 1 ? key.toLowerCase() : key];
  if (!doing) return;
  if (key.length > 1) event.preventDefault();
  doing();
}

// ---- start

let finishButton = null;

function buildActions() {
  finishButton = button("flag", { text: t("do.finish"), key: "F" }, askToFinish);
  $("#actions").append(
    button("plus", { text: t("do.new"), key: "N" }, askForUnit),
    finishButton,
    button("undo", { text: t("do.undo"), key: "U" }, undo),
  );
}

function buildHelp() {
  const lines = [
    [t("key.arrows"), "select"],
    [t("key.confirm"), "confirm"],
    ["W", "wrong"],
    ["O", "open"],
    ["U", "undo"],
    ["N", "new"],
    ["F", "finish"],
    ["A", "acknowledge"],
    ["?", "help"],
  ];
  for (const [key, meaning] of lines)
    $("#keys").append(el("dt", {}, el("kbd", {}, key)), el("dd", {}, t(`help.${meaning}`)));
  $("#keys").append(el("dt", {}, t("help.scanner")), el("dd", {}, t("help.scan")));
  for (const status of ["open", "next", "probable", "done", "wrong", "skipped", "removed"]) {
    const shape = mark(status === "next" ? "open" : status, 1, 0.6, status === "next");
    $("#marks").append(el("li", {}, shape, t(`status.${status}`)));
  }
}

function buildSound(nav) {
  const node = nav.querySelector("[name=sound]");
  const render = () => {
    setIcon(node, muted() || blocked() ? "mute" : "sound");
    setName(node, t(muted() ? "bar.sound_off" : blocked() ? "bar.sound_blocked" : "bar.sound_on"));
    setAttribute(node, "aria-pressed", String(!muted()));
  };
  unlockOnFirstTouch(render);
  node.addEventListener("click", () => {
    setMuted(!muted());
    if (!muted()) play(false);
    render();
  });
  render();
}

async function keepAwake() {
  if (document.visibilityState === "visible") await navigator.wakeLock?.request("screen").catch(() => {});
}

async function start() {
  await loadTexts();
  const nav = buildBar({
    links: linksFrom("station"),
    extra: [
      ["sound", "sound", () => {}],
      ["help", "help", help],
    ],
  });
  buildSound(nav);
  buildActions();
  buildHelp();
  for (const node of document.querySelectorAll("[data-close]"))
    node.addEventListener("click", () => node.closest("dialog").close());
  document.addEventListener("visibilitychange", () => {
    playFilm();
    keepAwake();
  });
  keepAwake();
  listenToKeys({ onKey, onScan: scan });
  runFilm = film($("#video"));
  renderLink();
  everySecond();
  setInterval(everySecond, 1000);
  follow(onState, onLink);
}

start();
