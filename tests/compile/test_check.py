"""What checking a whole Dag finds beyond the mistakes of single keys."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agentrt.compile.check import check, check_file
from agentrt.declare.dag_file import parse_dag
from agentrt.errors import Diagnostic, Severity
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import tool


@tool(effects="write")
def book(seat: int, note: str = "") -> dict[str, int]:
    """Book a seat."""
    return {"seat": seat}


@tool(effects="none")
def look(place: str) -> str:
    """Look somewhere."""
    return place


TOOLS = ToolRegistry([book, look])


def found(text: str, tools: ToolRegistry | None = TOOLS) -> list[Diagnostic]:
    return list(check(parse_dag(text, file="d.yaml"), tools))


def told(text: str, tools: ToolRegistry | None = TOOLS) -> list[tuple[str, int | None, int | None]]:
    """Return code, line and column of everything found."""
    return [
        (str(d.code), d.place.line, d.place.column) if d.place else (str(d.code), None, None)
        for d in found(text, tools)
    ]


HEAD = "name: d\noutputs: {a: '{{ actions.x.output }}'}\n"


def test_a_cycle_is_told_with_the_line_of_each_of_its_edges() -> None:
    """The shortest one, at its first reference; a longer way round is not listed.

    a -> b -> c -> a (by a prompt, a guard and needs),  a -> d -> b -> ...
    """
    text = """\
name: d
outputs: {o: "{{ actions.a.output }}"}
actions:
  a:
    prompt: |
      Hello
      {{ actions.b.output }}{{ actions.d.output }}
  b:
    prompt: hi
    if: actions.c.output == 'x'
  c: {prompt: hi, needs: [a]}
  d: {prompt: "{{ actions.b.output }}"}
"""
    (cycle,) = found(text)
    assert (cycle.code, str(cycle.place)) == ("DAG034", "d.yaml:7:10")
    for part in ("'a' waits for 'b' (line 7)", "'b' waits for 'c' (line 10)", "'c' waits for 'a' (line 11)"):
        assert part in cycle.message
    assert "'d'" not in cycle.message


def test_two_knots_are_two_findings() -> None:
    """Mending one cycle must not be what reveals the next."""
    text = (
        HEAD
        + "actions:\n"
        + "".join(f"  {name}: {{prompt: x, needs: {other}}}\n" for name, other in ("xy", "yx", "pq", "qp"))
    )
    assert [code for code, _, _ in told(text)] == ["DAG034", "DAG034"]


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("actions.x.outptu", "did you mean 'output'"),
        ("actions.x.text", "write actions.x.output.text"),
        ("actions.x", "write actions.x.output"),
        ("actions.x.output.text", "actions.x.output is text, and has no part 'text'"),
        ("actions.x.status.code", "actions.x.status is text"),
        ("inputs.n.real", "inputs.n is a number"),
        ("inputs.o.b", "no part 'b'"),
        ("inputs.o.a.c", "inputs.o.a is text"),
        ("inputs.l[0].c", "inputs.l.0 is text"),
        ("actions.seen.output.x", "actions.seen.output is text"),
    ],
)
def test_a_part_that_can_never_be_there_is_told(reference: str, says: str) -> None:
    """As far as schemas decide: a model's answer is a text, inputs and tools have theirs."""
    text = f"""\
name: d
inputs:
  n: integer
  l: {{type: array, items: {{type: string}}}}
  o: {{type: object, properties: {{a: {{type: string}}}}, additionalProperties: false}}
outputs: {{a: "{{{{ actions.y.output }}}}", n: "{{{{ inputs.n }}}}{{{{ inputs.l }}}}{{{{ inputs.o }}}}"}}
actions:
  x: {{prompt: hi}}
  seen: {{uses: tool/look, with: {{place: here}}}}
  y: {{prompt: "x {{{{ {reference} }}}}", needs: [x, seen]}}
"""
    (diagnostic,) = found(text)
    assert diagnostic.code in ("DAG032", "DAG024")
    assert says in str(diagnostic)
    assert diagnostic.place is not None
    assert (diagnostic.place.line, diagnostic.place.column) == (10, 21)


@pytest.mark.parametrize(
    "reference",
    [
        "actions.x.output[0]",
        "actions.booked.output.seat",
        "inputs.any.x.y",
        "inputs.l[0][1]",
        "inputs.o.a",
        "inputs.o.b",
    ],
)
def test_a_part_that_may_be_there_is_not_told(reference: str) -> None:
    """Where no schema decides, nothing is guessed."""
    text = f"""\
name: d
inputs:
  any: {{}}
  l: {{type: array}}
  o: {{type: object, properties: {{a: {{type: string}}}}}}
outputs: {{a: "{{{{ actions.y.output }}}}", n: "{{{{ inputs.any }}}}{{{{ inputs.l }}}}{{{{ inputs.o }}}}"}}
actions:
  x: {{prompt: hi}}
  booked: {{uses: tool/book, with: {{seat: 1}}}}
  y: {{prompt: "x {{{{ {reference} }}}}", needs: x}}
"""
    assert found(text) == []


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("{uses: tool/book, with: {seat: 1}, retry: 3}", [("DAG044", 4, 48)]),
        ("{uses: tool/book, with: {seat: 1}, retry: 1}", []),
        ("{uses: tool/book, with: {seat: 1}, retry: 3, effects: idempotent}", []),
        ("{uses: tool/look, with: {place: a}, retry: 3}", []),
        ("{uses: tool/look, with: {place: a}, retry: 3, effects: write}", [("DAG044", 4, 49)]),
        ("{uses: tool/lok, with: {place: a}}", [("DAG040", 4, 13)]),
        ("{uses: tool/book, with: {seat: one}}", [("DAG043", 4, 37)]),
        ("{uses: tool/book, with: {seat: '{{ inputs.q }}'}}", []),
        ("{uses: tool/book, with: {note: hi}}", [("DAG042", 4, 3)]),
        ("{uses: tool/book, with: {seat: 1, nte: hi}}", [("DAG041", 4, 45)]),
    ],
)
def test_tools_are_checked_against_what_they_declare(action: str, expected: list[tuple[str, int, int]]) -> None:
    """Name, parameters, values written out, and retries of what writes."""
    text = f"name: d\ninputs: {{q: integer}}\nactions:\n  x: {action}\n"
    text += "outputs: {a: '{{ actions.x.output }}{{ inputs.q }}'}"
    assert told(text) == expected
    without_registry = [code for code, _, _ in told(text, None) if code.startswith("DAG04")]
    assert without_registry == ["DAG044"] * ("effects: write" in action), "only what the file itself says is known"


def test_warnings_say_what_has_no_effect_and_keep_nothing_from_running() -> None:
    """Unused inputs, agents and answers, and a timeout that the deadline makes void."""
    text = """\
name: d
inputs: {unused: string}
slo: {deadline: 1s}
outputs: {a: "{{ actions.x.output }}"}
agents:
  used: {}
  idle: {}
actions:
  x: {agent: used, prompt: hi, timeout: 2s}
  y: {agent: used, prompt: hi}
  z: {uses: tool/look, with: {place: a}}
  w: {uses: tool/book, with: {seat: 1}}
"""
    diagnostics = found(text)
    assert [(d.code, d.place.line) for d in diagnostics if d.place] == [
        ("DAG051", 2),
        ("DAG052", 7),
        ("DAG053", 9),
        ("DAG054", 10),
        ("DAG054", 11),
    ]
    assert all(d.severity is Severity.WARNING for d in diagnostics)


def test_no_outputs_is_an_error() -> None:
    """A run must have something to show."""
    assert [code for code, _, _ in told("name: d\noutputs: {}\nactions: {x: {uses: tool/look, with: {place: a}}}")] == [
        "DAG050",
        "DAG054",
    ]


def test_an_action_that_could_not_be_read_is_not_reported_missing(tmp_path: Path) -> None:
    """One mistake is one finding: what refers to the action it is in, is right."""
    path = tmp_path / "d.yaml"
    path.write_text(HEAD + "actions:\n  x: {prompt: '{{'}\n  y: {prompt: '{{ actions.x.output }}', needs: [x, z]}\n")
    _, diagnostics = check_file(path, TOOLS)
    assert [d.code for d in diagnostics] == ["DAG020", "DAG031"]
    assert "'z'" in diagnostics[1].message


def test_the_order_of_findings_is_that_of_the_file_and_always_the_same() -> None:
    """However the dictionaries are filled, the same file gives the same findings in the same order."""
    lines = [f"  a{n}: {{prompt: '{{{{ actions.b{n}.output }}}}', needs: [c{n}, d{n}]}}\n" for n in range(20)]
    text = HEAD.replace("actions.x", "actions.a0") + "actions:\n"
    first = found(text + "".join(lines))
    assert [d.place.line for d in first if d.place] == sorted(d.place.line or 0 for d in first if d.place)
    assert found(text + "".join(lines)) == first
    shuffled = lines[:]
    random.Random(1).shuffle(shuffled)
    assert {(d.code, d.message) for d in found(text + "".join(shuffled))} == {(d.code, d.message) for d in first}


def test_findings_are_bounded() -> None:
    """A file with ten thousand mistakes tells the first hundred."""
    text = HEAD + "actions:\n" + "".join(f"  a{n}: {{prompt: x, needs: [b{n}]}}\n" for n in range(1000))
    assert len(found(text)) == 100
    unknown = "".join(f"k{n}: 1\n" for n in range(1000))
    with pytest.raises(Exception, match="DAG010") as caught:
        parse_dag(HEAD + unknown)
    assert len(getattr(caught.value, "diagnostics", ())) == 100
