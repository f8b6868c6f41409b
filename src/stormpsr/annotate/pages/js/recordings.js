// The list of recordings: what is finished, how far the others are, and where the model is least sure. Arrows choose, Enter opens.
import { icon } from "./icons.js";
import { showModel } from "./model.js";
import { $, buildBar, el, get, loadTexts, percent, setText, show, t, toastError } from "./shared.js";

function progress(row) {
  const until = row.n_frames ? Math.min(1, (row.labelled_until ?? 0) / row.n_frames) : 0;
  if (row.finished) return el("span", { class: "status pass" }, icon("check"), t("list.finished"));
  if (!row.revision)
    return el("span", { class: "status quiet" }, row.has_labels ? t("list.has_labels") : t("list.not_begun"));
  const fill = el("span", { class: "fill" });
  fill.style.width = `${100 * until}%`;
  return el("span", { class: "until" }, el("span", { class: "rail" }, fill), t("list.until", { share: percent(until) }));
}

function problems(row) {
  const found = (row.problems ?? 0) + (row.finished?.errors ?? 0);
  if (!found) return el("span", { class: "quiet" }, row.revision ? t("list.none") : "");
  return el("span", { class: "status wrong" }, icon("alarm"), String(found));
}

function line(row, withModel) {
  const href = `/recordings/${row.key.split("/").map(encodeURIComponent).join("/")}`;
  return el(
    "tr",
    {},
    el("td", {}, el("a", { href }, row.name)),
    el("td", { class: "quiet" }, row.split ?? ""),
    el("td", {}, progress(row)),
    el("td", { class: "number" }, row.revision ? String(row.changes) : ""),
    el("td", { class: "number" }, row.revision ? String(row.boxes) : ""),
    el("td", {}, problems(row)),
    withModel ? el("td", { class: "number" }, row.unsure === null ? "…" : percent(row.unsure)) : null,
  );
}

async function read() {
  try {
    const found = await get("/api/recordings");
    setText($("#title"), found.title);
    setText($("#subtitle"), t("list.procedure", { name: found.procedure }));
    show($("#read-only"), found.read_only);
    showModel($("#model"), found.model);
    const finished = found.recordings.filter((row) => row.finished).length;
    setText($("#summary"), t("list.summary", { finished, of: found.recordings.length }));
    show($("#unsure-head"), Boolean(found.model));
    const focused = [...document.querySelectorAll("#rows a")].indexOf(document.activeElement);
    $("#rows").replaceChildren(...found.recordings.map((row) => line(row, Boolean(found.model))));
    if (focused >= 0) document.querySelectorAll("#rows a")[focused]?.focus();
  } catch (error) {
    toastError(error);
  } finally {
    $("#main").removeAttribute("aria-busy");
  }
}

async function start() {
  await loadTexts();
  buildBar();
  document.title = t("list.title");
  await read();
  document.querySelector("#rows a")?.focus();
  document.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...document.querySelectorAll("#rows a")];
    const at = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    links[Math.max(0, Math.min(at, links.length - 1))]?.focus();
    event.preventDefault();
  });
  let last = null;
  new EventSource("/api/stream").addEventListener("news", (event) => {
    const { revisions, model } = JSON.parse(event.data);
    showModel($("#model"), model);
    const now = JSON.stringify([revisions, model?.done]); // how far the model is with one recording changes no row
    if (last !== null && now !== last) read();
    last = now;
  });
}

start();
