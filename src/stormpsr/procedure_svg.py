"""The states of a procedure drawn as SVG: boxes that show which components are in place, arrows from state to state.

Plain SVG without scripts or fonts of its own; it brings its own background, light or dark as the reader prefers.
"""

from __future__ import annotations

import colorsys
import unicodedata
from collections.abc import Iterator, Sequence
from html import escape

from stormpsr.layered_layout import Box, Line, Placement, layered_layout
from stormpsr.procedure.graph import Change, StateGraph, StateNode
from stormpsr.procedure.model import Procedure, bit_string

_MARGIN = 24.0
_CELL, _CELL_HEIGHT = 12.0, 18.0
_FONT, _SMALL = 13.0, 11.0
_LINE_HEIGHT = 15.0
_GOLDEN_ANGLE = 0.618034  # in turns: hues of neighbours lie far apart

_STYLE = """
  text { font: 11px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .class { font-size: 13px; font-weight: 700 }
  .quiet { fill: #57606a }
  .paper { fill: #ffffff }
  .box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1 }
  .start { stroke: #1f6feb; stroke-width: 2.5 }
  .absent { fill: none; stroke: #afb8c1; stroke-width: 1 }
  .present { stroke: #24292f; stroke-opacity: 0.35; stroke-width: 1 }
  .way { fill: none; stroke: #6e7781; stroke-width: 1.4 }
  .tip { fill: #6e7781 }
  .removal { stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .quiet { fill: #9198a1 } .paper { fill: #0d1117 }
    .box { fill: #161b22; stroke: #6e7681 } .start { stroke: #58a6ff } .absent { stroke: #484f58 }
    .present { stroke: #e6edf3 } .way { stroke: #8b949e } .tip { fill: #8b949e }
  }
""".strip("\n")


def component_colours(procedure: Procedure) -> list[str]:
    """A colour per component: its own, or one that differs from its neighbours'."""
    colours = []
    for k, component in enumerate(procedure.components):
        red, green, blue = colorsys.hls_to_rgb((0.58 + k * _GOLDEN_ANGLE) % 1.0, 0.52 + 0.08 * (k % 3 - 1), 0.5)
        colours.append(component.colour or f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}")
    return colours


def text_width(text: str, size: float) -> float:
    """About how wide a text is; wide characters count twice."""
    return sum((1.0 if unicodedata.east_asian_width(char) in "WF" else 0.56) for char in text) * size


def svg_drawing(procedure: Procedure, graphs: Sequence[StateGraph]) -> str:
    """All graphs below each other, and a legend of the components."""
    colours = component_colours(procedure)
    legend, legend_width, legend_height = _legend(procedure, colours, any(c.removed for g in graphs for c in g.changes))
    body: list[str] = []
    y, width = _MARGIN, legend_width
    for graph in graphs:
        placement = _layout(procedure, graph)
        heading = f"{procedure.title or procedure.name}: {graph.variant.name}"
        body.append(f'<text class="title" x="{_MARGIN:g}" y="{y + 14:g}">{escape(heading)}</text>')
        body += _group(_MARGIN, y + 32, _graph(procedure, graph, placement, colours))
        y += 32 + placement.height + 2 * _MARGIN
        width = max(width, placement.width, text_width(heading, 16))
    body += _group(_MARGIN, y, legend)
    total_width, total_height = width + 2 * _MARGIN, y + legend_height + _MARGIN
    marker = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto" '
        'markerUnits="userSpaceOnUse"><path class="tip" d="M0 0.5 8 4 0 7.5z"/></marker>'
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total_width:.0f}" height="{total_height:.0f}" '
        f'viewBox="0 0 {total_width:.0f} {total_height:.0f}" role="img">',
        f"<title>{escape(procedure.title or procedure.name)}: which assembly state follows which</title>",
        f"<style>\n{_STYLE}\n</style>",
        f"<defs>{marker}</defs>",
        '<rect class="paper" width="100%" height="100%" rx="8"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _group(x: float, y: float, content: Sequence[str]) -> list[str]:
    return [f'<g transform="translate({x:.1f} {y:.1f})">', *content, "</g>"]


# ---------------------------------------------------------------------- one graph
def _node_size(node: StateNode, graph: StateGraph) -> tuple[float, float]:
    """Boxes of a graph are equally wide as far as names allow, so that their cells stand in line."""
    labels = max(text_width(other.label, _FONT) for other in graph.nodes)
    names = max(text_width(other.name or "", _SMALL) for other in graph.nodes)
    width = max(24.0 + labels + _CELL * len(node.bits), 16.0 + names)
    return width, 30.0 + (_LINE_HEIGHT if node.name else 0.0)


def _layout(procedure: Procedure, graph: StateGraph) -> Placement:
    boxes = [Box(layer, *_node_size(node, graph)) for node, layer in zip(graph.nodes, graph.layers, strict=True)]
    lines = []
    for change in graph.changes:
        words = change.words(procedure)
        widest = max(text_width(word, _SMALL) for word in words)
        upper, lower = (change.before, change.after)[:: -1 if change.returns else 1]
        lines.append(Line(upper, lower, 20.0 + widest, _LINE_HEIGHT * len(words)))
    return layered_layout(boxes, lines)


def _graph(procedure: Procedure, graph: StateGraph, placement: Placement, colours: Sequence[str]) -> list[str]:
    drawn = []
    for change, way in zip(graph.changes, placement.lines, strict=True):
        style = "way removal" if change.removed else "way"
        path = _curve(way[::-1] if change.returns else way)
        drawn.append(f'<path class="{style}" d="{path}" marker-end="url(#tip)"/>')
    for change, (x, y) in zip(graph.changes, placement.labels, strict=True):
        drawn += _label(change, change.words(procedure), colours, x, y)
    for place, (node, centre) in enumerate(zip(graph.nodes, placement.boxes, strict=True)):
        drawn += _node(node, _node_size(node, graph), centre, colours, is_start=place == 0)
    return drawn


def _curve(way: Sequence[tuple[float, float]]) -> str:
    """A line that leaves and enters each point vertically."""
    (x, y), rest = way[0], way[1:]
    path = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in rest:
        middle = (y + next_y) / 2
        path.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return "".join(path)


def _label(change: Change, words: Sequence[str], colours: Sequence[str], x: float, y: float) -> Iterator[str]:
    top = y - _LINE_HEIGHT * len(words) / 2
    for index, (k, word) in enumerate(zip((*change.removed, *change.added), words, strict=True)):
        base = top + _LINE_HEIGHT * index
        square = f'x="{x + 6:.1f}" y="{base + 4:.1f}" width="8" height="8" rx="1.5"'
        yield f'<rect class="present" {square} fill="{colours[k]}"/>'
        yield f'<text x="{x + 18:.1f}" y="{base + 11.5:.1f}">{escape(word.replace("-", "−", 1))}</text>'


def _node(
    node: StateNode,
    size: tuple[float, float],
    centre: tuple[float, float],
    colours: Sequence[str],
    *,
    is_start: bool,
) -> Iterator[str]:
    width, height = size
    x, y = centre[0] - width / 2, centre[1] - height / 2
    style = "box start" if is_start else "box"
    yield "<g>"
    yield f"<title>{escape(f'{node.label} {bit_string(node.bits)}')}</title>"
    yield f'<rect class="{style}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="6"/>'
    yield f'<text class="class" x="{x + 9:.1f}" y="{y + 19.5:.1f}">{node.label}</text>'
    cells = x + width - 8 - _CELL * len(node.bits)
    for k, bit in enumerate(node.bits):
        style = f'class="present" fill="{colours[k]}"' if bit else 'class="absent"'
        extent = f'width="{_CELL - 2:g}" height="{_CELL_HEIGHT - 2:g}" rx="2"'
        yield f'<rect {style} x="{cells + _CELL * k + 1:.1f}" y="{y + 7:.1f}" {extent}/>'
    if node.name:
        yield f'<text class="quiet" x="{x + 9:.1f}" y="{y + 39:.1f}">{escape(node.name)}</text>'
    yield "</g>"


# ---------------------------------------------------------------------- legend
def _legend(procedure: Procedure, colours: Sequence[str], has_removals: bool) -> tuple[list[str], float, float]:
    """(what to draw, its width, its height): components in columns of at most six, in the order of their cells."""
    n_rows = min(6, procedure.n_components)
    drawn, x, widest = [], 0.0, 0.0
    for k, component in enumerate(procedure.components):
        if k and k % n_rows == 0:
            x, widest = x + widest + 28, 0.0
        y = 18.0 * (k % n_rows)
        drawn.append(
            f'<rect class="present" x="{x:.1f}" y="{y:.1f}" width="10" height="14" rx="2" fill="{colours[k]}"/>'
        )
        drawn.append(f'<text x="{x + 16:.1f}" y="{y + 11:.1f}">{k}  {escape(component.name)}</text>')
        widest = max(widest, 16 + text_width(f"{k}  {component.name}", _SMALL))
    notes = "A box is a state: its class and, left to right, the components in place. Blue frame: the start."
    if has_removals:
        notes += " Dashed: parts are removed."
    height = 18.0 * n_rows + 18
    drawn.append(f'<text class="quiet" x="0" y="{height:.1f}">{notes}</text>')
    return drawn, max(x + widest, text_width(notes, _SMALL)), height
