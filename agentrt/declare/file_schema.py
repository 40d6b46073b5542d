"""The JSON Schema of the DAG file format, with which editors complete keys and show mistakes while one types.

It is made from the tables that the reader of the format works with (its keys, enums, names and limits), so it cannot say
something else than the reader does. ``dag.schema.json`` beside this module is what it comes to, for editors that take a
path; ``scripts/dag_schema.py`` writes it.

It never refuses what the reader accepts. It accepts some of what the reader refuses, where JSON Schema has no words:
YAML itself (duplicate keys, merge keys), templates and guards, names that must be declared elsewhere in the file, two
values that must agree (the p99 and the deadline, a default and its schema), durations beyond 30 days, ``2.0`` for ``2``.

The form is that of draft 2020-12, in the part of it that editors which stopped at draft 7 read too, ``dependentRequired``
aside; what an action does is told apart with ``if`` and not with ``oneOf``, so that an editor names the one key that is
wrong and not three alternatives that do not fit.
"""

from __future__ import annotations

import json
from typing import Any

from agentrt.declare.action import ActionType
from agentrt.declare.action_fields import ACTION_KEYS, MAX_PARALLEL
from agentrt.declare.agent_fields import AGENT_KEYS, MODEL_KEYS
from agentrt.declare.call_fields import CALL_KEYS, LLM_ONLY_KEYS, TOOL_TYPES
from agentrt.declare.dag_file import DAG_KEYS
from agentrt.declare.file_schema_parts import (
    SOLID_TEXT,
    TEXT,
    USES,
    Schema,
    choice,
    closed,
    described,
    duration,
    ignore,
    json_schema,
    name,
    named,
    one_or_list,
    parameters,
    ref,
    type_or_schema,
    whole,
    whole_schema,
)
from agentrt.declare.limits import MAX_CHOICES
from agentrt.declare.policy import CacheTier, Effects, JoinKind, OnItemError, Reducer, RetryCause

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_GUARD: Schema = {"type": ["string", "boolean"]}
_ITEMS: Schema = {"anyOf": [{"type": "array"}, {"type": "string", "pattern": r"\{[{%]"}]}


def file_schema() -> Schema:
    """Return the JSON Schema (2020-12) of a DAG file."""
    return {
        "$schema": DIALECT,
        "title": "agentrt DAG file",
        "description": "Who acts (agents), what is done (actions), and what comes out (outputs).",
        **_dag(),
        "$defs": {
            "name": name(),
            "duration": duration(),
            "ignore": ignore(),
            "parameters": parameters(),
            "json_schema": json_schema(),
            "agent": _agent(),
            "action": _action(),
            "call": _call(),
            "fallback": _fallback(),
        },
    }


def file_schema_text() -> str:
    """Return the JSON Schema as the text of a file."""
    return json.dumps(file_schema(), indent=2, ensure_ascii=False) + "\n"


def _dag() -> Schema:
    slo = closed(
        ("p99", "deadline"),
        {
            "p99": described("99 of 100 runs are to end within this time.", ref("duration")),
            "deadline": described("Every run is stopped after this time.", ref("duration")),
        },
    )
    edge = closed(
        ("from", "to", "guard", "stream"),
        {
            "from": described("The action that comes first.", TEXT),
            "to": described("The action that waits for it.", TEXT),
            "guard": described("A condition in CEL on which the edge is taken; reads inputs and its source.", _GUARD),
            "stream": described("The target may begin at the first token.", {"type": "boolean"}),
        },
        required=["from", "to"],
    )
    input_ = type_or_schema(
        "The name of a JSON Schema type, or a JSON Schema with 'default' and 'description' beside it.",
        {"default": described("The value where none is given; without it the input is required.", {})},
    )
    state_field = type_or_schema(
        "The name of a JSON Schema type, or a JSON Schema with 'reducer' and 'initial' beside it.",
        {
            "reducer": described("How a written value meets the one that is there.", choice(Reducer)),
            "initial": described("The value to begin with.", {}),
        },
    )
    return closed(
        DAG_KEYS,
        {
            "name": described("The name of the Dag.", SOLID_TEXT),
            "description": described("What it is for.", TEXT),
            "inputs": described("What a run is given: name -> type or JSON Schema.", named(input_)),
            "outputs": described("What comes out: name -> a value with templates in it.", named({})),
            "slo": described(
                "The p99 alone, or {p99, deadline}.",
                {"anyOf": [ref("duration"), slo]},
            ),
            "agents": described("Who acts: name -> an agent.", named(ref("agent"))),
            "state": described("Fields that the actions of one run share.", named(state_field)),
            "actions": described("What is done: name -> an action.", named(ref("action"), minProperties=1)),
            "edges": described("Edges stated on their own.", {"type": "array", "items": edge}),
            "ignore": ref("ignore"),
        },
        required=["name", "outputs", "actions"],
    )


def _agent() -> Schema:
    model = closed(
        MODEL_KEYS,
        {
            "name": described("The name that the server knows the model by.", TEXT),
            "endpoint": described(
                "The address of an OpenAI-compatible server; no user name or password in it.",
                {"type": "string", "pattern": r"^https?://[^/@]*(?:/|$)", "examples": ["https://example.com/v1"]},
            ),
            "api_key_env": described("The environment variable that holds the key.", TEXT),
        },
        required=["name"],
        dependentRequired={"api_key_env": ["endpoint"]},
    )
    agent = closed(
        AGENT_KEYS,
        {
            "model": described(
                "A name of the catalog, a path, or {name, endpoint, api_key_env}.", {"anyOf": [SOLID_TEXT, model]}
            ),
            "instructions": described("What the model is told before every prompt.", TEXT),
            "with": described("Sampling parameters of all the agent's actions.", ref("parameters")),
            "dag": described("The file of the Dag that the agent runs, in place of all other keys.", TEXT),
        },
        **_when({"required": ["dag"]}, _without(key for key in AGENT_KEYS if key != "dag")),
    )
    return {"anyOf": [{"type": "null"}, agent]}


def _call_parts() -> dict[str, Schema]:
    """Describe the keys that say what an action does; which of them go together is said by ``_call``."""
    types = dict.fromkeys((ActionType.LLM, *TOOL_TYPES, ActionType.DAG, ActionType.AGENT, ActionType.HUMAN))
    return {
        "uses": described(
            "tool/NAME, dag/FILE or agent/NAME.",
            {**USES, "examples": ["tool/retrieval", "dag/other.yaml", "agent/expert"]},
        ),
        "agent": described("Which agent is asked; may be left out where there is one.", TEXT),
        "prompt": described("A template; the output is the text of the answer.", SOLID_TEXT),
        "choices": described(
            "The answer is exactly one of these.",
            one_or_list(SOLID_TEXT, minItems=1, maxItems=MAX_CHOICES, uniqueItems=True),
        ),
        "output_schema": described("The answer is read as JSON and must fit this JSON Schema.", whole_schema()),
        "human": described("A template: the question a person is asked.", SOLID_TEXT),
        "with": described(
            "For a tool or a Dag its arguments, with templates in them; for a prompt sampling parameters.",
            {"type": "object"},
        ),
        "type": described("What kind of work it is; left out: what the tool declares.", choice(types)),
    }


def _call() -> Schema:
    """Say which keys go together, in the order of the reader: 'uses' decides, then 'human', then 'prompt'."""
    asks_model = {"required": ["prompt"], **_without(("uses", "human"))}
    asks_person = {"required": ["human"], **_without(("uses",))}
    only_llm = _without(LLM_ONLY_KEYS)["properties"]

    def uses(prefix: str) -> Schema:
        return {"required": ["uses"], "properties": {"uses": {"type": "string", "pattern": f"^{prefix}"}}}

    def only(*types: ActionType) -> Schema:
        return {"properties": {"type": choice(types)}}

    rules = [
        _when({"required": ["uses"]}, {"properties": {**only_llm, "human": False}}),
        _when(uses("tool/"), only(*TOOL_TYPES)),
        _when(uses("dag/"), only(ActionType.DAG)),
        _when(uses("agent/"), only(ActionType.AGENT)),
        _when(asks_person, {"properties": {**only_llm, "with": False, **only(ActionType.HUMAN)["properties"]}}),
        _when(asks_model, {"properties": {"with": ref("parameters"), **only(ActionType.LLM)["properties"]}}),
        _when({**asks_model, "required": ["prompt", "choices"]}, _without(("output_schema",))),
    ]
    return {"anyOf": [{"required": [key]} for key in ("prompt", "uses", "human")], "allOf": rules}


def _action() -> Schema:
    n_of = closed(("n_of",), {"n_of": described("How many edges must be live.", whole(1, 10_000))}, required=["n_of"])
    for_each = closed(
        ("items", "max_parallel", "on_error"),
        {
            "items": described("A list, or a template that gives one.", _ITEMS),
            "max_parallel": described("How many items are done at the same time.", whole(1, MAX_PARALLEL)),
            "on_error": described("What becomes of an item that failed for good.", choice(OnItemError)),
        },
        required=["items"],
    )
    attempts = described("How often it is tried, the first time included.", whole(1, 100))
    retry = closed(
        ("attempts", "on", "backoff", "max_backoff"),
        {
            "attempts": attempts,
            "on": described("The kinds of failure it is tried again on.", one_or_list(choice(RetryCause))),
            "backoff": described("The first wait; each one after it is twice as long.", ref("duration")),
            "max_backoff": described("The longest wait.", ref("duration")),
        },
    )
    latency = closed(
        ("p50", "p99"),
        {
            "p50": described("Half of all calls take less.", ref("duration")),
            "p99": described("99 of 100 calls take less.", ref("duration")),
        },
        required=["p50", "p99"],
    )
    joins = choice(kind for kind in JoinKind if kind is not JoinKind.N_OF)
    parts = {
        **_call_parts(),
        "needs": described("Actions to wait for without reading them.", one_or_list(TEXT)),
        "if": described("A condition in CEL on which the action runs.", _GUARD),
        "join": described("Which of the edges into it it wants; left out: all.", {"anyOf": [joins, n_of]}),
        "for_each": described(
            "Done once for each item of a list; templates read 'item' and 'item_index'.", {"anyOf": [_ITEMS, for_each]}
        ),
        "optional": described("Others do without it where it fails or is skipped.", {"type": "boolean"}),
        "fallback": described("What stands in when it failed for good: {value: ...} or a call.", ref("fallback")),
        "timeout": described("How long one attempt may take.", ref("duration")),
        "retry": described(
            "How many attempts, or {attempts, on, backoff, max_backoff}.", {"anyOf": [whole(1, 100), retry]}
        ),
        "latency": described("What you expect it to take, until it was measured.", latency),
        "effects": described("What running it twice does to the world.", choice(Effects)),
        "writes": described("State field -> a template of what is written to it.", {"type": "object"}),
        "cache": described("How alike a prompt must be to one answered before.", choice(CacheTier)),
        "ignore": ref("ignore"),
    }
    return closed(ACTION_KEYS, parts, allOf=[ref("call")])


def _fallback() -> Schema:
    calls = {key: ref(f"action/properties/{key}") for key in CALL_KEYS}
    by_kind = {**_when({"required": ["value"]}, _without(CALL_KEYS)), "else": ref("call")}
    value = described("The output instead; may hold templates.", {})
    return closed(("value", *CALL_KEYS), {"value": value, **calls}, **by_kind)


def _when(condition: Schema, then: Schema) -> Schema:
    return {"if": condition, "then": then}


def _without(keys: Any) -> Schema:
    """Refuse keys, each at its own place."""
    return {"properties": dict.fromkeys(keys, False)}
