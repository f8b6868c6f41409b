// The page in which a recording is labelled. What is shown comes from the server; a key asks it for one change.
import { Boxes } from "./boxes.js";
import { Changes } from "./changes.js";
import { Frames } from "./frames.js";
import { icon } from "./icons.js";
import { showModel } from "./model.js";
import { $, buildBar, decimal, el, get, isTyping, label, loadTexts, percent, setText, show, stopwatch, t, toast, toastError } from "./shared.js";
import { Timeline } from "./timeline.js";

const key = decodeURIComponent(location.pathname.replace("/recordings/", ""));
const api = `/api/recordings/${key.split("/").map(encodeURIComponent).join("/")}`;
const LETTERS = [..."adejlopqrstvw"]; // keys of components after 1 to 9; the other letters are commands
const STAYS_MS = 250;
const AGAIN_MS = 700;
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const VALUES = { 1: "correct", 0: "absent", "-1": "wrong" };

let about; // of the recording, read once
let doc; // states, boxes, marks
let proposals = { steps: [], boxes: {}, unsure: [] };
let place = 0; // of the frame that is wanted, among those that have an image
let shown = -1; // of the frame that is on the screen
let playing = null;
let later = 0; // what is fetched when somebody stays
let noting = 0;
let speed = 2;
let firstKey = 0; // the component that key 1 sets
let frames, timeline, boxes, changes;

// ---- frames and times

const frameAt = (at) => (Array.isArray(about.numbers) ? about.numbers[at] : about.numbers.first + at * about.numbers.step);
const count = () => (Array.isArray(about.numbers) ? about.numbers.length : about.numbers.count);
const current = () => frameAt(place);
const onScreen = () => (shown < 0 ? current() : frameAt(shown)); // while the image of another one is on its way
const seconds = (frame) => (about.times ? about.times[frame] : frame / about.fps);

/** The place of the last image that is not later than a frame. */
function placeOf(frame) {
  if (!Array.isArray(about.numbers)) {
    const { first, step } = about.numbers;
    return clamp(Math.floor((frame - first) / step));
  }
  let low = 0;
  for (let high = count(); low < high; ) {
    const middle = (low + high) >> 1;
    if (about.numbers[middle] <= frame) low = middle + 1;
    else high = middle;
  }
  return clamp(low - 1);
}

const clamp = (at) => Math.max(0, Math.min(at, count() - 1));

/** The place that lies so many seconds away. */
function placeAfter(delta) {
  if (!about.times) return clamp(place + Math.sign(delta) * Math.max(1, Math.round((Math.abs(delta) * about.fps) / (about.numbers.step ?? 1))));
  const wanted = seconds(current()) + delta;
  let at = place;
  while (delta > 0 ? at < count() - 1 && seconds(frameAt(at)) < wanted - 1e-6 : at > 0 && seconds(frameAt(at)) > wanted + 1e-6)
    at += Math.sign(delta);
  return at;
}

async function go(to, { stop = true } = {}) {
  if (stop) pause();
  clearTimeout(later);
  const step = clamp(to) - place;
  place = clamp(to);
  const wanted = place;
  const ready = frames.ready(place);
  if (ready) draw(wanted, ready);
  else
    try {
      const image = await frames.get(wanted);
      if (wanted === place) draw(wanted, image);
    } catch {
      if (wanted !== place) return;
      document.body.classList.add("stale");
      later = setTimeout(() => go(wanted, { stop: false }), AGAIN_MS); // until the server is back, or somebody goes on
      return;
    }
  // after a jump the next one may follow at once: what lies around is fetched when somebody stays
  if (frames.isJump(step)) later = setTimeout(() => frames.prefetch(wanted, 1), STAYS_MS);
  else frames.prefetch(wanted, step);
}

const goFrame = (frame) => go(placeOf(frame));

/** Puts an image on the screen, and everything that belongs to its frame. */
function draw(at, image) {
  const canvas = $("#image");
  if (canvas.width !== image.width || canvas.height !== image.height) {
    canvas.width = image.width;
    canvas.height = image.height;
  }
  canvas.getContext("2d").drawImage(image, 0, 0);
  shown = at;
  document.body.classList.remove("stale");
  document.body.dataset.frame = frameAt(at); // what is on the screen, for tests and measurements
  showFrame();
  clearTimeout(noting);
  noting = setTimeout(noteFrame, STAYS_MS); // browsers allow so many notes a second, and frames come faster
}

/** The address names the frame: a page that is loaded anew shows it again. */
function noteFrame() {
  history.replaceState(null, "", `#${current()}`);
}

// ---- playing: frames may be passed over, but what is shown always has its number

function pause() {
  if (playing) cancelAnimationFrame(playing.request);
  playing = null;
  showPlay();
}

function play() {
  if (place >= count() - 1) place = 0;
  const began = performance.now();
  const from = seconds(current());
  playing = { request: 0, busy: false };
  const mine = playing;
  const tick = async () => {
    if (playing !== mine) return;
    if (!mine.busy) {
      const wanted = from + ((performance.now() - began) / 1000) * SPEEDS[speed];
      let next = place;
      while (next < count() - 1 && seconds(frameAt(next + 1)) <= wanted) next++;
      if (next !== place) {
        mine.busy = true;
        await go(next, { stop: false });
        mine.busy = false;
      }
      if (place >= count() - 1) return pause();
    }
    mine.request = requestAnimationFrame(tick);
  };
  showPlay();
  tick();
}

// ---- what the document says of a frame

function bitsAt(frame) {
  let row = doc.states[0];
  for (const next of doc.states) if (next[0] <= frame) row = next;
  return row.slice(1);
}

function stateName(bits) {
  if (bits.includes(-1)) return about.error_class === null ? null : about.states[about.error_class];
  const found = about.classes.find((row) => bits.every((bit, k) => bit === row[k]));
  return found ? about.states[found[bits.length]] : null;
}

const changeFrames = () => doc.states.slice(1).map((row) => row[0]);

/** Proposals that neither the person has settled nor the labels agree with. */
const openSteps = () =>
  proposals.steps.filter((step) => !doc.settled[step.id] && bitsAt(step.frame)[step.component] !== step.value);

/** The proposal that Enter accepts: the one chosen, else the nearest in time. */
let chosen = null;
function proposalHere() {
  const open = openSteps();
  const own = open.find((step) => step.id === chosen);
  if (own) return own;
  const near = open.filter((step) => Math.abs(seconds(step.frame) - seconds(current())) <= 15);
  const distance = (step) => Math.abs(step.frame - current());
  return near.sort((a, b) => distance(a) - distance(b))[0] ?? null;
}

const boxProposal = (frame) =>
  doc.settled[`box:${frame}`] || doc.boxes[frame] ? null : (proposals.boxes[frame] ?? null);

// ---- changes

function change(what, values = {}) {
  if (about.read_only) return toast(t("bar.read_only"));
  changes.send({ do: what, ...values });
}

const here = (what, values = {}) => change(what, { frame: current(), ...values });

function onAnswer(answer, made) {
  doc = { ...doc, ...answer, boxes: answer.boxes ?? doc.boxes };
  document.body.dataset.revision = doc.revision;
  if (made.do === "undo" || made.do === "redo") {
    if (answer.frame !== undefined && answer.frame !== null) goFrame(answer.frame);
  }
  if (made.do === "finish") showFinish(answer);
  if (made.do === "set" || made.do === "accept") announce(made);
  showAll();
}

function announce(made) {
  const found = doc.problems.filter((problem) => problem.frame === made.frame && !problem.kept);
  setText($("#news"), found.map(problemText).join(" "));
}

async function reload() {
  const found = await get(`${api}/document`);
  doc = found;
  changes.revision = doc.revision;
  document.body.dataset.revision = doc.revision;
  showAll();
}

async function onStale(error) {
  await reload();
  toast(t("stale.title"), { detail: t("stale.words"), bad: true, seconds: 10 });
  return error;
}

// ---- jumps

function jumpTo(list, direction, none) {
  const at = current();
  const found = direction > 0 ? list.find((frame) => frame > at) : list.findLast((frame) => frame < at);
  if (found === undefined) toast(t(none), { seconds: 2 });
  else goFrame(found);
}

function nextProposal() {
  const open = openSteps().sort((a, b) => a.frame - b.frame);
  const next = open.find((step) => step.frame > current() || (step.frame === current() && step.id > (chosen ?? ""))) ?? open[0];
  if (!next) return toast(t("proposals.none"), { seconds: 2 });
  chosen = next.id;
  return goFrame(next.frame);
}

const leastSure = () => [...proposals.unsure].filter(([, last]) => last >= doc.labelled_until).sort((a, b) => b[2] - a[2]);

function goLeastSure() {
  const [first] = leastSure();
  if (first) goFrame(first[0]);
  else toast(t("unsure.none"), { seconds: 2 });
}

// ---- keys

const COMMANDS = [
  ["move", [
    ["ArrowLeft", "left", () => go(place - 1)],
    ["ArrowRight", "right", () => go(place + 1)],
    ["shift+ArrowLeft", "left10", () => go(place - 10)],
    ["shift+ArrowRight", "right10", () => go(place + 10)],
    ["alt+ArrowLeft", "left_second", () => go(placeAfter(-1))],
    ["alt+ArrowRight", "right_second", () => go(placeAfter(1))],
    ["Home", "first", () => go(0)],
    ["End", "last", () => go(count() - 1)],
    ["g", "goto", openGoto],
    [" ", "play", () => (playing ? pause() : play())],
    ["+", "faster", () => setSpeed(1)],
    ["-", "slower", () => setSpeed(-1)],
  ]],
  ["jump", [
    ["ArrowUp", "previous_change", () => jumpTo(changeFrames(), -1, "jump.none")],
    ["ArrowDown", "next_change", () => jumpTo(changeFrames(), 1, "jump.none")],
    ["shift+ArrowUp", "zoom_in", () => timeline.zoom(1)],
    ["shift+ArrowDown", "zoom_out", () => timeline.zoom(-1)],
    ["u", "unlabelled", () => (doc.labelled_until >= about.n_frames ? toast(t("jump.all_labelled"), { seconds: 2 }) : goFrame(doc.labelled_until))],
  ]],
  ["label", [
    ["PageDown", "next_components", () => turnKeys(1)],
    ["PageUp", "previous_components", () => turnKeys(-1)],
    ["m", "mark", () => here("mark")],
    ["k", "keep", () => here("keep")],
    [",", "earlier", () => moveHere(-1)],
    [".", "later", () => moveHere(1)],
    ["z", "undo", () => change("undo")],
    ["y", "redo", () => change("redo")],
    ["f", "finish", () => change("finish")],
  ]],
  ["model", [
    ["n", "next_proposal", nextProposal],
    ["h", "least_sure", goLeastSure],
    ["Enter", "accept", () => settle("accept")],
    ["Backspace", "reject", () => settle("reject")],
    ["b", "accept_box", () => here("accept_box")],
    ["shift+B", "accept_boxes", () => here("accept_boxes")],
    ["x", "reject_box", () => here("reject_box")],
  ]],
  ["boxes", [
    ["drag", "draw", null],
    ["shift+D", "type_box", openBox],
    ["c", "copy_box", () => here("copy_box")],
    ["shift+C", "repeat_box", () => here("repeat_box")],
    ["i", "fill", () => here("fill")],
    ["Delete", "delete_box", () => here("delete_box")],
  ]],
  ["other", [
    ["?", "help", () => $("#help-dialog").showModal()],
    ["Escape", "list", () => (location.href = "/")],
  ]],
];
const BY_KEY = new Map(COMMANDS.flatMap(([, rows]) => rows.map(([keys, name, run]) => [keys, { name, run }])));

const KEYS = [..."123456789", ...LETTERS];
const componentKey = (k) => KEYS[k - firstKey] ?? "";

/** Where there are more components than keys, the keys are those of the next ones, or of those before. */
function turnKeys(direction) {
  const next = firstKey + direction * KEYS.length;
  if (next < 0 || next >= about.components.length) return toast(t("jump.no_components"), { seconds: 2 });
  firstKey = next;
  timeline.showKeys();
  return buildHelp();
}

function settle(how) {
  const step = proposalHere();
  if (!step) return toast(t("proposals.none"), { seconds: 2 });
  chosen = null;
  return change(how, { frame: current(), proposal: step.id });
}

/** Moves what changes in this frame by one frame, and goes with it. */
function moveHere(direction) {
  const at = doc.states.findIndex((row) => row[0] === current());
  if (at < 1) return toast(t("jump.no_change_here"), { seconds: 2 });
  const [before, after] = [doc.states[at - 1], doc.states[at]];
  const component = after.slice(1).findIndex((bit, k) => bit !== before[k + 1]);
  const to = frameAt(clamp(place + direction));
  change("move", { component, frame: current(), to });
  return go(place + direction);
}

function setSpeed(direction) {
  speed = Math.max(0, Math.min(speed + direction, SPEEDS.length - 1));
  if (playing) play();
  showPlay();
}

function onKey(event) {
  if (document.querySelector("dialog[open]") || event.isComposing || isTyping(event.target)) return;
  if (event.ctrlKey || event.metaKey) {
    const letter = event.key.toLowerCase();
    if (letter !== "z" && letter !== "y") return;
    event.preventDefault();
    change(letter === "y" || event.shiftKey ? "redo" : "undo");
    return;
  }
  const onButton = event.target.closest?.("button, a") && (event.key === "Enter" || event.key === " ");
  if (onButton && !event.target.closest("dialog")) return; // Enter and space press what has the focus
  const named = `${event.altKey ? "alt+" : ""}${event.shiftKey && (event.key.length > 1 || /[A-Z]/.test(event.key)) ? "shift+" : ""}${event.key}`;
  const command = BY_KEY.get(named);
  if (command?.run) {
    event.preventDefault();
    command.run();
    return;
  }
  if (event.altKey) return;
  const k = about.components.findIndex((_, number) => componentKey(number) !== "" && componentKey(number) === event.key);
  if (k < 0) return;
  event.preventDefault();
  if (!event.repeat) here("set", { component: k });
}

// ---- what is shown

function showPlay() {
  const node = $("#play");
  node.replaceChildren(icon(playing ? "forward" : "play"));
  label(node, t(playing ? "move.pause" : "move.play"));
  node.setAttribute("aria-pressed", String(Boolean(playing)));
  setText($("#speed"), `×${decimal(SPEEDS[speed], 2)}`);
}

/** What changes with every frame: kept small, because it is done thirty times a second. */
function showFrame() {
  const frame = onScreen();
  setText($("#frame"), String(frame));
  setText($("#of"), ` / ${about.n_frames - 1}`);
  setText($("#time"), `${stopwatch(seconds(frame))}.${String(Math.floor((seconds(frame) % 1) * 10))}`);
  const bits = bitsAt(frame);
  const name = stateName(bits);
  setText($("#state-words"), name === null ? t("state.no_class") : t("state.class", { name }));
  timeline.showFrame(frame, bits);
  boxes.show(frame, doc.boxes[frame] ?? null, boxProposal(frame), bits.includes(-1));
  showHere(frame);
}

function problemText(problem) {
  const name = about.components[problem.component].name;
  const needs = problem.needs.map((k) => about.components[k].name).join(` ${t("problem.or")} `);
  return t(`problem.${problem.kind}`, { component: name, needs });
}

function showHere(frame) {
  const rows = [];
  const at = doc.states.findIndex((row) => row[0] === frame);
  if (at > 0) {
    const [before, after] = [doc.states[at - 1], doc.states[at]];
    after.slice(1).forEach((bit, k) => {
      if (bit !== before[k + 1])
        rows.push(el("p", { class: `now ${VALUES[bit]}` }, mark(bit), t(`became.${VALUES[bit]}`, { component: about.components[k].name })));
    });
  }
  for (const problem of doc.problems.filter((found) => found.frame === frame))
    rows.push(el("p", { class: problem.kept ? "now kept" : "now odd" }, icon("alarm"), problemText(problem), problem.kept ? el("small", {}, t("problem.kept")) : el("kbd", {}, "K")));
  const step = proposalHere();
  if (step) rows.push(el("p", { class: "now proposed" }, icon("eye"), proposalText(step), el("kbd", {}, "↵"), el("kbd", {}, "⌫")));
  const box = boxProposal(frame);
  if (box) rows.push(el("p", { class: "now proposed" }, icon("eye"), t("proposals.box", { name: about.states[box[5]], share: percent(box[4]) }), el("kbd", {}, "B"), el("kbd", {}, "X")));
  if (!rows.length) rows.push(el("p", { class: "quiet" }, t("here.nothing")));
  const text = rows.map((row) => row.textContent).join("|") + at;
  if ($("#here").dataset.text === text) return;
  $("#here").dataset.text = text;
  $("#here").replaceChildren(...rows);
}

const proposalText = (step) =>
  t(`proposed.${VALUES[step.value]}`, { component: about.components[step.component].name, share: percent(step.confidence) });

function mark(bit) {
  const node = el("span", { class: `value ${VALUES[bit]}` });
  node.append(bit === 0 ? "" : icon(bit === 1 ? "check" : "wrong"));
  return node;
}

function jumpRow(frame, text, kind) {
  return el(
    "li",
    {},
    el("button", { class: `jump ${kind}`, type: "button", onclick: (event) => { goFrame(frame); event.currentTarget.blur(); } },
      el("span", { class: "when" }, stopwatch(seconds(frame))), el("span", {}, text)),
  );
}

/** What changes when the document does. */
function showAll() {
  timeline.showDocument(doc, openSteps());
  const odd = doc.problems;
  $("#problems").replaceChildren(
    ...odd.map((problem) => jumpRow(problem.frame, problemText(problem), problem.kept ? "kept" : "odd")),
    ...(odd.length ? [] : [el("li", { class: "quiet" }, t("problems.none"))]),
  );
  show($("#proposal-section"), about.has_model);
  const open = openSteps();
  setText($("#proposals-words"), proposals.ready ? (open.length ? t("proposals.open", { n: open.length }) : t("proposals.none")) : t("proposals.waiting"));
  $("#proposals").replaceChildren(...open.slice(0, 30).map((step) => jumpRow(step.frame, proposalText(step), step.confidence < 0.5 ? "unsure" : "")));
  show($("#unsure-section"), about.has_model && proposals.unsure.length > 0);
  $("#unsure").replaceChildren(...leastSure().slice(0, 8).map(([first, , share]) => jumpRow(first, t("unsure.row", { share: percent(share) }), "")));
  show($("#finished"), Boolean(doc.finished));
  $("#finished").classList.toggle("warn", Boolean(doc.finished?.errors));
  if (doc.finished) setText($("#finished"), doc.finished.errors ? t("finished.errors", { n: doc.finished.errors }) : t("finished.well"));
  for (const [name, can] of [["undo", doc.can_undo], ["redo", doc.can_redo]]) {
    const node = document.querySelector(`#actions [name=${name}]`);
    if (node) node.disabled = !can;
  }
  showFrame();
}

function onWaiting(n, isThere) {
  const node = $("#saved");
  node.className = `pill ${n ? (isThere ? "" : "bad") : "good"}`;
  setText(node, n ? (isThere ? t("saved.saving") : t("saved.waiting", { n })) : t("saved.saved"));
}

function showFinish(answer) {
  const { errors, warnings } = answer.finished;
  setText($("#finish-heading"), errors ? t("finish.with_errors") : t("finish.well"));
  setText($("#finish-words"), t("finish.words", { errors, warnings }));
  $("#findings").replaceChildren(
    ...answer.findings.map((found) => el("li", { class: found.severity }, el("strong", {}, `${found.file}${found.line ? `:${found.line}` : ""}`), ` ${found.text}`)),
  );
  $("#finish-dialog").showModal();
}

function openGoto() {
  pause();
  $("#goto-frame").value = "";
  $("#goto-dialog").showModal();
}

/** A box by its numbers: exact, and for those who use no mouse. */
function openBox() {
  pause();
  const box = doc.boxes[current()] ?? boxProposal(current());
  $("#box-sides").value = box ? box.slice(0, 4).join(" ") : "";
  $("#box-dialog").showModal();
  $("#box-sides").select();
}

function typeBox() {
  const sides = $("#box-sides").value.split(/[\s,;]+/).filter(Boolean).map(Number);
  if (sides.length === 4 && sides.every(Number.isFinite)) here("box", { box: sides });
  else toast(t("box.wrong"), { bad: true, seconds: 4 });
}

const KEY_NAMES = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Enter: "↵", Backspace: "⌫" };

function keyNodes(keys) {
  return keys.split(/\+(?=.)/).map((one) => {
    const known = { " ": "key.space", shift: "key.shift", alt: "key.alt", drag: "key.drag", Delete: "key.delete", Home: "key.home", End: "key.end", Escape: "key.escape" };
    return el("kbd", {}, known[one] ? t(known[one]) : (KEY_NAMES[one] ?? (one.length === 1 ? one.toUpperCase() : one)));
  });
}

function buildHelp() {
  const columns = COMMANDS.filter(([group]) => group !== "model" || about.has_model).map(([group, rows]) =>
    el("section", {}, el("h3", {}, t(`group.${group}`)),
      el("dl", { class: "keys" }, ...rows.flatMap(([keys, name]) => [el("dt", {}, ...keyNodes(keys)), el("dd", {}, t(`do.${name}`))]))),
  );
  const own = about.components.flatMap((component, k) => [el("dt", {}, el("kbd", {}, componentKey(k).toUpperCase() || "–")), el("dd", {}, component.name)]);
  columns.unshift(el("section", {}, el("h3", {}, t("group.components")), el("p", { class: "quiet" }, t("do.set")), el("dl", { class: "keys" }, ...own)));
  $("#keys").replaceChildren(...columns);
}

function buildActions() {
  const button = (name, glyph, keys) => {
    const [, run] = [name, BY_KEY.get(keys).run];
    const node = el("button", { class: "button", type: "button", onclick: () => { run(); node.blur(); } }, icon(glyph), el("span", {}, t(`action.${name}`)), ...keyNodes(keys));
    node.name = name;
    label(node, t(`do.${name}`));
    return node;
  };
  const list = [button("undo", "undo", "z"), button("redo", "forward", "y"), button("mark", "flag", "m"), button("unlabelled", "arrow", "u")];
  if (about.has_model) list.push(button("next_proposal", "eye", "n"), button("accept", "check", "Enter"), button("reject", "close", "Backspace"));
  list.push(button("copy_box", "grid", "c"), button("fill", "chart", "i"), button("delete_box", "close", "Delete"), button("finish", "check", "f"));
  $("#actions").replaceChildren(...list);
  show($("#actions"), !about.read_only);
  for (const node of document.querySelectorAll("[data-key]")) {
    const command = BY_KEY.get(node.dataset.key);
    const glyphs = { "back-second": "«", back: "‹", on: "›", "on-second": "»" };
    if (glyphs[node.id]) node.textContent = glyphs[node.id];
    label(node, t(`do.${command.name}`));
    node.addEventListener("click", () => { command.run(); node.blur(); });
  }
}

// ---- start

async function readProposals() {
  const found = await get(`${api}/proposals`);
  if (!found.ready) return;
  proposals = found;
  document.body.dataset.proposals = found.steps.length;
  timeline.showProposals(proposals);
  showAll();
}

function listen() {
  const source = new EventSource("/api/stream");
  source.addEventListener("news", (event) => {
    const { revisions, model, ready } = JSON.parse(event.data);
    showModel($("#model"), model);
    if (ready.includes(key) && !proposals.ready) readProposals().catch(toastError);
    // a change of another window; one of ours is answered before or soon
    if ((revisions[key] ?? 0) > doc.revision && !changes.running)
      reload().then(() => toast(t("stale.other"), { seconds: 4 })).catch(() => {});
  });
}

async function start() {
  await loadTexts();
  try {
    about = await get(`${api}/about`);
  } catch (error) {
    document.body.classList.remove("loading");
    toastError(error);
    return;
  }
  doc = about.document;
  document.title = about.name;
  setText($("#title"), about.name);
  setText($("#subtitle"), [about.split, t("about.frames", { n: about.n_frames, fps: decimal(about.fps, 2) }), about.times ? t("about.uneven") : ""].filter(Boolean).join(" · "));
  show($("#read-only"), about.read_only);
  buildBar({ extra: [["help", "help", () => $("#help-dialog").showModal()]] });
  label($("#home"), t("do.list"));
  frames = new Frames((at) => `${api}/frames/${frameAt(at)}?v=${about.version}`, count());
  changes = new Changes(`${api}/change`, { onAnswer, onStale, onWaiting, onRefused: toastError });
  changes.revision = doc.revision;
  document.body.dataset.revision = doc.revision;
  timeline = new Timeline($("#rows"), about, { componentKey, seconds, onSeek: goFrame, onSet: (k) => here("set", { component: k }), onMove: (component, frame, to) => change("move", { component, frame, to }), frameNear: (frame) => frameAt(placeOf(frame)), mark });
  boxes = new Boxes($("#overlay"), $("#picture"), about, (box, frame) => change("box", { frame, box }));
  buildHelp();
  buildActions();
  showPlay();
  onWaiting(0, true);
  document.addEventListener("keydown", onKey);
  // a page that is loaded anew has the address from before it was hidden, in some browsers
  window.addEventListener("pagehide", () => sessionStorage.setItem(location.pathname, current()));
  $("#goto-form").addEventListener("submit", () => {
    const wanted = Number.parseInt($("#goto-frame").value, 10);
    if (Number.isFinite(wanted)) goFrame(Math.max(0, wanted));
  });
  $("#box-form").addEventListener("submit", typeBox);
  const isReload = performance.getEntriesByType("navigation")[0]?.type === "reload";
  const kept = isReload ? sessionStorage.getItem(location.pathname) : null;
  const asked = Number.parseInt(kept ?? location.hash.slice(1), 10);
  place = placeOf(Number.isFinite(asked) ? asked : 0);
  showAll();
  listen();
  await go(place);
  document.body.classList.remove("loading");
}

start();
