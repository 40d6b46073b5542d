"""Random Dags for property tests: every field a file can hold, with awkward texts in it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from agentrt.declare.action import Action, ActionType
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.call import Fallback, LlmCall, ToolCall
from agentrt.declare.call_fields import TOOL_TYPES
from agentrt.declare.dag import Dag, Edge, Input, Slo, StateField
from agentrt.declare.guard import Guard
from agentrt.declare.policy import (
    CacheTier,
    Effects,
    ForEach,
    Join,
    JoinKind,
    LatencyPrior,
    OnItemError,
    Reducer,
    RetryCause,
    RetryPolicy,
)
from agentrt.declare.template import Template, ValueTemplate

NAMES = st.sampled_from(
    ["a", "b1", "_", "long_name", "Question", "items", "output", "x0", "yes", "none", "null_", "loop"]
)
AWKWARD = st.sampled_from((
    "yes", "null", "~", "3", "0x1f", "0o7", "1e3", "1_000", ".5", "2026-01-02", "1:30", "- a", "a: b", "# c", "*x",
    "&x", "!t", "'", '"', "a\nb", "a\n", "\na", " a", "a ", "\ta", "a\n\n\nb\n", "  a\n b", "{", "[", "%", "@", "|",
    "é…🦊", "\\n", "a\r\nb", "a\x0bb", "\u2028", "\ufeff", "<<", "=", "on", "?", "---", "...", ".inf", "",
))  # fmt: skip
TEXTS = st.one_of(
    AWKWARD,
    st.text(
        st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="{", include_characters="\n"), max_size=9
    ),
)
SOLID_TEXTS = TEXTS.map(lambda text: text if text.strip() else "solid")
DURATIONS_S = st.one_of(
    st.integers(1, 10_000).map(lambda ms: ms / 1000), st.sampled_from([0.001, 0.25, 60.0, 90.0, 3600.0, 1 / 3])
)
STATE_FIELDS = ["notes", "seen"]
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=4,
)
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "max_tokens": st.integers(1, 9999),
        "temperature": st.sampled_from([0, 0.5, 1]),
        "top_p": st.sampled_from([0.5, 1.0]),
        "top_k": st.integers(1, 50),
        "seed": st.integers(0, 2**64 - 1),
        "stop": st.one_of(SOLID_TEXTS, st.lists(SOLID_TEXTS, min_size=1, max_size=3)),
    },
)
SCHEMAS = st.one_of(
    st.sampled_from(["string", "integer", "number", "boolean", "array", "object"]).map(lambda kind: {"type": kind}),
    st.just({}),
    st.just({"type": "array", "items": {"type": "string", "pattern": "^a+$"}}),
    st.builds(lambda choices: {"enum": choices}, st.lists(TEXTS, min_size=1, max_size=3, unique=True)),
)


@st.composite
def inputs(draw: st.DrawFn, name: str) -> Input:
    if draw(st.booleans()):
        return Input(name, draw(SCHEMAS), draw(TEXTS))
    return Input(name, {}, draw(TEXTS), default=draw(VALUES), required=False)


@st.composite
def agents(draw: st.DrawFn, name: str) -> Agent:
    model_name = SOLID_TEXTS.map(str.strip)
    model = draw(
        st.one_of(
            st.none(),
            st.builds(ModelRef, model_name),
            st.builds(ModelRef, model_name, st.just("https://example.org/v1"), st.one_of(st.none(), st.just("KEY"))),
        )
    )
    return Agent(name, draw(TEXTS), model, draw(PARAMETERS))


@st.composite
def actions(draw: st.DrawFn, name: str, earlier: list[str], input_names: list[str], agent_names: list[str]) -> Action:
    references = [f"{{{{ inputs.{known} }}}}" for known in input_names]
    references += [f"{{{{ actions.{known}.output }}}}" for known in earlier]
    references += [f"{{{{ actions.{known}.status | upper }}}}" for known in earlier]
    pieces = st.lists(
        st.one_of(TEXTS.map(lambda text: text.replace("{", "(")), st.sampled_from(references or ["x"])), max_size=3
    )
    texts = pieces.map("".join)
    call: LlmCall | ToolCall
    if agent_names and draw(st.booleans()):
        action_type = ActionType.LLM
        choices = draw(st.lists(SOLID_TEXTS, max_size=3, unique=True))
        prompt = Template.parse(draw(texts.map(lambda text: text if text.strip() else "solid")))
        call = LlmCall(draw(st.sampled_from(agent_names)), prompt, tuple(choices), draw(PARAMETERS))
    else:
        action_type = draw(st.sampled_from(TOOL_TYPES))
        arguments = draw(st.dictionaries(NAMES, st.one_of(texts, VALUES), max_size=3))
        call = ToolCall(draw(NAMES), ValueTemplate.parse(arguments))
    sources = ["true"] + [f"string(inputs.{known}) == 'x'" for known in input_names]
    sources += [f"actions.{known}.status == 'succeeded'" for known in earlier]
    retry = st.builds(
        RetryPolicy, st.integers(1, 9), st.frozensets(st.sampled_from(RetryCause), min_size=1), DURATIONS_S, DURATIONS_S
    )
    drawn_retry = draw(st.one_of(st.none(), retry))
    # What writes is not tried again.
    harmless = [effects for effects in Effects if effects is not Effects.WRITE or drawn_retry is None]
    values = st.one_of(VALUES, st.sampled_from(references or ["x"])).map(ValueTemplate.parse)
    own_items = ["{{ inputs.x0 }}"] if "x0" in input_names else [1]
    items = st.one_of(st.lists(VALUES, max_size=2), st.just(own_items)).map(ValueTemplate.parse)
    each = st.builds(ForEach, items, st.one_of(st.none(), st.integers(1, 9)), st.sampled_from(OnItemError))
    return Action(
        name=name,
        type=action_type,
        call=call,
        needs=draw(st.frozensets(st.sampled_from(earlier), max_size=2)) if earlier else frozenset(),
        guard=draw(st.one_of(st.none(), st.sampled_from(sources).map(Guard.parse))),
        timeout_s=draw(st.one_of(st.none(), DURATIONS_S)),
        retry=drawn_retry,
        latency=draw(st.one_of(st.none(), DURATIONS_S.map(lambda s: LatencyPrior(s, s * 2)))),
        effects=draw(st.one_of(st.none(), st.sampled_from(harmless))),
        join=draw(st.sampled_from([Join(), Join(JoinKind.ANY), Join(JoinKind.FIRST_SUCCESS)])),
        optional=draw(st.booleans()),
        fallback=draw(st.one_of(st.none(), values.map(lambda value: Fallback(value=value)))),
        for_each=draw(st.one_of(st.none(), each)),
        writes={
            field: draw(values) for field in draw(st.lists(st.sampled_from(STATE_FIELDS), unique=True, max_size=1))
        },
        cache=draw(st.one_of(st.none(), st.sampled_from(CacheTier))),
        ignore=draw(st.dictionaries(st.sampled_from(["DAG054", "DAG056"]), SOLID_TEXTS.map(str.strip), max_size=1)),
    )


@st.composite
def dags(draw: st.DrawFn, max_actions: int = 4) -> Dag:
    """Draw a Dag without cycles in which everything that is referred to is there."""
    input_names = draw(st.lists(NAMES, max_size=2, unique=True))
    agent_names = draw(st.lists(NAMES, max_size=2, unique=True))
    action_names = draw(st.lists(NAMES, min_size=1, max_size=max_actions, unique=True))
    made: dict[str, Action] = {}
    for name in action_names:
        made[name] = draw(actions(name, list(made), input_names, agent_names))
    outputs: Any = st.one_of(VALUES, st.sampled_from([f"{{{{ actions.{name}.output }}}}" for name in made]))
    # Longer than any path of latencies drawn above.
    p99_s, deadline_s = draw(st.one_of(st.none(), DURATIONS_S)), draw(st.sampled_from([None, 100 * 3600.0]))
    pairs = [(source, target) for index, target in enumerate(made) for source in list(made)[:index]]
    ends = draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True)) if pairs else []
    guards = st.sampled_from([None, "true", "1 < 2"]).map(lambda text: Guard.parse(text) if text else None)
    return Dag(
        name=draw(SOLID_TEXTS),
        actions=made,
        outputs={
            name: ValueTemplate.parse(source)
            for name, source in draw(st.dictionaries(NAMES, outputs, min_size=1, max_size=3)).items()
        },
        inputs={name: draw(inputs(name)) for name in input_names},
        agents={name: draw(agents(name)) for name in agent_names},
        description=draw(TEXTS),
        slo=Slo(p99_s, deadline_s),
        edges=tuple(Edge(source, target, draw(guards)) for source, target in ends),
        state={name: StateField(name, {"type": "array"}, Reducer.APPEND, []) for name in STATE_FIELDS},
        ignore=draw(st.dictionaries(st.just("DAG051"), SOLID_TEXTS.map(str.strip), max_size=1)),
    )
