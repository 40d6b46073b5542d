"""Templates: what they read, what they render to, and what they refuse."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.declare import template_program, template_syntax
from agentrt.declare.origin import Origin
from agentrt.declare.reference import Reference
from agentrt.declare.template import Template, ValueTemplate
from agentrt.declare.template_program import Compiled, Pieces
from agentrt.errors import DeclarationError, Place, TemplateError


@dataclasses.dataclass
class Document:
    title: str
    _secret: str = "hidden"

    def leak(self) -> str:
        return self._secret


SCOPE: dict[str, Any] = {
    "inputs": {
        "question": "Why?",
        "limit": 3,
        "names": ["a", "b", "c"],
        "docs": [{"title": "A", "items": [1], "_id": 7}, {"title": "B", "items": []}],
        "record": Document("T"),
    },
    "actions": {
        "search": {"output": {"items": [1, 2], "nothing": None, "ok": True, "score": 0.5}, "status": "succeeded"},
        "skipped": {"output": None, "status": "skipped"},
    },
}


def render(source: str) -> str:
    return Template.parse(source).render(SCOPE)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("no expression { } }}", "no expression { } }}"),
        ("{{ inputs.question }}", "Why?"),
        ("{{inputs['question']}} {{ inputs.names[1] }}", "Why? b"),
        ("{{ actions.search.output.items }}", "[1, 2]"),
        ("{{ actions.search.output }}", '{"items": [1, 2], "nothing": null, "ok": true, "score": 0.5}'),
        ("{{ actions.search.output.ok }} {{ actions.search.output.score }}", "true 0.5"),
        ("<{{ actions.search.output.nothing }}>", "<>"),
        ("<{{ actions.skipped.output.text[0] }}>", "<>"),
        ("{{ actions.skipped.output | default('none') }}", "none"),
        ("{{ inputs.missing | default('none') }}", "none"),
        ("{{ inputs.missing is defined }}", "false"),
        ("{{ inputs.docs[0]._id }}", "7"),
        ("{{ inputs.record.title }}", "T"),
        (
            "{% for doc in inputs.docs %}\n- {{ loop.index }} {{ doc.title }}\n{% endfor %}",
            "- 1 A\n- 2 B\n",
        ),
        ("{{ inputs.docs | map(attribute='title') | join(', ') }}", "A, B"),
        ("{{ inputs.docs | selectattr('title', 'eq', 'B') | list | length }}", "1"),
        ("{{ inputs.names[:2] | tojson }} {{ inputs.names | last }}", '["a", "b"] c'),
        ("{% for key, value in actions.search.output.items() %}{{ key }};{% endfor %}", "items;nothing;ok;score;"),
        ("{{ inputs.question ~ inputs.limit ~ none ~ true }}", "Why?3true"),
        ("{{ inputs.question.upper() if inputs.limit > 2 else 'no' }}", "WHY?"),
        ("{{ 'é<b>' | tojson }}", '"é<b>"'),
        ("{{ [inputs.limit, none, true] }}", "[3, null, true]"),
        ("{% set n = inputs.limit * 2 %}{{ n }}", "6"),
        ("{{ '{{' }} {% raw %}{{ x }}{% endraw %}", "{{ {{ x }}"),
        ("kept\n", "kept\n"),
        ("{{ inputs.question }}\n", "Why?\n"),
        ("{{ inputs.question | indent(2) }}{# a comment #}", "Why?"),
        ("{{ inputs.names | sort(reverse=true) | join }} {{ [1, 2] | sum }} {{ 2.567 | round(1) }}", "cba 3 2.6"),
        ("{{ 'a b c' | truncate(4) }}|{{ 'one two' | wordwrap(3) }}|{{ 'x' | replace('x', 'y') }}", "a...|one\ntwo|y"),
        ("{% for i in range(3) %}{{ i }}{% endfor %}", "012"),
    ],
)
def test_rendering(source: str, text: str) -> None:
    """Data are looked up before methods, null is nothing, and lists and mappings are JSON."""
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "references"),
    [
        ("{{ inputs.a }}{{ actions.b.output.c[0]['d e'] }}", {"inputs.a", "actions.b.output.c.0.d e"}),
        ("{{ inputs['a'] | upper }}", {"inputs.a"}),
        ("{% if actions.a.status == 'skipped' %}{{ inputs.x }}{% endif %}", {"actions.a.status", "inputs.x"}),
        ("{% for d in actions.s.output %}{{ d.text }}{{ inputs.q }}{% endfor %}", {"actions.s.output", "inputs.q"}),
        ("{{ actions.a.output[inputs.i].x }}", {"actions.a.output", "inputs.i"}),
        ("{{ actions.a.output[1:inputs.n] }}", {"actions.a.output", "inputs.n"}),
        ("{{ inputs.a.get(inputs.b) }}{{ inputs.c is eq(inputs.d) }}", {f"inputs.{name}" for name in "abcd"}),
        ("{{ {inputs.a: [inputs.b]} }}{{ range(inputs.c) }}", {f"inputs.{name}" for name in "abc"}),
        ("{{ inputs.a if inputs.b else inputs.c }}", {f"inputs.{name}" for name in "abc"}),
        ("nothing", set()),
    ],
)
def test_what_a_template_reads_is_known_without_rendering(source: str, references: set[str]) -> None:
    """Every reference is found, also inside branches that may not be taken."""
    assert {str(reference) for reference in Template.parse(source).references} == references


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("{{ input.a }}", "DAG022", "did you mean 'inputs'"),
        ("{{ inputs }}", "DAG024", "write inputs.NAME"),
        ("{{ actions[inputs.a].output }}", "DAG024", "computed name"),
        ("{{ inputs.a | uper }}", "DAG022", "did you mean 'upper'"),
        ("{{ inputs.a | map('uper') }}", "DAG022", "did you mean 'upper'"),
        ("{{ inputs.a is defind }}", "DAG022", "did you mean 'defined'"),
        ("{{ inputs.a.uper() }}", "DAG022", "did you mean 'upper'"),
        ("{% for a in inputs.b %}{{ loop.indx }}{% endfor %}", "DAG022", "did you mean loop.index"),
        ("{{ loop.index }}", "DAG022", "'loop'"),
        ("{% for a in inputs.b %}{{ a }}{% endfor %}{{ a }}", "DAG022", "'a'"),
        ("{{ inputs.a", "DAG020", "end of template"),
        ("{% if inputs.a %}", "DAG020", ""),
        ("{{ }}", "DAG020", ""),
        ("{{ inputs.a.__class__ }}", "DAG023", "__class__"),
        ("{{ inputs['__class__'] }}", "DAG023", "__class__"),
        ("{{ ''.format(1) }}", "DAG022", "format"),
        ("{{ lipsum() }}", "DAG023", "lipsum"),
        ("{{ inputs.a() }}", "DAG022", "'a'"),
        ("{% macro x() %}{% endmacro %}", "DAG023", "macros"),
        ("{% include 'x' %}", "DAG023", "other templates"),
        ("{% set inputs = 1 %}", "DAG023", "another meaning"),
        ("{% set x.y = 1 %}", "DAG023", "namespaces"),
        ("{% for a in inputs.b recursive %}{% endfor %}", "DAG023", "recursive"),
        ("{{ inputs.a.get(*inputs.b) }}", "DAG023", "'*'"),
        ("{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}", "DAG020", "nested"),
        ("{{ " + "-" * 2000 + "1 }}", "DAG020", "nested"),
        ("{{ " + "+".join(["1"] * 100) + " }}", "DAG007", "nested"),
        ("{{ inputs" + ".a" * 100 + " | upper }}", "DAG007", "nested"),
        ("{% for a in inputs.b %}" * 6 + "{% endfor %}" * 6, "DAG023", "one inside another"),
        ("{{ inputs.a }}" * 6000, "DAG007", "characters"),
    ],
)
def test_what_is_not_allowed_is_refused_when_it_is_read(source: str, code: str, says: str) -> None:
    """A mistake in a template is found before a run, with the nearest name that would have been right."""
    with pytest.raises(DeclarationError) as caught:
        Template.parse(source)
    assert any(d.code == code and says in str(d) for d in caught.value.diagnostics), str(caught.value)


def test_every_mistake_of_a_template_is_told_with_its_line_and_column() -> None:
    """Places are those of the file, not of the text inside it."""
    source = "first {{ foo }}\nsecond {{ inputs.a }} {{ bar | uper }}\n"
    with pytest.raises(DeclarationError) as caught:
        Template.parse(source, Origin(Place("d.yaml", 10, 7), indent=6))
    told = [(d.place.line, d.place.column) for d in caught.value.diagnostics if d.place]
    assert told == [(10, 16), (11, 32), (11, 38)]
    good = Template.parse("x\n  {{ inputs.a }}", Origin(Place("d.yaml", 10, 7), indent=6))
    assert good.places[Reference("inputs", "a")] == Place("d.yaml", 11, 12)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{{ inputs.questoin }}", "did you mean 'question'"),
        ("{{ inputs.docs[0].titel }}", "did you mean 'title'"),
        ("{{ inputs.docs[5].title }}", "there is no item 5: the list has 2"),
        ("{{ inputs.question.x }}", "the text has no part 'x'"),
        ("{{ inputs.record._secret }}", "no part '_secret'"),
        ("{{ inputs.record.leak }}", "no part 'leak'"),
        ("{{ inputs.docs[0].titel | upper }}", "did you mean 'title'"),
        ("{{ inputs.limit + 'a' }}", "unsupported operand"),
        ("{% for a in inputs.limit %}{% endfor %}", "a loop needs a list"),
        ("{% for a in actions.skipped.output %}{% endfor %}", "a loop needs a list, not null"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ inputs.question | sum }}", "numbers"),
        ("a\n{% set x = inputs.limit %}\n{{ x.y }}", "line 3"),
    ],
)
def test_a_value_that_does_not_suit_is_told_when_it_renders(source: str, says: str) -> None:
    """Nothing missing is rendered as an empty text in silence."""
    with pytest.raises(TemplateError) as caught:
        render(source)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ inputs.question * 10**9 }}",
        "{{ inputs.names * 10**9 }}",
        "{{ 10**(10**9) }}",
        "{% set x = 10**1000 %}{% set x = x * x %}{% set x = x * x %}{{ x }}",
        "{{ range(10**9) }}",
        "{% for a in range(9999) %}" * 3 + "{% endfor %}" * 3,
        "{% for a in range(9999) %}{% for b in range(9999) %}{{ 'aaaaaaaaaaaaaaaaaaa' }}{% endfor %}{% endfor %}",
        "{% set a = 'aa' %}" + "{% set a = a ~ a %}" * 60 + "{{ a }}",
        "{% set a = 'aa' %}" + "{% set a = a + a %}" * 60 + "{{ a }}",
        "{% set a = 'aa' %}" + "{% set a = [a, a] | join %}" * 60 + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a == a }}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * 60 + "{{ a | length }}",
        "{% set a = 'x' * 4000000 %}{{ [a, a, a, a] }}",
        "{{ ('a' * 1000000) | replace('a', 'a' * 1000) }}",
        "{{ ('a' * 1000000).replace('a', 'a' * 1000) }}",
        "{{ 'a' | indent(10**9, true) }}",
        "{{ 'a' | round(10**9) }}",
        "{{ [1] | tojson(10**9) }}",
        "{{ 'x' % 1 }}",
        "{% set big = 'x' * 4000000 %}{% for a in range(9999) %}{{ 'y' in big }}{% endfor %}",
        "{% set big = 'x' * 4000000 %}{% for a in range(9999) %}{% if big[1:] %}{% endif %}{% endfor %}",
        "{{ range(9999) | map('replace', '', 'x' * 1000) | list | length }}",
    ],
)
def test_what_would_blow_up_is_stopped(source: str) -> None:
    """A template can neither fill the memory nor run for long; it ends in a clear error."""
    with pytest.raises(TemplateError):
        render(source)


def test_large_values_are_bounded_too() -> None:
    """A text of four million characters is the limit, wherever it comes from; lists that hold themselves end."""
    scope = {"inputs": {"big": "x" * 3_000_000}, "actions": {}}
    with pytest.raises(TemplateError, match="6000000 characters"):
        Template.parse("{{ inputs.big }}{{ inputs.big }}").render(scope)
    loop: list[Any] = []
    loop.append(loop)
    for source in ("{{ inputs.loop }}", "{{ inputs.loop | tojson }}"):
        with pytest.raises(TemplateError, match=r"nested deeper|too much work"):
            Template.parse(source).render({"inputs": {"loop": loop}, "actions": {}})


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("{{ inputs.limit }}", 3),
        (" {{ inputs.names }}\n", ["a", "b", "c"]),
        ("{{ inputs.limit + 1 }}", 4),
        ("{{ [inputs.limit, inputs.question] }}", [3, "Why?"]),
        ("{{ inputs.docs | map(attribute='title') | list }}", ["A", "B"]),
        ("{{ actions.skipped.output.x }}", None),
        ("n={{ inputs.limit }}", "n=3"),
        ({"a": ["{{ inputs.limit }}", 1, None], "b": "plain"}, {"a": [3, 1, None], "b": "plain"}),
        (("x", True), ["x", True]),
        (2.5, 2.5),
    ],
)
def test_a_value_that_is_one_expression_keeps_its_type(source: Any, value: Any) -> None:
    """Only a text with more than an expression in it becomes a text."""
    template = ValueTemplate.parse(source)
    assert template.render(SCOPE) == value
    assert type(template.render(SCOPE)) is type(value)


def test_a_missing_part_is_no_value() -> None:
    """Neither alone nor inside a list does it pass on silently."""
    for source in ("{{ inputs.x }}", "{{ inputs.x | first }}", "{{ [inputs.x] }}", {"a": ["{{ {'k': inputs.x.y} }}"]}):
        with pytest.raises(TemplateError, match="there is no key 'x'"):
            ValueTemplate.parse(source).render(SCOPE)


def test_a_value_template_is_its_own_copy_and_holds_only_json() -> None:
    """What the caller changes afterwards does not change the template; what JSON has no form for is refused."""
    source = {"a": [1]}
    template = ValueTemplate.parse(source)
    source["a"].append(2)
    assert template.render(SCOPE) == {"a": [1]}
    for bad in ({"a": object()}, {1: "x"}, [b"bytes"]):
        with pytest.raises(DeclarationError):
            ValueTemplate.parse(bad)
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    with pytest.raises(DeclarationError, match="nested deeper"):
        ValueTemplate.parse(deep)


def test_templates_travel_between_processes() -> None:
    """A template is pickled as its source."""
    template = Template.parse("{{ inputs.question | upper }}")
    again = pickle.loads(pickle.dumps(template))  # noqa: S301 - our own bytes
    assert again == template
    assert again.render(SCOPE) == "WHY?"
    value = ValueTemplate.parse(["{{ inputs.limit }}"])
    assert pickle.loads(pickle.dumps(value)).render(SCOPE) == [3]  # noqa: S301


def test_threads_may_share_a_template() -> None:
    """A template is compiled by whoever renders it first, and renders the same for all."""
    template = Template.parse("{% for name in inputs.names %}{{ name | upper }}{% endfor %}")
    results: list[str] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        results.extend(template.render(SCOPE) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["ABC"] * 160


NAMES = st.sampled_from(["question", "names", "docs", "record", "limit", "missing", "title", "items", "_id", "x"])
LINKS = st.one_of(
    NAMES.map(lambda name: f".{name}"),
    NAMES.map(lambda name: f"['{name}']"),
    st.integers(0, 2).map(lambda index: f"[{index}]"),
)
PATHS = st.builds(
    lambda root, links: root + "".join(links),
    st.sampled_from(
        ["inputs.docs", "inputs.question", "inputs.record", "actions.search.output", "actions.skipped.output"]
    ),
    st.lists(LINKS, max_size=3),
)
TEXTS = st.text(alphabet="ab \n}'é", max_size=5)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(TEXTS, PATHS.map(lambda path: f"{{{{ {path} }}}}")), max_size=5).map("".join))
def test_plain_references_mean_the_same_with_and_without_jinja(source: str) -> None:
    """The quick way for simple templates and jinja agree on references, texts, values and errors."""
    quick = template_program.read_program(source, None)
    slow = Compiled(template_syntax.read(source))
    assert set(quick.references) == set(slow.references)
    if isinstance(quick, Pieces):
        assert dict(quick.references) == dict(slow.references)

    def outcome(render: Any) -> Any:
        try:
            return render(SCOPE, None)
        except TemplateError:
            return TemplateError

    assert outcome(quick.text) == outcome(slow.text)
    if slow.references:
        assert outcome(quick.value) == outcome(slow.value)


TOKENS = st.sampled_from((
    "{{", "}}", "{%", "%}", "inputs", "actions", ".question", ".limit", ".names", "['docs']", "[0]", "|", "upper",
    "join", "length", "default", "tojson", "sort", "first", "(", ")", ",", "'", "if", "else", "for", "in", "endfor",
    "endif", "set", "=", "==", "+", "-", "*", "**", "~", "//", "%", "<", "not", "and", "or", "is", "defined", "none",
    "1", "2", "9999", "'a'", "[", "]", "{", "}", ":", "loop", "range", ".items()", ".get", "x",
))  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(st.lists(TOKENS, max_size=25).map(" ".join))
def test_any_template_renders_or_is_refused(source: str) -> None:
    """Whatever stands in a template ends in a text, a DeclarationError or a TemplateError."""
    try:
        template = Template.parse("{{ " + source + " }}")
    except DeclarationError:
        return
    try:
        assert isinstance(template.render(SCOPE), str)
    except TemplateError:
        return
