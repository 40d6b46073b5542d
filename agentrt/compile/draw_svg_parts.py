"""The pieces an SVG picture is made of, as text: rectangles, texts, lines with tips, the legend.

Colours are written as attributes, which every program that shows SVG knows; classes are for the style that turns a picture
dark, which some do not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from agentrt.compile.draw_layout import Curve, Frame
from agentrt.compile.draw_scene import Line, LineKind, Scene
from agentrt.compile.draw_text import num_cells

CELL_EM = 0.61
"""Width of a cell of a monospace font, in font sizes; the common ones have 0.55 to 0.602."""
NAME_PX, TEXT_PX, PILL_PX = 13.0, 11.0, 10.0
PAPER, FAINT = "#ffffff", "#8c959f"
STREAM = "#0d9fb8"
_LINE_COLOUR, _VALUE_COLOUR = "#6e7781", "#afb8c1"
_LEGEND_ROW_PX, _LEGEND_GAP_PX = 20.0, 18.0

STYLE = """
@media (prefers-color-scheme: dark) {
.paper { fill: #12161c } .ink { fill: #e8edf2 } .soft { fill: #a9b4c0 }
.stroke-line { stroke: #8b98a5 } .tip-line { fill: #8b98a5 }
.stroke-value { stroke: #56626e } .tip-value { fill: #56626e }
}
""".strip()

Colour = Literal["ink", "soft", "faint"]
_TEXT_COLOURS: dict[Colour, str] = {"ink": "#1f2328", "soft": "#57606a", "faint": FAINT}
_Look = Literal["line", "value", "stream"]
_COLOURS: dict[_Look, str] = {"line": _LINE_COLOUR, "value": _VALUE_COLOUR, "stream": STREAM}


def markers() -> str:
    """Return the tips of lines, one of each colour."""
    tips = (
        f'<marker id="tip-{look}" viewBox="0 0 10 10" refX="9.5" refY="5" markerWidth="8" markerHeight="8"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path class="tip-{look}" d="M0 1 L10 5 L0 9 z"'
        f' fill="{colour}"/></marker>'
        for look, colour in _COLOURS.items()
    )
    return f"<defs>{''.join(tips)}</defs>"


def rectangle(frame: Frame, *, radius: float, attributes: str) -> str:
    return (
        f'<rect x="{frame.left:.1f}" y="{frame.top:.1f}" width="{frame.width:.1f}" height="{frame.height:.1f}"'
        f' rx="{radius:g}" {attributes}/>'
    )


def text(
    x: float,
    y: float,
    content: str,
    *,
    px: float,
    colour: Colour = "ink",
    is_bold: bool = False,
    is_centred: bool = True,
) -> str:
    """Return a text; its baseline is at ``y``, and ``x`` is its middle or its left end."""
    fill = _TEXT_COLOURS[colour]
    weight = ' font-weight="bold"' if is_bold else ""
    anchor = ' text-anchor="middle"' if is_centred else ""
    return (
        f'<text class="{colour}" x="{x:.1f}" y="{y:.1f}" font-size="{px:g}" fill="{fill}"{weight}{anchor}>'
        f"{escape(content)}</text>"
    )


def curve_path(line: Line, curve: Curve, *, has_tip: bool = True) -> str:
    """Return one piece of a line, in the look of its kind."""
    (x, y), *rest = curve
    pieces = [rest[index : index + 3] for index in range(0, len(rest), 3)]
    bends = " ".join("C" + " ".join(f"{x:.2f} {y:.2f}" for x, y in piece) for piece in pieces)
    look = _look(line)
    width = 2.5 if line.stream else 1.0 if look == "value" else 1.3
    dashes = {LineKind.ORDER: "6 4", LineKind.SAME: "2 4"}.get(line.kind, "")
    return (
        f'<path class="stroke-{look}" d="M{x:.2f} {y:.2f} {bends}" fill="none" stroke="{_COLOURS[look]}"'
        f' stroke-width="{width:g}"'
        + (f' stroke-dasharray="{dashes}"' if dashes else "")
        + (f' marker-end="url(#tip-{look})"' if has_tip else "")
        + "/>"
    )


def _look(line: Line) -> _Look:
    if line.is_pruned or line.kind is LineKind.VALUE:
        return "value"
    return "stream" if line.stream else "line"


@dataclass(frozen=True, slots=True)
class Legend:
    parts: tuple[str, ...]
    height: float


def legend_of(scene: Scene, hues: dict[str, str], x: float, y: float, width: float) -> Legend:
    """Return the legend in rows no wider than ``width``: whom the colours stand for, and which lines there are."""
    parts: list[str] = []
    right, row = x, 0
    for name, sample in [*_colour_samples(hues), *_line_samples(scene)]:
        entry_width = 26 + num_cells(name) * TEXT_PX * CELL_EM
        if right > x and right + entry_width > x + width:
            right, row = x, row + 1
        top = y + row * _LEGEND_ROW_PX
        parts.append(f'<g transform="translate({right:.1f} {top:.1f})">{sample}')
        parts.append(text(26, 4, name, px=TEXT_PX, colour="soft", is_centred=False) + "</g>")
        right += entry_width + _LEGEND_GAP_PX
    return Legend(tuple(parts), (row + 1) * _LEGEND_ROW_PX if parts else 0.0)


def _colour_samples(hues: dict[str, str]) -> Iterator[tuple[str, str]]:
    for family, hue in hues.items():
        yield family, rectangle(Frame(10, 0, 18, 12), radius=3, attributes=f'class="sample" {tinted(hue)}')


def _line_samples(scene: Scene) -> Iterable[tuple[str, str]]:
    samples = {
        "reads": Line("", "", LineKind.READS),
        "waits, reads nothing": Line("", "", LineKind.ORDER),
        "from the first token": Line("", "", LineKind.READS, stream=True),
        "same as": Line("", "", LineKind.SAME, is_pruned=True),
    }
    shown = {(line.kind, line.stream) for line in scene.lines}
    for name, line in samples.items():
        if (line.kind, line.stream) in shown:
            yield name, curve_path(line, ((0, 0), (7, 0), (13, 0), (20, 0)))


def tinted(hue: str) -> str:
    """Return the attributes of an area with a rim of its hue."""
    return f'fill="{hue}" fill-opacity="0.13" stroke="{hue}" stroke-width="1.5"'


def attribute(name: str, value: str) -> str:
    return f"{name}={quoteattr(value)}"
