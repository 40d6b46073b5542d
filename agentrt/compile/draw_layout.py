"""Where the boxes and lines of a picture lie. The work is Graphviz's (``dot``), called through pygraphviz.

Its method (Gansner, Koutsofios, North and Vo, "A Technique for Drawing Directed Graphs", 1993) ranks boxes so that edges
point down, orders each rank for few crossings, and routes edges around boxes. The wheels of pygraphviz bring the library
with them, so no program need be installed.

Graphviz sees sizes alone, no texts: a name cannot act on it, and as it measures no fonts, the same Plan is laid out the
same on every machine. A label on a line is a small box of its own, through which the line runs, so that it covers nothing.

The work grows with the square of the graph and faster; it is done in C and cannot be interrupted. Hence MAX_PARTS: 300
actions with 900 edges took 2.5 s, 1,000 with 3,000 took 80 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrt.errors import UsageError

MAX_PARTS = 1200
"""Boxes, labels and lines that are laid out."""
_POINTS_PER_INCH = 72.0


@dataclass(frozen=True, slots=True)
class Size:
    """In pixels, as everything here."""

    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Frame:
    """A rectangle, by its centre."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def top(self) -> float:
        return self.y - self.height / 2


@dataclass(frozen=True, slots=True)
class Link:
    """A line to be routed. ``label``: the size of what stands on it. Without ``ranks`` its ends may lie in any order."""

    source: str
    target: str
    label: Size | None = None
    ranks: bool = True


Curve = tuple[tuple[float, float], ...]
"""A start, then three points for each cubic Bézier piece."""


@dataclass(frozen=True, slots=True)
class Layout:
    """``curves`` and ``labels`` follow the order of the links; a line through a label has two curves."""

    size: Size
    boxes: Mapping[str, Frame]
    curves: tuple[tuple[Curve, ...], ...]
    labels: tuple[Frame | None, ...]
    groups: tuple[Frame, ...]


def lay_out(sizes: Mapping[str, Size], links: Sequence[Link], groups: Iterable[Sequence[str]] = ()) -> Layout:
    """Place boxes of the given sizes, from top to bottom, and route the links; the origin is the top left corner.

    ``groups`` are boxes to be framed together.

    Raises:
        UsageError: pygraphviz is not installed, or there is more than can be laid out in good time.
    """
    num_parts = len(sizes) + len(links) + sum(link.label is not None for link in links)
    if num_parts > MAX_PARTS:
        message = f"a picture with {num_parts} boxes and lines cannot be laid out in good time (limit: {MAX_PARTS})"
        raise UsageError(f"{message}; --dot or --mermaid writes it as text, for a program of your choice")
    try:
        from pygraphviz import AGraph
    except ImportError as error:
        raise UsageError("pictures need pygraphviz: pip install 'agentrt[draw]'") from error
    groups = [list(group) for group in groups]
    graph: Any = AGraph(string=_request(sizes, links, groups))  # type: ignore[no-untyped-call]
    try:
        graph.layout(prog="dot")
        return _answer(graph, sizes, links, groups)
    finally:
        graph.close()


def _request(sizes: Mapping[str, Size], links: Sequence[Link], groups: Sequence[Sequence[str]]) -> str:
    lines = [
        "digraph {",
        "graph [rankdir=TB, newrank=true, nodesep=0.28, ranksep=0.5, splines=spline];",
        'node [shape=box, fixedsize=true, label=""];',
        "edge [dir=none];",
    ]
    boxes = {**sizes, **{_label_id(index): link.label for index, link in enumerate(links) if link.label is not None}}
    for name, size in boxes.items():
        width, height = size.width / _POINTS_PER_INCH, size.height / _POINTS_PER_INCH
        lines.append(f"{name} [width={width:.4f}, height={height:.4f}];")
    for index, link in enumerate(links):
        ranks = "" if link.ranks else ", constraint=false"
        for key, source, target in _segments(index, link):
            lines.append(f"{source} -> {target} [key={key}{ranks}];")
    for index, group in enumerate(groups):
        # A label outside of the frame that its line is in would pull the frame apart.
        inside = [_label_id(i) for i, k in enumerate(links) if k.label and {k.source, k.target} <= set(group)]
        lines.append(f"subgraph cluster_{index} {{ margin=10; {'; '.join([*group, *inside])}; }}")
    return "\n".join([*lines, "}"])


def _answer(graph: Any, sizes: Mapping[str, Size], links: Sequence[Link], groups: Sequence[Sequence[str]]) -> Layout:
    _, _, width, height = _numbers(graph.graph_attr["bb"])

    def frame(name: str, size: Size) -> Frame:
        x, y = _numbers(graph.get_node(name).attr["pos"])
        return Frame(x, height - y, size.width, size.height)

    boxes = {name: frame(name, size) for name, size in sizes.items()}
    labels = tuple(
        None if link.label is None else frame(_label_id(index), link.label) for index, link in enumerate(links)
    )
    curves = tuple(
        tuple(
            _curve(graph.get_edge(source, target, key=key).attr["pos"], height)
            for key, source, target in _segments(index, link)
        )
        for index, link in enumerate(links)
    )
    framed = []
    for index in range(len(groups)):
        left, bottom, right, top = _numbers(graph.get_subgraph(f"cluster_{index}").graph_attr["bb"])
        framed.append(Frame((left + right) / 2, height - (bottom + top) / 2, right - left, top - bottom))
    return Layout(Size(width, height), boxes, curves, labels, tuple(framed))


def _segments(index: int, link: Link) -> list[tuple[str, str, str]]:
    """Return the key, the source and the target of each piece that a link is routed in."""
    if link.label is None:
        return [(f"k{index}", link.source, link.target)]
    middle = _label_id(index)
    return [(f"k{index}", link.source, middle), (f"k{index}end", middle, link.target)]


def _curve(positions: str, height: float) -> Curve:
    points = [_numbers(position) for position in positions.split()]
    return tuple((x, height - y) for x, y in points)


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def _label_id(index: int) -> str:
    return f"label{index}"
