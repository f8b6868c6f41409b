// What all pages share: building nodes, texts, times, calls to the server, the bar at the top.
import { icon, setIcon } from "./icons.js";

// ---- nodes

/** A node: el("p", {class: "quiet", onclick: go}, "text", otherNode). Properties that are null or false are left out. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Writes only what changed: a page that is on for a shift must not be rebuilt five times a second. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node, name, value) {
  if (value === null || value === false || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
}

export function show(node, visible) {
  if (node.hidden === visible) node.hidden = !visible;
}

export const $ = (selector) => document.querySelector(selector);

// ---- texts

let texts = {};
let spare = {};
export let language = "en";
let locale = "en"; // with the browser's region, for dates
let languages = [];

async function readTexts(code) {
  const response = await fetch(`/static/texts/${code}.json`);
  return response.ok ? response.json() : {};
}

/** Language: ?lang=, else what was chosen before, else the browser's, else English. Then fills in [data-t] of the page. */
export async function loadTexts() {
  languages = await (await fetch("/static/texts/languages.json")).json();
  const asked = new URLSearchParams(location.search).get("lang");
  const wishes = [
    asked,
    localStorage.getItem("language"),
    ...navigator.languages.map((code) => code.slice(0, 2)),
    "en",
  ];
  language = wishes.find((code) => languages.some((known) => known.code === code));
  if (asked === language) localStorage.setItem("language", language);
  spare = await readTexts("en");
  texts = language === "en" ? spare : await readTexts(language);
  document.documentElement.lang = language;
  locale = navigator.languages.find((code) => code.startsWith(language)) ?? language;
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const node of document.querySelectorAll("[data-t-label]"))
    node.setAttribute("aria-label", t(node.dataset.tLabel));
}

export function hasText(key) {
  return key in texts || key in spare;
}

export function t(key, values = {}) {
  const pattern = texts[key] ?? spare[key] ?? key;
  return pattern.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

export function label(node, text) {
  setAttribute(node, "aria-label", text);
  setAttribute(node, "title", text);
}

// ---- times and numbers

export function clock(iso, seconds = true) {
  const style = { hourCycle: "h23", hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}) };
  return new Date(iso).toLocaleTimeString(locale, style);
}

export function dateTime(iso) {
  return new Date(iso).toLocaleString(locale, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
}

/** "Wednesday, 18 November 2026" */
export function longDate(date) {
  return date.toLocaleDateString(locale, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
}

/** "8 s", "1 min 05 s", "2 h 10 min" */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return t("time.seconds", { s: whole });
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 3600) return t("time.minutes", { m: Math.floor(whole / 60), s: two(whole % 60) });
  return t("time.hours", { h: Math.floor(whole / 3600), m: two(Math.floor(whole / 60) % 60) });
}

/** A running time, "1:05" or "2:10:07" */
export function stopwatch(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export function percent(share) {
  return new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 0 }).format(share);
}

export function decimal(value, digits = 1) {
  return new Intl.NumberFormat(locale, { maximumFractionDigits: digits }).format(value);
}

// ---- the server

export class ServerError extends Error {
  constructor(message, cure, status) {
    super(message);
    this.cure = cure;
    this.status = status;
  }
}

async function answer(request) {
  let response;
  try {
    response = await request;
  } catch {
    throw new ServerError(t("error.no_answer"), t("error.no_answer_cure"), 0);
  }
  if (response.status === 401) location.reload(); // the answer is the page that asks for the token
  const body = await response.json().catch(() => ({}));
  if (!response.ok)
    throw new ServerError(body.error ?? t("error.status", { status: response.status }), body.cure, response.status);
  return body;
}

export const get = (url) => answer(fetch(url, { headers: { Accept: "application/json" } }));

export const post = (url, body = {}) =>
  answer(
    fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Requested-With": "stormpsr" },
      body: JSON.stringify(body),
    }),
  );

// ---- messages at the foot of the page

export function toast(text, { detail = "", bad = false, action = null, seconds = 6 } = {}) {
  const place = $(".toasts");
  const message = el("span", {}, text, detail ? el("small", {}, detail) : null);
  const node = el("div", { class: bad ? "toast bad" : "toast" }, message);
  const remove = () => node.remove();
  if (action) {
    node.append(
      el(
        "button",
        {
          class: "button",
          type: "button",
          onclick: () => {
            remove();
            action.run();
          },
        },
        action.text,
      ),
    );
  }
  place.replaceChildren(node); // one at a time: a pile of messages is not read
  setTimeout(remove, seconds * 1000);
}

export function toastError(error) {
  toast(error.message, { detail: error.cure ?? "", bad: true, seconds: 10 });
}

// ---- the bar at the top

const THEMES = { light: "dark", dark: "light" };

/** Fills <header class="bar">: links to other pages as [name, address, icon], what else can be done, and what one sets once. */
export function buildBar({ links = [], extra = [] } = {}) {
  const nav = el("nav", { "aria-label": t("bar.pages") });
  const link = ([name, href, glyph]) =>
    el(
      "a",
      { class: "button ghost", href, title: t(`bar.${name}`) },
      icon(glyph),
      el("span", { class: "name" }, t(`bar.${name}`)),
    );
  const button = (name, glyph, onclick) => {
    const node = el(
      "button",
      { class: "button ghost", type: "button", onclick },
      icon(glyph),
      el("span", { class: "name" }),
    );
    node.name = name;
    setName(node, t(`bar.${name}`));
    return node;
  };
  const theme = button("theme", "dark", () => {
    localStorage.setItem("theme", THEMES[document.documentElement.dataset.theme]);
    applyTheme();
    showTheme();
  });
  const showTheme = () => {
    const other = THEMES[document.documentElement.dataset.theme];
    setIcon(theme, other);
    setName(theme, t(`bar.theme_${other}`));
  };
  showTheme();
  const next = languages[(languages.findIndex((known) => known.code === language) + 1) % languages.length];
  const speak = button("language", "language", () => {
    localStorage.setItem("language", next.code);
    const url = new URL(location.href);
    url.searchParams.delete("lang");
    location.replace(url); // what is shown comes from the server: nothing is lost
  });
  setName(speak, next.name);
  speak.lang = next.code;
  nav.append(
    ...links.map(link),
    ...extra.map(([name, glyph, onclick]) => button(name, glyph, onclick)),
    theme,
    speak,
  );
  const bar = $("header.bar");
  const menu = el("button", { class: "button ghost menu", type: "button", "aria-expanded": "false" }, icon("menu"));
  label(menu, t("bar.menu"));
  const open = (wanted) => {
    bar.classList.toggle("open", wanted);
    menu.setAttribute("aria-expanded", String(wanted));
  };
  menu.addEventListener("click", () => open(!bar.classList.contains("open")));
  document.addEventListener("click", (event) => !menu.contains(event.target) && open(false));
  document.addEventListener("keydown", (event) => event.key === "Escape" && open(false));
  bar.append(menu, nav);
  return nav;
}

export function setName(button, text) {
  setText(button.querySelector(".name"), text);
  label(button, text);
}

/** Whether what is typed belongs to a field. One in a dialog that was closed has the focus until the screen is drawn next. */
export function isTyping(target) {
  const field = target.closest?.("input, select, textarea");
  return Boolean(field) && (field.closest("dialog")?.open ?? true);
}
