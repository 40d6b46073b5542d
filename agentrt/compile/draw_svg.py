"""A Plan as a picture: one SVG file that needs nothing beside it.

Made to be read in a page, light or dark: it brings its own ground, and turns dark where the reader asked for dark. Every
box and line has a title, shown when the pointer rests on it, with what was too long to draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from agentrt.compile.draw_colours import colours_of
from agentrt.compile.draw_layout import Curve, Frame, Layout, Link, Size, lay_out
from agentrt.compile.draw_scene import Box, BoxKind, Line, LineKind, Scene, scene_of
from agentrt.compile.draw_svg_parts import (
    CELL_EM,
    FAINT,
    NAME_PX,
    PAPER,
    PILL_PX,
    STREAM,
    STYLE,
    TEXT_PX,
    Colour,
    attribute,
    curve_path,
    legend_of,
    markers,
    rectangle,
    text,
    tinted,
)
from agentrt.compile.draw_text import condition_label, num_cells, shortened
from agentrt.compile.plan import Plan

_MAX_NAME_CELLS, _MAX_TEXT_CELLS, _MAX_PILL_CELLS, _MAX_TITLE_CELLS = 30, 34, 28, 40
_LINE_PX = 15.0
_MARGIN_PX = 24.0


def to_svg(plan: Plan, *, show_pruned: bool = False) -> str:
    """Return ``plan`` as an SVG; ``show_pruned`` adds what was left out, in grey.

    Raises:
        UsageError: pygraphviz is not installed, or the Plan is too large to be laid out (see ``lay_out``).
    """
    scene = scene_of(plan, show_pruned=show_pruned)
    sizes = {box.id: _size(box) for box in scene.boxes.values()}
    links = [
        Link(line.source, line.target, _pill_size(line), ranks=line.kind is not LineKind.SAME) for line in scene.lines
    ]
    return _Picture(scene, lay_out(sizes, links, scene.units)).svg()


def _size(box: Box) -> Size:
    widths = [num_cells(_name(box)) * NAME_PX, *(num_cells(line) * TEXT_PX for line in _lines(box))]
    return Size(round(max(widths) * CELL_EM) + 26, _LINE_PX * len(widths) + 14)


def _name(box: Box) -> str:
    return shortened(box.name, _MAX_NAME_CELLS)


def _lines(box: Box) -> list[str]:
    """Return what stands below the name."""
    condition = condition_label(box.condition, _MAX_TEXT_CELLS)
    return [shortened(line, _MAX_TEXT_CELLS) for line in (box.does, condition, *_wrapped(box.notes)) if line]


def _wrapped(notes: Iterable[str]) -> Iterator[str]:
    line = ""
    for note in notes:
        longer = f"{line} · {note}" if line else note
        if line and num_cells(longer) > _MAX_TEXT_CELLS:
            yield line
            longer = note
        line = longer
    yield line


def _pill(line: Line) -> str:
    """Return what stands on a line."""
    return condition_label(line.condition, _MAX_PILL_CELLS)


def _pill_size(line: Line) -> Size | None:
    pill = _pill(line)
    return Size(round(num_cells(pill) * PILL_PX * CELL_EM) + 16, 18) if pill else None


@dataclass(frozen=True, slots=True)
class _Picture:
    scene: Scene
    layout: Layout

    def svg(self) -> str:
        hues = colours_of(self.scene.families)
        title, counts = shortened(self.scene.title, _MAX_TITLE_CELLS), self.scene.counts
        counts_x = _MARGIN_PX + (num_cells(title) * NAME_PX + 2 * TEXT_PX) * CELL_EM
        least = max(400.0, counts_x + num_cells(counts) * TEXT_PX * CELL_EM - _MARGIN_PX)
        inner = max(self.layout.size.width, least)
        legend = legend_of(self.scene, hues, _MARGIN_PX, _MARGIN_PX + 32, inner)
        top = _MARGIN_PX + 32 + legend.height
        width, height = inner + 2 * _MARGIN_PX, top + self.layout.size.height + _MARGIN_PX
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
            f' height="{height:.0f}" font-family="monospace" role="img">',
            f"<title>{escape(f'{self.scene.title}: {counts}')}</title>",
            f"<style>{STYLE}</style>",
            markers(),
            f'<rect class="paper" width="100%" height="100%" fill="{PAPER}"/>',
            text(_MARGIN_PX, _MARGIN_PX + 10, title, px=NAME_PX, is_bold=True, is_centred=False),
            text(counts_x, _MARGIN_PX + 10, counts, px=TEXT_PX, colour="soft", is_centred=False),
            *legend.parts,
            f'<g transform="translate({(width - self.layout.size.width) / 2:.1f} {top:.1f})">',
        ]
        parts += [_unit(frame) for frame in self.layout.groups]
        # First what matters least, so that what matters more crosses over it.
        drawn = list(zip(self.scene.lines, self.layout.curves, self.layout.labels, strict=True))
        for line, curves, pill in sorted(drawn, key=lambda item: item[0].kind is not LineKind.VALUE):
            parts.append(self._line(line, curves, pill))
        for box in self.scene.boxes.values():
            parts.append(_box(box, self.layout.boxes[box.id], hues.get(box.family)))
        return "\n".join([*parts, "</g>", "</svg>"]) + "\n"

    def _line(self, line: Line, curves: tuple[Curve, ...], pill: Frame | None) -> str:
        source, target = self.scene.boxes[line.source], self.scene.boxes[line.target]
        parts = [
            f'<g class="line" data-kind="{line.kind.value}" {attribute("data-source", source.name)}'
            f" {attribute('data-target', target.name)}>",
            f"<title>{escape(line.full)}</title>",
            *(curve_path(line, curve, has_tip=curve is curves[-1]) for curve in curves),
        ]
        if pill is not None:
            hue = STREAM if line.stream else "#8c959f"
            rim = f'class="pill" fill="{hue}" fill-opacity="0.08" stroke="{hue}"'
            parts.append(rectangle(pill, radius=9, attributes=f'class="paper" fill="{PAPER}"'))
            parts.append(rectangle(pill, radius=9, attributes=rim))
            parts.append(text(pill.x, pill.y + 3.5, _pill(line), px=PILL_PX, colour="ink"))
        return "".join([*parts, "</g>"])


def _unit(frame: Frame) -> str:
    rim = f'class="unit" fill="none" stroke="{FAINT}" stroke-dasharray="2 3"'
    title = "<title>scheduled as one unit</title>"
    return f"<g>{title}{rectangle(frame, radius=10, attributes=rim)}</g>"


def _box(box: Box, frame: Frame, hue: str | None) -> str:
    is_action = box.kind is BoxKind.ACTION
    radius = 6.0 if is_action else min(frame.height / 2, 16.0)
    if hue is not None:
        look = tinted(hue)
    else:
        look = f'fill="{FAINT}" fill-opacity="0.08" stroke="{FAINT}"' + (' stroke-dasharray="4 3"' * box.is_pruned)
    full = escape("\n".join(box.full))
    parts = [
        f'<g class="box" data-kind="{box.kind.value}" {attribute("data-name", box.name)}>',
        f"<title>{full}</title>",
        rectangle(frame, radius=radius, attributes=f'class="paper" fill="{PAPER}"'),
        rectangle(frame, radius=radius, attributes=f'class="rim" {look}'),
    ]
    if box.is_nested and not box.is_pruned:
        inside = Frame(frame.x, frame.y, frame.width - 7, frame.height - 7)
        parts.append(rectangle(inside, radius=3.5, attributes=f'fill="none" stroke="{hue or FAINT}"'))
    if box.is_human:
        band = Frame(frame.left + 4, frame.y, 4, frame.height - 12)
        parts.append(rectangle(band, radius=2, attributes=f'fill="{hue or FAINT}"'))
    y = frame.top + 7 + _LINE_PX - 4
    colours: tuple[Colour, Colour] = ("faint", "faint") if box.is_pruned else ("ink", "soft")
    parts.append(text(frame.x, y, _name(box), px=NAME_PX, colour=colours[0], is_bold=is_action))
    for index, line in enumerate(_lines(box), start=1):
        parts.append(text(frame.x, y + index * _LINE_PX, line, px=TEXT_PX, colour=colours[1]))
    return "".join([*parts, "</g>"])
