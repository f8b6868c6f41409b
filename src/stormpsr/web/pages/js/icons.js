// Icons on a grid of 24, and the marks of a step's status. Each status has a shape of its own, not only a colour.
const NS = "http://www.w3.org/2000/svg";

const PATHS = {
  alarm: "M12 3 2.5 20h19L12 3zM12 10v4.5M12 17.4v.1",
  arrow: "M4 12h15M13 6l6 6-6 6",
  back: "M20 12H5M11 6l-6 6 6 6",
  camera: "M3 7h4l2-2.5h6L17 7h4v12H3zM12 16.5a3.7 3.7 0 1 0 0-7.4 3.7 3.7 0 0 0 0 7.4z",
  camera_off: "M3 7h4M9 4.5h6L17 7h4v12M3 7v12h15M2.5 2.5l19 19M9 10.5a3.7 3.7 0 0 0 5 5",
  chart: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  check: "M5 12.5l4.8 4.8L19.5 7",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5.3l3.5 2",
  close: "M6 6l12 12M18 6L6 18",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  download: "M12 4v11M7 10.5l5 5 5-5M4 20h16",
  eye: "M2 12s3.7-6.5 10-6.5S22 12 22 12s-3.7 6.5-10 6.5S2 12 2 12zM12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
  flag: "M5 21V4M5 4.5h12l-2.5 4 2.5 4H5",
  forward: "M4 6l8 6-8 6zM14 6v12M19 6v12",
  grid: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  hand: "M8 12V5.5a1.5 1.5 0 0 1 3 0V11M11 11V4a1.5 1.5 0 0 1 3 0v7M14 11V5.5a1.5 1.5 0 0 1 3 0V14c0 4-2.5 7-6 7-2.5 0-4-1-5.5-3.5L3.3 14a1.6 1.6 0 0 1 2.7-1.6L8 15",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.3 9.5a2.7 2.7 0 1 1 3.9 2.4c-.8.4-1.2.9-1.2 1.8M12 16.7v.1",
  language:
    "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM3 12h18M12 3c2.5 2.5 3.7 5.5 3.7 9s-1.2 6.5-3.7 9c-2.5-2.5-3.7-5.5-3.7-9s1.2-6.5 3.7-9z",
  light:
    "M12 16.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  link: "M4.5 9.5a11 11 0 0 1 15 0M7.5 13a6.5 6.5 0 0 1 9 0M10.5 16.5a2.3 2.3 0 0 1 3 0M12 19.5v.1",
  link_off: "M4.5 9.5A11 11 0 0 1 9 7M13 6.6a11 11 0 0 1 6.5 2.9M7.5 13a6.5 6.5 0 0 1 3-1.7M12 19.5v.1M3 3l18 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  minus: "M6 12h12",
  mute: "M4 9.5v5h3.5L12 19V5L7.5 9.5zM16 9.5l5 5M21 9.5l-5 5",
  play: "M7 4.5l12 7.5-12 7.5z",
  plus: "M12 5v14M5 12h14",
  print: "M7 9V3.5h10V9M7 17H4V9h16v8h-3M7 14h10v6.5H7z",
  skip: "M5 17c0-6 3-9 8-9h6M15 4l4 4-4 4",
  sound: "M4 9.5v5h3.5L12 19V5L7.5 9.5zM15.5 9a4.2 4.2 0 0 1 0 6M18.3 6.5a8 8 0 0 1 0 11",
  undo: "M8.5 5L4 9.5 8.5 14M4 9.5h10a5.5 5.5 0 0 1 0 11H9",
  wrong: "M7 7l10 10M17 7L7 17",
};

function svg(tag, attributes) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export function icon(name) {
  const node = svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" });
  node.append(svg("path", { d: PATHS[name] }));
  return node;
}

export function setIcon(node, name) {
  const path = node.querySelector("path");
  if (path.getAttribute("d") !== PATHS[name]) path.setAttribute("d", PATHS[name]);
}

// done: filled disc with a tick; open: ring with the number; next: filled disc with the number; probable: a ring that
// closes; wrong: octagon with a cross; skipped: broken ring with a leap; removed: square with a minus.
const OCTAGON = "M14.6 4h14.8L40 14.6v14.8L29.4 40H14.6L4 29.4V14.6z";

export function mark(status, number, share, isNext) {
  const root = svg("svg", {
    viewBox: "0 0 44 44",
    class: `mark ${status}${isNext ? " next" : ""}`,
    "aria-hidden": "true",
  });
  const glyph = (name) => {
    const inner = svg("path", { d: PATHS[name], class: "glyph", transform: "translate(10 10)" });
    root.append(inner);
  };
  const numeral = () => {
    const text = svg("text", { x: 22, y: 22, class: "numeral" });
    text.textContent = number;
    root.append(text);
  };
  if (status === "done") {
    root.append(svg("circle", { cx: 22, cy: 22, r: 19, class: "solid" }));
    glyph("check");
  } else if (status === "wrong") {
    root.append(svg("path", { d: OCTAGON, class: "solid" }));
    glyph("wrong");
  } else if (status === "skipped") {
    root.append(svg("circle", { cx: 22, cy: 22, r: 18.5, class: "ring broken" }));
    glyph("skip");
  } else if (status === "removed") {
    root.append(svg("rect", { x: 4.5, y: 4.5, width: 35, height: 35, rx: 8, class: "ring" }));
    glyph("minus");
  } else if (status === "probable") {
    root.append(svg("circle", { cx: 22, cy: 22, r: 18, class: "ring rail" }));
    root.append(
      svg("circle", {
        cx: 22,
        cy: 22,
        r: 18,
        class: "ring filling",
        pathLength: 100,
        "stroke-dasharray": `${Math.round(share * 100)} 100`,
        transform: "rotate(-90 22 22)",
      }),
    );
    numeral();
  } else {
    root.append(svg("circle", { cx: 22, cy: 22, r: 18.5, class: isNext ? "solid" : "ring" }));
    numeral();
  }
  return root;
}

export { svg };
