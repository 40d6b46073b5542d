"""Reading one action of a DAG file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrt.declare.action import (
    DEFAULT_AGENT,
    Action,
    ActionType,
    Call,
    Effects,
    LatencyPrior,
    LlmCall,
    RetryCause,
    RetryPolicy,
    ToolCall,
)
from agentrt.declare.codes import Code
from agentrt.declare.fields import Fields
from agentrt.declare.guard import Guard
from agentrt.declare.parameters import parameter_problems
from agentrt.declare.template import Template, ValueTemplate
from agentrt.declare.yaml_nodes import Entry, Node

ACTION_KEYS = (
    "uses", "agent", "prompt", "choices", "needs", "if", "with", "timeout", "retry", "type", "latency", "effects",
)  # fmt: skip
TOOL_PREFIX = "tool/"
TOOL_TYPES = tuple(kind for kind in ActionType if kind not in (ActionType.LLM, ActionType.FUNCTION))


def read_action(fields: Fields, name: str, entry: Entry, agents: Mapping[str, Any]) -> Action | None:
    """Read an action; None when what it does cannot be told."""
    what = f"action {name!r}"
    entries = fields.mapping(entry.node, what, ACTION_KEYS)
    call, action_type = _read_call(fields, what, entries, entry, agents)
    guard = (
        fields.parse(Guard.parse, *_text_with_origin(fields, entries["if"].node, f"'if' of {what}"))
        if ("if" in entries)
        else None
    )
    retry = _read_retry(fields, entries["retry"].node, what) if "retry" in entries else None
    latency = _read_latency(fields, entries["latency"].node, what) if "latency" in entries else None
    needs = fields.texts(entries["needs"].node, f"'needs' of {what}") if "needs" in entries else []
    effects = fields.one_of(entries["effects"].node, f"'effects' of {what}", Effects) if "effects" in entries else None
    timeout_s = fields.duration(entries["timeout"].node, f"'timeout' of {what}") if "timeout" in entries else None
    if call is None:
        return None
    return Action(
        name=name,
        type=action_type,
        call=call,
        needs=frozenset(need for need, _ in needs),
        guard=guard,
        timeout_s=timeout_s,
        retry=retry,
        latency=latency,
        effects=Effects(effects) if effects else None,
        place=entry.place,
        key_places={
            **{key: item.node.place for key, item in entries.items()},
            **{f"needs.{need}": place for need, place in reversed(needs)},
        },
    )


def _text_with_origin(fields: Fields, node: Node, what: str) -> tuple[str, Any]:
    if isinstance(node.value, bool):
        # `if: true` is a condition too, and YAML has made a boolean of it.
        return str(node.value).lower(), node.origin
    text = fields.text(node, what)
    return ("true", None) if text is None else (text, node.origin)


def _read_call(
    fields: Fields, what: str, entries: Mapping[str, Entry], entry: Entry, agents: Mapping[str, Any]
) -> tuple[Call | None, ActionType]:
    if "uses" in entries:
        for key in ("prompt", "agent", "choices"):
            if key in entries:
                message = f"{what} has 'uses' and {key!r}: it either calls a tool or asks an agent"
                fields.note(Code.CONFLICTING_KEYS, message, entries[key].place, hint="make two actions of it")
        return _read_tool_call(fields, what, entries)
    if "prompt" in entries:
        return _read_llm_call(fields, what, entries, agents)
    if isinstance(entry.node.value, dict):
        hint = "write 'prompt:' to ask an agent, or 'uses: tool/NAME' to call a tool"
        fields.note(Code.MISSING_KEY, f"{what} does not say what it does", entry.place, hint=hint)
    return None, ActionType.TOOL


def _read_llm_call(
    fields: Fields, what: str, entries: Mapping[str, Entry], agents: Mapping[str, Any]
) -> tuple[Call | None, ActionType]:
    if "type" in entries:
        fields.one_of(entries["type"].node, f"'type' of {what}, which has a prompt,", [ActionType.LLM])
    agent = _read_agent_name(fields, what, entries, agents)
    prompt_node = entries["prompt"].node
    text = fields.text(prompt_node, f"'prompt' of {what}")
    if text is not None and not text.strip():
        fields.note(Code.BAD_VALUE, f"the prompt of {what} is empty", prompt_node.place)
    prompt = None if text is None else fields.parse(Template.parse, text, prompt_node.origin)
    parameters = read_parameters(fields, entries["with"].node, f"'with' of {what}") if "with" in entries else {}
    choices = _read_choices(fields, what, entries["choices"].node) if "choices" in entries else ()
    if prompt is None or agent is None:
        return None, ActionType.LLM
    return LlmCall(agent, prompt, choices, parameters), ActionType.LLM


def _read_agent_name(fields: Fields, what: str, entries: Mapping[str, Entry], agents: Mapping[str, Any]) -> str | None:
    if "agent" in entries:
        return fields.text(entries["agent"].node, f"'agent' of {what}")
    if len(agents) > 1:
        message = f"{what} does not say which agent it asks"
        fields.note(Code.NO_AGENT, message, entries["prompt"].place, hint=f"write agent: {' | '.join(agents)}")
        return None
    return next(iter(agents), DEFAULT_AGENT)


def _read_choices(fields: Fields, what: str, node: Node) -> tuple[str, ...]:
    choices: list[str] = []
    for text, place in fields.texts(node, f"'choices' of {what}"):
        if not text.strip():
            fields.note(Code.BAD_VALUE, f"an empty choice in {what}", place)
        elif text in choices:
            fields.note(Code.BAD_VALUE, f"the choice {text!r:.60} stands twice in {what}", place)
        else:
            choices.append(text)
    if not choices and node.value == []:
        fields.note(Code.BAD_VALUE, f"{what} has no choices to choose from", node.place)
    return tuple(choices)


def _read_tool_call(fields: Fields, what: str, entries: Mapping[str, Entry]) -> tuple[Call | None, ActionType]:
    action_type = ActionType.TOOL
    if "type" in entries:
        given = fields.one_of(entries["type"].node, f"'type' of {what}, which uses a tool,", TOOL_TYPES)
        action_type = ActionType(given) if given else action_type
    node = entries["uses"].node
    uses = fields.text(node, f"'uses' of {what}")
    tool = uses.removeprefix(TOOL_PREFIX) if uses is not None and uses.startswith(TOOL_PREFIX) else None
    if uses is not None and not tool:
        hint = (
            f"did you mean 'tool/{uses.rpartition('/')[2]}'?"
            if uses.strip("/")
            else "write, for instance, tool/retrieval"
        )
        fields.note(Code.BAD_VALUE, f"'uses' of {what} is {uses!r:.60}; expected tool/NAME", node.place, hint=hint)
    arguments: ValueTemplate | None = ValueTemplate.parse({})
    if "with" in entries:
        with_node = entries["with"].node
        if fields.mapping(with_node, f"'with' of {what}") or with_node.value == {}:
            arguments = fields.parse(ValueTemplate.parse, with_node.plain(), dict(with_node.origins()))
    if not tool or arguments is None:
        return None, action_type
    return ToolCall(tool, arguments), action_type


def read_parameters(fields: Fields, node: Node, what: str) -> dict[str, Any]:
    """Read sampling parameters; what is wrong with them is noted at its place."""
    entries = fields.mapping(node, what)
    parameters = {name: entry.node.plain() for name, entry in entries.items()}
    for name, message, hint in list(parameter_problems(parameters)):
        is_unknown = message.startswith("there is no")
        place = entries[name].place if is_unknown else entries[name].node.place
        fields.note(Code.UNKNOWN_KEY if is_unknown else Code.BAD_VALUE, f"{what}: {message}", place, hint=hint)
        del parameters[name]
    return parameters


def _read_retry(fields: Fields, node: Node, what: str) -> RetryPolicy | None:
    what = f"'retry' of {what}"
    if not isinstance(node.value, dict):
        attempts = fields.whole_number(node, what, 1, 100)
        return None if attempts is None else RetryPolicy(attempts)
    entries = fields.mapping(node, what, ("attempts", "on", "backoff", "max_backoff"))
    given: dict[str, Any] = {}
    if "attempts" in entries:
        given["attempts"] = fields.whole_number(entries["attempts"].node, f"'attempts' in {what}", 1, 100)
    if "on" in entries:
        node = entries["on"].node
        items = node.value if isinstance(node.value, list) else [node]
        causes = [fields.one_of(item, f"'on' in {what}", RetryCause) for item in items]
        given["on"] = frozenset(RetryCause(cause) for cause in causes if cause)
    for key, name in (("backoff", "backoff_s"), ("max_backoff", "max_backoff_s")):
        if key in entries:
            given[name] = fields.duration(entries[key].node, f"{key!r} in {what}")
    return RetryPolicy(**{name: value for name, value in given.items() if value is not None})


def _read_latency(fields: Fields, node: Node, what: str) -> LatencyPrior | None:
    what = f"'latency' of {what}"
    entries = fields.mapping(node, what, ("p50", "p99"))
    for key in ("p50", "p99"):
        if key not in entries and isinstance(node.value, dict):
            fields.note(
                Code.MISSING_KEY, f"{what} lacks {key!r}", node.place, hint="write latency: {p50: 200ms, p99: 1s}"
            )
    if len(entries) < 2:
        return None
    p50_s = fields.duration(entries["p50"].node, f"'p50' in {what}")
    p99_s = fields.duration(entries["p99"].node, f"'p99' in {what}")
    if p50_s is None or p99_s is None:
        return None
    if p50_s > p99_s:
        fields.note(Code.BAD_VALUE, f"{what}: p50 is longer than p99", node.place, hint="exchange them")
    return LatencyPrior(p50_s, p99_s)
