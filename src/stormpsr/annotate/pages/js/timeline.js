// One row per component over time: what is labelled, what the model proposes, what is odd; and where we are.
import { icon, svg } from "./icons.js";
import { el, setAttribute, stopwatch, t } from "./shared.js";

const VALUES = { 1: "correct", 0: "absent", "-1": "wrong" };
const DRAG_PIXELS = 4;
const TICK_PIXELS = 50; // that the time at a tick needs
const LEAST_FRAMES = 40; // that are shown at once
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 3600];

export class Timeline {
  constructor(root, about, handlers) {
    this.about = about;
    this.handlers = handlers;
    this.last = Math.max(1, about.n_frames - 1);
    this.first = 0; // of the frames that are shown
    this.span = this.last + 1; // how many they are
    this.at = 0; // where we are
    this.root = root;
    this.heads = [];
    this.tracks = [];
    this.ruler = this.row("ruler", el("span", { class: "quiet" }, ""));
    about.components.forEach((component, k) => {
      const key = handlers.componentKey(k).toUpperCase();
      const value = el("span", { class: "value" });
      const head = el(
        "button",
        { class: "head", type: "button", title: t("do.set"), onclick: () => { handlers.onSet(k); head.blur(); } },
        el("kbd", {}, key || "–"),
        el("span", { class: "name" }, component.name),
        value,
      );
      this.heads.push({ head, value, bit: null, key: head.querySelector("kbd") });
      this.tracks.push(this.row("component", head));
    });
    this.boxRow = this.row("boxes", el("span", { class: "head" }, el("span", { class: "name" }, t("time.boxes"))));
    this.unsureRow = about.has_model
      ? this.row("unsure", el("span", { class: "head" }, el("span", { class: "name" }, t("time.unsure"))))
      : null;
    this.playhead = el("div", { class: "playhead", "aria-hidden": "true" });
    this.until = el("div", { class: "labelled", "aria-hidden": "true" });
    const layer = el("div", { class: "layer" }, this.until, this.playhead);
    root.append(layer);
    this.layer = layer;
    this.drawRuler();
    this.listen();
  }

  row(kind, head) {
    const track = svg("svg", { class: "track", preserveAspectRatio: "none" });
    this.root.append(el("div", { class: `line ${kind}` }, head, track));
    return track;
  }

  share(frame) {
    return (100 * (frame - this.first)) / this.span;
  }

  x(frame) {
    return `${this.share(frame).toFixed(4)}%`;
  }

  width(frames) {
    return `${((100 * frames) / this.span).toFixed(4)}%`;
  }

  drawRuler() {
    const [from, to] = [this.handlers.seconds(this.first), this.handlers.seconds(Math.min(this.first + this.span, this.last))];
    const whole = Math.max(to - from, 1e-9);
    const most = Math.max(2, Math.min(12, Math.floor((this.ruler.clientWidth || 720) / TICK_PIXELS)));
    const step = TICKS.find((seconds) => whole / seconds <= most) ?? 7200;
    const nodes = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const share = `${((100 * (at - from)) / whole).toFixed(3)}%`;
      const text = svg("text", { x: share, y: "11", dx: "3", class: "tick-text" });
      text.textContent = stopwatch(at);
      nodes.push(svg("line", { x1: share, x2: share, y1: "60%", y2: "100%", class: "tick" }), text);
    }
    this.ruler.replaceChildren(...nodes);
  }

  /** Shows fewer frames around where we are, or more: by a factor of two. */
  zoom(direction) {
    const whole = this.last + 1;
    const kept = (this.at - this.first) / this.span; // what we look at stays where it is
    this.span = Math.max(Math.min(LEAST_FRAMES, whole), Math.min(whole, Math.round(this.span / 2 ** direction)));
    this.scrollTo(this.at - kept * this.span);
  }

  scrollTo(first) {
    this.first = Math.round(Math.max(0, Math.min(first, this.last + 1 - this.span)));
    this.root.dataset.span = this.span;
    this.drawRuler();
    if (this.doc) this.showDocument(this.doc, this.proposed);
    if (this.proposals) this.showProposals(this.proposals);
    this.showPlayhead();
  }

  showPlayhead() {
    this.playhead.style.left = `${this.share(this.at + 0.5)}%`;
  }

  /** The keys of components have changed. */
  showKeys() {
    this.heads.forEach(({ key }, k) => (key.textContent = this.handlers.componentKey(k).toUpperCase() || "–"));
  }

  /** The stretches of a component: [first, end, value] */
  stretches(states, k) {
    const found = [];
    for (const [frame, ...bits] of states)
      if (!found.length || found.at(-1)[2] !== bits[k]) found.push([frame, this.last + 1, bits[k]]);
    for (let i = 0; i + 1 < found.length; i++) found[i][1] = found[i + 1][0];
    return found;
  }

  showDocument(doc, proposed) {
    this.doc = doc;
    this.proposed = proposed;
    this.tracks.forEach((track, k) => {
      const nodes = [];
      for (const [first, end, value] of this.stretches(doc.states, k)) {
        if (value !== 0)
          nodes.push(svg("rect", { x: this.x(first), width: this.width(end - first), y: "12%", height: "76%", class: VALUES[value] }));
        if (first > 0)
          nodes.push(svg("rect", { x: this.x(first), width: "2", y: "0", height: "100%", class: "edge", "data-frame": first, "data-component": k }));
      }
      for (const step of proposed.filter((one) => one.component === k))
        nodes.push(this.flag(step));
      for (const problem of doc.problems.filter((one) => one.component === k))
        nodes.push(this.sign(problem));
      track.replaceChildren(...nodes);
    });
    const boxes = Object.entries(doc.boxes).map(([frame, box]) =>
      svg("rect", { x: this.x(Number(frame)), width: `max(${this.width(1)}, 1px)`, y: box[4] ? "10%" : "30%", height: box[4] ? "80%" : "40%", class: box[4] ? "key" : "filled" }),
    );
    this.boxRow.replaceChildren(...boxes.slice(0, 20000));
    this.until.style.width = `${Math.max(0, Math.min(this.share(doc.labelled_until), 100))}%`;
  }

  flag(step) {
    const group = svg("svg", { x: this.x(step.frame), y: "0", width: "14", height: "100%", overflow: "visible" });
    group.append(svg("path", { d: "M0 40V1h9l-3 4 3 4H0", class: `flag ${VALUES[step.value]}` }));
    return group;
  }

  sign(problem) {
    const group = svg("svg", { x: this.x(problem.frame), y: "50%", width: "1", height: "1", overflow: "visible" });
    group.append(svg("path", { d: "M0-7l7 7-7 7-7-7z", class: problem.kept ? "odd kept" : "odd" }));
    return group;
  }

  showProposals(proposals) {
    this.proposals = proposals;
    if (!this.unsureRow) return;
    const most = Math.max(1e-9, ...proposals.unsure.map(([, , share]) => share));
    this.unsureRow.replaceChildren(
      ...proposals.unsure.map(([first, last, share]) => {
        const height = 2 + (14 * share) / most;
        return svg("rect", { x: this.x(first), width: this.width(last - first + 1), y: String(18 - height), height: String(height), class: "share" });
      }),
    );
  }

  showFrame(frame, bits) {
    this.at = frame;
    if (frame < this.first || frame >= this.first + this.span) this.scrollTo(frame - this.span / 2);
    else this.showPlayhead();
    bits.forEach((bit, k) => {
      const head = this.heads[k];
      if (head.bit === bit) return;
      head.bit = bit;
      setAttribute(head.value, "class", `value ${VALUES[bit]}`);
      head.value.replaceChildren(...(bit === 0 ? [] : [icon(bit === 1 ? "check" : "wrong")]));
      setAttribute(head.head, "aria-label", `${this.about.components[k].name}: ${t(`value.${VALUES[bit]}`)}`);
    });
  }

  /** Where on the clock a point of the screen lies. */
  frameAt(clientX) {
    const box = this.layer.getBoundingClientRect();
    const share = (clientX - box.left) / box.width;
    return Math.max(0, Math.min(this.last, this.first + Math.floor(share * this.span)));
  }

  listen() {
    let held = null;
    this.root.addEventListener("pointerdown", (event) => {
      if (event.target.closest(".head") || event.button !== 0) return;
      const edge = event.target.closest(".edge");
      held = { edge, from: event.clientX };
      this.root.setPointerCapture(event.pointerId);
      if (!edge) this.handlers.onSeek(this.frameAt(event.clientX));
      else this.handlers.onSeek(Number(edge.dataset.frame));
      event.preventDefault();
    });
    this.root.addEventListener("pointermove", (event) => {
      if (held && (!held.edge || Math.abs(event.clientX - held.from) > DRAG_PIXELS)) this.handlers.onSeek(this.frameAt(event.clientX));
    });
    this.root.addEventListener("pointerup", (event) => {
      if (held?.edge && Math.abs(event.clientX - held.from) > DRAG_PIXELS) {
        const { frame, component } = held.edge.dataset;
        const to = this.handlers.frameNear(this.frameAt(event.clientX));
        if (to !== Number(frame)) this.handlers.onMove(Number(component), Number(frame), to);
      }
      held = null;
    });
    this.root.addEventListener("pointercancel", () => (held = null));
    this.root.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(Math.sign(-event.deltaY));
    }, { passive: false });
  }
}

