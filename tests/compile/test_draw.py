"""Pictures of Plans: as SVG, Mermaid and DOT."""

from __future__ import annotations

import itertools
import random
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from agentrt.compile.draw import to_dot, to_mermaid
from agentrt.compile.draw_layout import MAX_PARTS
from agentrt.compile.draw_svg import to_svg
from agentrt.compile.draw_text import num_cells, plain, shortened
from agentrt.compile.plan import Plan, plan
from agentrt.compile.prune import PruneCause, Pruned
from agentrt.declare.action import Action, ActionOptions
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.call import Fallback
from agentrt.declare.dag import Dag, Edge, Input
from agentrt.declare.guard import Guard
from agentrt.declare.policy import Effects, ForEach, Join, JoinKind
from agentrt.declare.template import ValueTemplate
from agentrt.errors import UsageError

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>", 'a"b', "a]b[", "x|y", "end", "style:x <b> ;", "classDef z: #a;", "click me", "%% note",
    "%%{init: {}}%%", "a\nb", "\\N\\G\\", "&lt;&amp;", "`md` **b**", "#35;", "{{x}}", "\x00\x1b[2J", "\u202eabc", "漢字",
    "🦊", "--->", "$$x^2$$", "\ud800", "subgraph u0", '"', '\\"', "]]>", "a" * 300,
)  # fmt: skip


def dag_of(
    *actions: Action, outputs: Mapping[str, str] | None = None, edges: Iterable[Edge] = (), name: str = "drawn"
) -> Dag:
    outputs = outputs or {"answer": f"{{{{ actions.{actions[-1].name}.output }}}}"}
    return Dag(
        name,
        {action.name: action for action in actions},
        {name: ValueTemplate.parse(template) for name, template in outputs.items()},
        {"question": Input("question", {"type": "string"})},
        {name: Agent(name, model=ModelRef("big") if name == "critic" else None) for name in ("writer", "critic")},
        edges=tuple(edges),
    )


def tool(name: str, *reads: str, **options: Any) -> Action:
    text = " ".join(f"{{{{ actions.{other}.output }}}}" for other in reads) or "{{ inputs.question }}"
    return Action.tool(name, "search", options=ActionOptions(**options), text=text)


def asking(name: str, *reads: str, agent: str = "writer", **options: Any) -> Action:
    text = " ".join(f"{{{{ actions.{other}.output }}}}" for other in reads) or "{{ inputs.question }}"
    return Action.llm(name, text, agent=agent, options=ActionOptions(**options))


def random_dag(num_actions: int, seed: int) -> Dag:
    """Make a layered Dag with every kind of edge in it."""
    uniform = random.Random(seed)
    actions: list[Action] = []
    edges = []
    streaming: set[str] = set()
    for index in range(num_actions):
        earlier = [action.name for action in actions[-12:]]
        reads = uniform.sample(earlier, min(len(earlier), uniform.choice([0, 1, 1, 2, 3])))
        needs = uniform.sample(earlier, 1) if earlier and uniform.random() < 0.2 else []
        make = uniform.choice([tool, asking])
        actions.append(make(f"action_{index}", *reads, needs=needs))
        if reads and uniform.random() < 0.2:
            edges.append(Edge(reads[0], f"action_{index}", Guard.parse(f"size(actions.{reads[0]}.output) > 3")))
        elif streaming.intersection(reads) and uniform.random() < 0.4:
            edges.append(Edge(min(streaming.intersection(reads)), f"action_{index}", stream=True))
        if make is asking:
            streaming.add(f"action_{index}")
    read = {name for action in actions for name in action.dependencies}
    outputs = {f"out_{a.name}": f"{{{{ actions.{a.name}.output }}}}" for a in actions if a.name not in read}
    return dag_of(*actions, outputs=outputs, edges=edges)


def hostile_dag() -> Dag:
    condition = 'inputs.question != "|\\" > <b>; style:q #`]]"'
    actions = [
        Action.tool(name, "x" + name, options=ActionOptions(needs=needs, condition=condition))
        for name, needs in zip(HOSTILE, [[], *([name] for name in HOSTILE)], strict=False)
    ]
    edges = [Edge(a, b, Guard.parse('inputs.question != "]|\\"; <`"')) for a, b in itertools.pairwise(HOSTILE)]
    return dag_of(*actions, outputs=dict.fromkeys(HOSTILE, "{{ inputs.question }}"), edges=edges, name='n"<&>\n%%')


def unpruned(dag: Dag) -> Plan:
    return plan(dag, prune=False)


@dataclass(frozen=True)
class Rectangle:
    left: float
    top: float
    right: float
    bottom: float

    @classmethod
    def of(cls, element: ElementTree.Element) -> Rectangle:
        x, y, width, height = (float(element.attrib[key]) for key in ("x", "y", "width", "height"))
        return cls(x, y, x + width, y + height)

    def overlaps(self, other: Rectangle) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def distance_to_border(self, x: float, y: float) -> float:
        outside = max(self.left - x, x - self.right, self.top - y, y - self.bottom)
        return outside if outside > 0 else min(x - self.left, self.right - x, y - self.top, self.bottom - y)


class Picture:
    """An SVG, read back."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)
        self.boxes: dict[tuple[str, str], ElementTree.Element] = {}
        self.lines: dict[tuple[str, str, str], ElementTree.Element] = {}
        for group in self.root.iter(f"{SVG}g"):
            a = group.attrib
            if a.get("class") == "box":
                self.boxes[a["data-kind"], a["data-name"]] = group
            if a.get("class") == "line":
                self.lines[a["data-kind"], a["data-source"], a["data-target"]] = group

    def names(self, kind: str) -> set[str]:
        return {name for of_kind, name in self.boxes if of_kind == kind}

    def texts(self, name: str) -> list[str]:
        return [text.text or "" for text in self.boxes["action", name].iter(f"{SVG}text")]

    def all_texts(self) -> set[str]:
        return {text.text or "" for text in self.root.iter(f"{SVG}text")}


def rectangle(group: ElementTree.Element) -> Rectangle:
    element = group.find(f"{SVG}rect")
    assert element is not None
    return Rectangle.of(element)


def ends(path: ElementTree.Element) -> tuple[tuple[float, float], tuple[float, float]]:
    numbers = [float(number) for number in re.findall(r"-?\d+\.?\d*", path.attrib["d"])]
    return (numbers[0], numbers[1]), (numbers[-2], numbers[-1])


# -- SVG


@pytest.mark.parametrize(("num_actions", "seed"), [(1, 0), (27, 1), (27, 2), (60, 3)])
def test_everything_is_in_the_picture_and_nothing_covers_another(num_actions: int, seed: int) -> None:
    """Every action, edge and output is drawn; no box lies on another, nor on the guard of an edge."""
    planned = unpruned(random_dag(num_actions, seed))
    picture = Picture(to_svg(planned))
    assert picture.names("action") == set(planned.dag.actions)
    assert picture.names("input") == {"question"}
    assert picture.names("output") == set(planned.dag.outputs)
    drawn = {(kind, source, target) for kind, source, target in picture.lines if kind in ("reads", "order")}
    assert drawn == {("reads" if e.reads else "order", e.source, e.target) for e in planned.edges}
    solid = [rectangle(group) for group in picture.boxes.values()]
    solid += [rectangle(group) for group in picture.lines.values() if group.find(f"{SVG}rect") is not None]
    guards = sum(edge.guard is not None for edge in planned.edges)
    assert len(solid) == len(picture.boxes) + guards
    assert not [pair for pair in itertools.combinations(solid, 2) if pair[0].overlaps(pair[1])]


@pytest.mark.parametrize(("num_actions", "seed"), [(27, 1), (60, 3)])
def test_lines_run_from_border_to_border(num_actions: int, seed: int) -> None:
    """A line leaves the border of its source and ends at that of its target; one with a guard runs through the guard."""
    picture = Picture(to_svg(unpruned(random_dag(num_actions, seed))))
    kinds = {"reads": ("action", "action"), "order": ("action", "action")}
    for (kind, source, target), group in picture.lines.items():
        if kind not in kinds:
            continue
        stops = [rectangle(picture.boxes["action", source]), rectangle(picture.boxes["action", target])]
        if group.find(f"{SVG}rect") is not None:
            stops.insert(1, rectangle(group))
        paths = group.findall(f"{SVG}path")
        assert len(paths) == len(stops) - 1
        for path, before, after in zip(paths, stops[:-1], stops[1:], strict=True):
            start, end = ends(path)
            assert before.distance_to_border(*start) < 1.5
            assert after.distance_to_border(*end) < 1.5
        assert ["marker-end" in path.attrib for path in paths] == [False] * (len(paths) - 1) + [True]


def test_a_box_says_who_acts_and_on_what_terms() -> None:
    """The second line says what an action does; guard, join, repetition, fallback and writing stand below it."""
    planned = unpruned(
        dag_of(
            asking("draft"),
            asking("judge", "draft", agent="critic"),
            tool("a", "draft", condition='actions.draft.output == "urgent"', optional=True),
            tool("b", "draft", for_each=ForEach(ValueTemplate.parse([1, 2]), 4)),
            tool("c", "a", "b", join=Join(JoinKind.N_OF, 1), fallback=Fallback(value=ValueTemplate.parse("none"))),
            Action.human("approve", "{{ actions.c.output }}", options=ActionOptions(effects=Effects.WRITE)),
            Action.dag("inner", dag_of(tool("x"), name="sub"), question="{{ actions.approve.output.comment }}"),
            tool("end", "inner", "judge", join=Join(JoinKind.FIRST_SUCCESS)),
        )
    )
    picture = Picture(to_svg(planned))
    assert picture.texts("draft") == ["draft", "writer"]
    assert picture.texts("judge") == ["judge", "critic · big"]
    assert picture.texts("a") == ["a", "tool/search", 'if draft == "urgent"', "optional"]
    assert picture.texts("b") == ["b", "tool/search", "for each, 4 at once"]
    assert picture.texts("c") == ["c", "tool/search", "join: 1 of 2 · fallback: a value"]
    assert picture.texts("approve") == ["approve", "a person approves", "writes"]
    assert picture.texts("inner") == ["inner", "dag/sub"]
    assert picture.texts("end")[2] == "join: first success"
    assert {"agent writer", "agent critic", "tool", "human", "dag"} <= picture.all_texts()


def test_colours_tell_agents_apart() -> None:
    """Two actions of one agent look alike, two agents do not."""
    actions = [asking(name, agent=agent) for name, agent in (("a", "writer"), ("b", "critic"), ("c", "writer"))]
    picture = Picture(to_svg(unpruned(dag_of(*actions))))
    a, b, c = (picture.boxes["action", name].findall(f"{SVG}rect")[1].attrib["stroke"] for name in "abc")
    assert a == c != b


def test_lines_show_what_they_are_for() -> None:
    """Dashed: for order alone. Thick: streamed. A guard stands on its edge, the whole of it in the title."""
    condition = "size(actions.a.output) > 3 && actions.a.output != 'nothing at all was found here'"
    dag = dag_of(
        asking("a"), tool("b", needs=["a"]), tool("c", "a"), tool("d", "a"), tool("e", "b", "c", "d"),
        edges=[Edge("a", "c", stream=True), Edge("a", "d", Guard.parse(condition))],
    )  # fmt: skip
    picture = Picture(to_svg(unpruned(dag)))

    def path(kind: str, source: str, target: str) -> dict[str, str]:
        element = picture.lines[kind, source, target].find(f"{SVG}path")
        assert element is not None
        return element.attrib

    assert "stroke-dasharray" in path("order", "a", "b")
    assert "stroke-dasharray" not in path("reads", "b", "e")
    assert float(path("reads", "a", "c")["stroke-width"]) > float(path("reads", "b", "e")["stroke-width"])
    guarded = picture.lines["reads", "a", "d"]
    assert [text.text for text in guarded.iter(f"{SVG}text")] == ["if size(a) > 3 && a != 'not…"]
    title = guarded.find(f"{SVG}title")
    assert title is not None
    assert condition in (title.text or "")
    assert {"reads", "waits, reads nothing", "from the first token"} <= picture.all_texts()


def with_pruned() -> Plan:
    whole = dag_of(tool("a"), tool("twin"), tool("b", "a", "twin"), tool("loose", "b"), tool("end", "b"))
    kept = unpruned(dag_of(tool("a"), tool("b", "a"), tool("end", "b")))
    pruned = (
        Pruned("loose", PruneCause.UNUSED, "nothing reads it"),
        Pruned("twin", PruneCause.DUPLICATE, "does what a does", "a"),
    )
    return replace(kept, declared=whole, pruned=pruned)


def test_what_was_pruned_is_drawn_only_when_asked_for() -> None:
    """In grey, with its reason in the title, its edges, and a line to what stands in for it."""
    planned = with_pruned()
    assert Picture(to_svg(planned)).names("action") == {"a", "b", "end"}
    picture = Picture(to_svg(planned, show_pruned=True))
    assert picture.names("action") == {"a", "b", "end", "twin", "loose"}
    assert picture.texts("loose")[-1] == "pruned: unused"
    title = picture.boxes["action", "loose"].find(f"{SVG}title")
    assert title is not None
    assert "nothing reads it" in (title.text or "")
    assert {("reads", "b", "loose"), ("reads", "twin", "b"), ("same", "twin", "a")} <= picture.lines.keys()
    assert "5 actions, 4 edges -> 3 actions, 2 edges" in picture.all_texts()
    for text in (to_mermaid(planned), to_dot(planned)):
        assert "loose" not in text
    for text in (to_mermaid(planned, show_pruned=True), to_dot(planned, show_pruned=True)):
        assert "loose" in text


def test_a_reader_of_a_duplicate_reads_what_stands_in_for_it() -> None:
    """Whatever pruning left in the texts: edges and outputs lead to the action that is there.

    a ────> end ──> answer          a ──> end ──> answer
    twin ──/    ──> second    ==>    \\──────────> second
    """
    dag = dag_of(
        asking("a"), asking("twin"), asking("end", "twin"),
        outputs={
            "answer": "{{ actions.end.output }}",
            "first": "{{ actions.a.output }}",
            "second": "{{ actions.twin.output }}",
        },
    )  # fmt: skip
    planned = plan(dag)
    assert [(gone.action, gone.into) for gone in planned.pruned] == [("twin", "a")]
    picture = Picture(to_svg(planned))
    assert {("reads", "a", "end"), ("value", "a", "first"), ("value", "a", "second")} <= picture.lines.keys()


def test_chains_that_are_scheduled_as_one_are_framed() -> None:
    """A frame holds the boxes of a unit, and no other box."""
    planned = replace(unpruned(dag_of(tool("a"), tool("b", "a"), tool("c", "b"), tool("d", "c"))), units=(("b", "c"),))
    svg = to_svg(planned)
    picture = Picture(svg)
    (frame,) = (Rectangle.of(e) for e in picture.root.iter(f"{SVG}rect") if e.attrib.get("class") == "unit")
    inside = {name for name in "abcd" if frame.overlaps(rectangle(picture.boxes["action", name]))}
    assert inside == {"b", "c"}
    assert "subgraph" in to_mermaid(planned)
    assert "cluster_0" in to_dot(planned)


def test_the_same_plan_gives_the_same_picture() -> None:
    """Pictures can be kept and compared."""
    assert to_svg(unpruned(random_dag(27, 4))) == to_svg(unpruned(random_dag(27, 4)))


def test_a_picture_that_would_take_for_ever_is_refused() -> None:
    """The limit is told, and what to do instead; text has no limit."""
    planned = unpruned(dag_of(*(tool(f"a{index}") for index in range(MAX_PARTS))))
    with pytest.raises(UsageError, match=f"limit: {MAX_PARTS}.*--dot"):
        to_svg(planned)
    assert to_dot(planned).count("label=") > MAX_PARTS


def test_without_the_layout_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mermaid and DOT need nothing; a picture needs the extra."""
    monkeypatch.setitem(sys.modules, "pygraphviz", None)
    planned = unpruned(dag_of(tool("a")))
    with pytest.raises(UsageError, match=re.escape("pip install 'agentrt[draw]'")):
        to_svg(planned)
    assert to_mermaid(planned).startswith("flowchart")


# -- what texts may hold


def test_no_text_of_a_dag_can_act_in_an_svg() -> None:
    """Whatever a name holds, the file is XML with nothing in it that runs, and the name is there to read."""
    picture = Picture(to_svg(unpruned(hostile_dag())))
    assert picture.names("action") == set(map(plain, HOSTILE))
    tags = {element.tag.removeprefix(SVG) for element in picture.root.iter()}
    assert tags == {"svg", "title", "style", "defs", "marker", "path", "rect", "text", "g"}
    assert not [key for e in picture.root.iter() for key in e.attrib if key.startswith("on") or "href" in key]
    assert "漢字" in picture.all_texts()


def test_no_text_of_a_dag_can_act_in_dot() -> None:
    """Graphviz' own parser reads every label as it was meant."""
    from pygraphviz import AGraph

    planned = unpruned(hostile_dag())
    graph = AGraph(string=to_dot(planned))
    labels = {node.attr["label"] for node in graph.nodes()}
    for name in HOSTILE:
        told = shortened(plain(name), 48).replace("\\", "\\\\").replace("&", "&amp;")
        assert any(label.startswith(f"{told}\\n") for label in labels)
    assert graph.number_of_nodes() == 2 * len(HOSTILE) + 1
    assert graph.number_of_edges() == 3 * len(HOSTILE) - 1
    graph.close()


def test_no_text_of_a_dag_can_act_in_mermaid() -> None:
    """Every line is one of six forms, and in labels all but harmless characters are codes."""
    label = r'"(?:#\d+;|<br>|[\w ,./:()=!?+\'·…-])*"'
    forms = re.compile(
        "|".join(
            [
                "flowchart TD",
                rf"    n\d+(?:\(\[{label}\]\)|\[\[{label}\]\]|\{{\{{{label}\}}\}}|\[{label}\])",
                rf"    n\d+ (?:-->|-\.->|==>)(?:\|{label}\|)? n\d+",
                r"    classDef \w+ [\w:#, -]+",
                r"    class [\w,]+ \w+",
                rf"    subgraph u\d+\[{label}\]|        n\d+|    end",
            ]
        )
    )
    lines = to_mermaid(unpruned(hostile_dag())).splitlines()
    assert [line for line in lines if not forms.fullmatch(line)] == []
    labels = [text for line in lines for text in re.findall(label, line)]
    assert len(labels) == 2 * len(HOSTILE) + 1 + len(HOSTILE) - 1
    assert not [text for text in labels if re.search("style|classDef|click", text)]


def test_mermaid_and_dot_have_a_shape_for_each_kind() -> None:
    """Terminals are round, a person's part has corners, a Dag inside has two borders; edges differ as in the picture."""
    dag = dag_of(
        asking("a"), Action.human("h", "{{ actions.a.output }}"), tool("s", "a"), tool("o", needs=["h"]),
        Action.dag("d", dag_of(tool("x"), name="sub"), question="{{ actions.s.output }} {{ actions.o.output }}"),
        edges=[Edge("a", "s", stream=True)],
    )  # fmt: skip
    mermaid, dot = to_mermaid(unpruned(dag)), to_dot(unpruned(dag))
    for line in (
        'n0(["question<br>input"])', 'n2{{"h<br>a person approves"}}', 'n5[["d<br>dag/sub"]]',
        'n1 ==>|"stream"| n3', "n2 -.-> n4", "n3 --> n5",
    ):  # fmt: skip
        assert f"    {line}\n" in mermaid
    assert dot.count("shape=oval") == 2
    assert dot.count("shape=hexagon") == 1
    assert dot.count("peripheries=2") == 1
    assert dot.count("penwidth=3") == 1
    assert dot.count("style=dashed") == 1


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("漢字漢", 5, "漢字…"),
        ("a bcd", 3, "a…"),
        ("e\u0301e", 2, "e\u0301e"),
    ],
)
def test_texts_are_cut_by_the_cells_they_take(text: str, cells: int, expected: str) -> None:
    """A wide letter takes two, a combining mark none."""
    assert shortened(text, cells) == expected
    assert num_cells(expected) <= cells
