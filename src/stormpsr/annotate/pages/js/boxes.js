// The box of the frame on the image: drawn, moved and resized with mouse or finger; the model's proposal beside it.
import { setAttribute } from "./shared.js";
import { svg } from "./icons.js";

const LEAST = 3; // pixels of the image below which a drag is a slip
const CORNERS = { nw: [0, 0], ne: [1, 0], sw: [0, 1], se: [1, 1] };

export class Boxes {
  constructor(overlay, picture, about, onDraw) {
    this.overlay = overlay;
    this.about = about;
    this.onDraw = onDraw;
    this.box = null; // x, y, width, height
    this.held = null;
    setAttribute(overlay, "viewBox", `0 0 ${about.width} ${about.height}`);
    setAttribute(overlay, "preserveAspectRatio", "xMidYMid meet");
    picture.style.setProperty("--ratio", `${about.width} / ${about.height}`);
    this.proposed = svg("rect", { class: "proposed", hidden: "" });
    this.halo = svg("rect", { class: "halo" });
    this.rect = svg("rect", { class: "own" });
    this.handles = Object.keys(CORNERS).map((name) => svg("circle", { class: `handle ${name}`, "data-corner": name }));
    overlay.append(this.proposed, this.halo, this.rect, ...this.handles);
    if (!about.read_only) this.listen();
  }

  show(frame, box, proposal, isWrong) {
    this.frame = frame;
    if (this.held) return;
    this.place(box ? box.slice(0, 4) : null);
    this.rect.classList.toggle("filled", Boolean(box) && !box[4]);
    this.rect.classList.toggle("wrong", isWrong);
    this.proposed.classList.toggle("none", !proposal);
    if (proposal) for (const [i, name] of ["x", "y", "width", "height"].entries()) setAttribute(this.proposed, name, proposal[i]);
  }

  place(box) {
    this.box = box;
    for (const node of [this.halo, this.rect, ...this.handles]) node.classList.toggle("none", !box);
    if (!box) return;
    const [x, y, width, height] = box;
    for (const node of [this.halo, this.rect])
      for (const [name, value] of Object.entries({ x, y, width, height })) setAttribute(node, name, value);
    const radius = Math.max(this.about.width, this.about.height) / 110;
    for (const node of this.handles) {
      const [right, low] = CORNERS[node.dataset.corner];
      setAttribute(node, "cx", x + right * width);
      setAttribute(node, "cy", y + low * height);
      setAttribute(node, "r", radius);
    }
  }

  /** A point of the screen in pixels of the image. */
  point(event) {
    const found = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.overlay.getScreenCTM().inverse());
    const within = (value, most) => Math.max(0, Math.min(Math.round(value * 10) / 10, most));
    return [within(found.x, this.about.width), within(found.y, this.about.height)];
  }

  listen() {
    const { overlay } = this;
    overlay.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      const at = this.point(event);
      const corner = event.target.dataset.corner;
      if (corner && this.box) {
        const [right, low] = CORNERS[corner];
        const [x, y, width, height] = this.box;
        this.held = { kind: "draw", from: [x + (1 - right) * width, y + (1 - low) * height], before: this.box };
      } else if (event.target === this.rect && this.box) this.held = { kind: "move", from: at, before: this.box };
      else this.held = { kind: "draw", from: at, before: this.box };
      this.held.frame = this.frame; // on which it is drawn, wherever somebody goes meanwhile
      overlay.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    overlay.addEventListener("pointermove", (event) => {
      if (!this.held) return;
      const [x, y] = this.point(event);
      const { kind, from, before } = this.held;
      if (kind === "move") {
        const [left, top, width, height] = before;
        const dx = Math.max(-left, Math.min(x - from[0], this.about.width - left - width));
        const dy = Math.max(-top, Math.min(y - from[1], this.about.height - top - height));
        this.place([left + dx, top + dy, width, height]);
      } else this.place([Math.min(x, from[0]), Math.min(y, from[1]), Math.abs(x - from[0]), Math.abs(y - from[1])]);
      this.held.moved = true;
    });
    overlay.addEventListener("pointerup", () => {
      const { held } = this;
      this.held = null;
      if (!held?.moved) return;
      if (this.box[2] < LEAST || this.box[3] < LEAST) return this.place(held.before);
      return this.onDraw(this.box.map((side) => Math.round(side * 100) / 100), held.frame);
    });
    overlay.addEventListener("pointercancel", () => {
      if (this.held) this.place(this.held.before);
      this.held = null;
    });
  }
}
