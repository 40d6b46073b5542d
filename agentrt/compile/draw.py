"""A Plan as text that other programs draw: Mermaid, which code hosts show inside Markdown, and DOT, which Graphviz reads.

Both take what a name or a guard says as language: Mermaid reads Markdown, HTML and its own keywords inside labels, DOT
reads HTML entities and its own escapes. So nothing of a Dag is written as it stands: ids are ours, and in labels every
character that could mean something is written as a code.
"""

from __future__ import annotations

import re

from agentrt.compile.draw_colours import colours_of, pale
from agentrt.compile.draw_scene import Box, BoxKind, Line, LineKind, Scene, scene_of
from agentrt.compile.draw_text import condition_label, shortened
from agentrt.compile.plan import Plan

MAX_LABEL_CELLS = 48
_INK, _FAINT = "#1f2328", "#8b949e"

_MERMAID_PLAIN = re.compile(r"[^\w ,./:()=!?+'·…-]")
_MERMAID_WORDS = re.compile("style|classDef|click|end", re.IGNORECASE)
"""What Mermaid looks for in a whole line, labels included, before it reads it."""


def to_mermaid(plan: Plan, *, show_pruned: bool = False) -> str:
    """Return a Mermaid flowchart of ``plan``; ``show_pruned`` adds what was left out, in grey."""
    scene = scene_of(plan, show_pruned=show_pruned)
    lines = ["flowchart TD"]
    lines += [f"    {_mermaid_box(box)}" for box in scene.boxes.values()]
    for index, unit in enumerate(scene.units):
        lines += [f'    subgraph u{index}["one unit"]', *(f"        {member}" for member in unit), "    end"]
    lines += [f"    {_mermaid_line(line)}" for line in scene.lines]
    lines += _mermaid_classes(scene)
    return "\n".join(lines) + "\n"


def _mermaid_box(box: Box) -> str:
    label = "<br>".join(map(_mermaid_text, _label_lines(box)))
    if box.kind is not BoxKind.ACTION:
        return f'{box.id}(["{label}"])'
    if box.is_human:
        return f'{box.id}{{{{"{label}"}}}}'
    return f'{box.id}[["{label}"]]' if box.is_nested else f'{box.id}["{label}"]'


def _mermaid_line(line: Line) -> str:
    match line.kind:
        case LineKind.READS:
            arrow = "==>" if line.stream else "-->"
        case LineKind.ORDER | LineKind.SAME | LineKind.VALUE:
            arrow = "-.->"
    label = _mermaid_text(_line_label(line))
    return f'{line.source} {arrow}|"{label}"| {line.target}' if label else f"{line.source} {arrow} {line.target}"


def _mermaid_classes(scene: Scene) -> list[str]:
    lines = []
    for index, (family, hue) in enumerate(colours_of(scene.families).items()):
        ids = ",".join(box.id for box in scene.boxes.values() if box.family == family)
        lines += [f"    classDef f{index} fill:{pale(hue)},stroke:{hue},color:{_INK}", f"    class {ids} f{index}"]
    pruned = ",".join(box.id for box in scene.boxes.values() if box.is_pruned)
    if pruned:
        lines.append(f"    classDef pruned fill:none,stroke:{_FAINT},color:{_FAINT},stroke-dasharray:4 3")
        lines.append(f"    class {pruned} pruned")
    return lines


def _mermaid_text(text: str) -> str:
    text = _MERMAID_PLAIN.sub(lambda match: f"#{ord(match[0])};", text)
    return _MERMAID_WORDS.sub(lambda match: f"#{ord(match[0][0])};{match[0][1:]}", text)


def to_dot(plan: Plan, *, show_pruned: bool = False) -> str:
    """Return ``plan`` in DOT, the language of Graphviz; ``show_pruned`` adds what was left out, in grey."""
    scene = scene_of(plan, show_pruned=show_pruned)
    hues = colours_of(scene.families)
    lines = [
        f"digraph {_dot_text(scene.title)} {{",
        f"    graph [label={_dot_text(f'{scene.title}: {scene.counts}')}, labelloc=t, fontname=monospace];",
        f'    node [shape=box, style="rounded,filled", fillcolor=white, color="{_FAINT}", fontname=monospace];',
        "    edge [fontname=monospace, fontsize=10];",
    ]
    for box in scene.boxes.values():
        lines.append(f"    {box.id} [{_dot_box(box, hues.get(box.family))}];")
    for index, unit in enumerate(scene.units):
        lines.append(f'    subgraph cluster_{index} {{ label="one unit"; style=dashed; {"; ".join(unit)}; }}')
    for line in scene.lines:
        lines.append(f"    {line.source} -> {line.target} [{_dot_line(line)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_box(box: Box, hue: str | None) -> str:
    attributes = [f"label={_dot_text(*_label_lines(box))}", f"tooltip={_dot_text(*box.full)}"]
    if box.kind is not BoxKind.ACTION:
        attributes.append("shape=oval")
    if box.is_human:
        attributes.append("shape=hexagon")
    if box.is_nested:
        attributes.append("peripheries=2")
    if box.is_pruned:
        attributes.append(f'style="rounded,dashed", fontcolor="{_FAINT}"')
    if hue is not None:
        attributes.append(f'color="{hue}", fillcolor="{pale(hue)}"')
    return ", ".join(attributes)


def _dot_line(line: Line) -> str:
    attributes = [f"tooltip={_dot_text(line.full)}"]
    if label := _line_label(line):
        attributes.append(f"label={_dot_text(label)}")
    if line.kind is LineKind.ORDER:
        attributes.append("style=dashed")
    if line.kind is LineKind.SAME:
        attributes.append("style=dotted, constraint=false")
    if line.kind is LineKind.VALUE or line.is_pruned:
        attributes.append(f'color="{_FAINT}"')
    if line.stream:
        attributes.append("penwidth=3")
    return ", ".join(attributes)


def _dot_text(*lines: str) -> str:
    # Graphviz turns &lt; into <, and \N into the name of the node.
    text = "\\n".join(line.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'"{text}"'


def _label_lines(box: Box) -> list[str]:
    condition = condition_label(box.condition, MAX_LABEL_CELLS)
    lines = [box.name, box.does, condition, " · ".join(box.notes)]
    return [shortened(line, MAX_LABEL_CELLS) for line in lines if line]


def _line_label(line: Line) -> str:
    """Return what stands at a line: its guard, and that it streams."""
    parts = [condition_label(line.condition, MAX_LABEL_CELLS), "stream" if line.stream else ""]
    parts.append("same as" if line.kind is LineKind.SAME else "")
    return shortened(" · ".join(filter(None, parts)), MAX_LABEL_CELLS)
