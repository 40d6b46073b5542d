"""Reading what an action of a DAG file does: the keys that say whom it asks, or what it uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrt.declare.action import DEFAULT_AGENT, ActionType
from agentrt.declare.agent import Agent
from agentrt.declare.call import Call, DagCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.codes import Code
from agentrt.declare.fields import Fields
from agentrt.declare.json_schema import schema_problem
from agentrt.declare.limits import MAX_CHOICES
from agentrt.declare.parameters import parameter_problems
from agentrt.declare.sub_dags import SubDags
from agentrt.declare.template import Template, ValueTemplate
from agentrt.declare.yaml_nodes import Entry, Node
from agentrt.errors import Place, nearest_match

CALL_KEYS = ("uses", "agent", "prompt", "choices", "output_schema", "human", "with", "type")
USES_PREFIXES = ("tool/", "dag/", "agent/")
LLM_ONLY_KEYS = ("prompt", "agent", "choices", "output_schema")
TOOL_TYPES = (
    ActionType.RETRIEVAL, ActionType.RERANK, ActionType.TOOL, ActionType.HTTP, ActionType.FORMAT, ActionType.VALIDATE,
)  # fmt: skip


class CallReader:
    """Reads calls; ``agents`` are those of the file."""

    def __init__(self, fields: Fields, agents: Mapping[str, Agent], sub_dags: SubDags) -> None:
        self._fields = fields
        self._agents = agents
        self._sub_dags = sub_dags

    def read(self, what: str, entries: Mapping[str, Entry], place: Place) -> tuple[Call, ActionType] | None:
        """Read what an action or a fallback does; None when that cannot be told."""
        deciding = [key for key in ("uses", "human", "prompt") if key in entries]
        if not deciding:
            hint = "write 'prompt:' to ask an agent, 'uses:' for a tool, a Dag or an agent, or 'human:' to ask a person"
            self._fields.note(Code.MISSING_KEY, f"{what} does not say what it does", place, hint=hint)
            return None
        if deciding[0] != "prompt":
            for key in dict.fromkeys((*LLM_ONLY_KEYS, *deciding[1:])):
                if key in entries:
                    message = f"{what} has {deciding[0]!r} and {key!r}: it does one thing or the other"
                    self._fields.note(Code.CONFLICTING_KEYS, message, entries[key].place, hint="make two actions of it")
        match deciding[0]:
            case "uses":
                return self._read_uses(what, entries)
            case "human":
                return self._read_human(what, entries)
        return self._read_llm_call(what, entries)

    def _read_llm_call(self, what: str, entries: Mapping[str, Entry]) -> tuple[Call, ActionType] | None:
        fields = self._fields
        self._fixed_type(what, entries, ActionType.LLM, "which has a prompt")
        agent = self._read_agent_name(what, entries)
        prompt = self._read_prompt(f"'prompt' of {what}", f"the prompt of {what}", entries["prompt"].node)
        parameters = read_parameters(fields, entries["with"].node, f"'with' of {what}") if "with" in entries else {}
        choices = _read_choices(fields, what, entries["choices"].node) if "choices" in entries else ()
        schema = None
        if "output_schema" in entries:
            schema = _read_output_schema(fields, what, entries["output_schema"])
            if "choices" in entries:
                message = f"{what} has 'choices' and 'output_schema': the answer is one or the other"
                fields.note(Code.CONFLICTING_KEYS, message, entries["output_schema"].place)
        if prompt is None or agent is None:
            return None
        return LlmCall(agent, prompt, choices, parameters, schema), ActionType.LLM

    def _read_prompt(self, key: str, what: str, node: Node) -> Template | None:
        text = self._fields.text(node, key)
        if text is not None and not text.strip():
            self._fields.note(Code.BAD_VALUE, f"{what} is empty", node.place)
        return None if text is None else self._fields.parse(Template.parse, text, node.origin)

    def _read_agent_name(self, what: str, entries: Mapping[str, Entry]) -> str | None:
        if "agent" in entries:
            return self._fields.text(entries["agent"].node, f"'agent' of {what}")
        if len(self._agents) > 1:
            message = f"{what} does not say which agent it asks"
            hint = f"write agent: {' | '.join(self._agents)}"
            self._fields.note(Code.NO_AGENT, message, entries["prompt"].place, hint=hint)
            return None
        return next(iter(self._agents), DEFAULT_AGENT)

    def _read_human(self, what: str, entries: Mapping[str, Entry]) -> tuple[Call, ActionType] | None:
        self._fixed_type(what, entries, ActionType.HUMAN, "which asks a person")
        if "with" in entries:
            message = f"'with' has no effect in {what}, which asks a person"
            self._fields.note(Code.CONFLICTING_KEYS, message, entries["with"].place)
        question = self._read_prompt(f"'human' of {what}", f"the question of {what}", entries["human"].node)
        return None if question is None else (HumanCall(question), ActionType.HUMAN)

    def _read_uses(self, what: str, entries: Mapping[str, Entry]) -> tuple[Call, ActionType] | None:
        fields = self._fields
        node = entries["uses"].node
        uses = fields.text(node, f"'uses' of {what}")
        if uses is None:
            return None
        prefix = next((prefix for prefix in USES_PREFIXES if uses.startswith(prefix)), None)
        name = uses.removeprefix(prefix).strip() if prefix else ""
        if not name:
            hint = (
                f"did you mean 'tool/{uses.rpartition('/')[2]}'?"
                if uses.strip("/")
                else "write, for instance, tool/retrieval"
            )
            message = f"'uses' of {what} is {uses!r:.60}; expected tool/NAME, dag/FILE or agent/NAME"
            fields.note(Code.BAD_VALUE, message, node.place, hint=hint)
            return None
        match prefix:
            case "tool/":
                return self._read_tool_call(what, name, entries)
            case "dag/":
                self._fixed_type(what, entries, ActionType.DAG, "which uses a Dag")
                dag = self._sub_dags.load(fields, name, node.place)
                arguments = self._read_arguments(what, entries)
                return None if dag is None or arguments is None else (DagCall(dag, arguments, name), ActionType.DAG)
        return self._read_agent_call(what, name, entries)

    def _read_agent_call(self, what: str, name: str, entries: Mapping[str, Entry]) -> tuple[Call, ActionType] | None:
        fields = self._fields
        self._fixed_type(what, entries, ActionType.AGENT, "which uses an agent")
        agent = self._agents.get(name)
        if agent is None:
            match = nearest_match(name, self._agents)
            hint = f"did you mean {match!r}?" if match else f"known agents: {', '.join(self._agents) or 'none'}"
            message = f"{what} uses the agent {name!r:.60}, which is not declared"
            fields.note(Code.UNKNOWN_AGENT, message, entries["uses"].node.place, hint=hint)
            return None
        if agent.dag_source is not None:
            arguments = self._read_arguments(what, entries)
            if agent.dag is None or arguments is None:
                return None
            return DagCall(agent.dag, arguments, agent.dag_source, agent=name), ActionType.AGENT
        message = f"{what} uses the agent {name!r}, which has no Dag of its own"
        hint = f"write 'agent: {name}' and 'prompt:' to ask its model, or give the agent 'dag: FILE'"
        fields.note(Code.BAD_VALUE, message, entries["uses"].node.place, hint=hint)
        return None

    def _read_tool_call(self, what: str, name: str, entries: Mapping[str, Entry]) -> tuple[Call, ActionType] | None:
        action_type = ActionType.TOOL
        if "type" in entries:
            given = self._fields.one_of(entries["type"].node, f"'type' of {what}, which uses a tool,", TOOL_TYPES)
            action_type = ActionType(given) if given else action_type
        arguments = self._read_arguments(what, entries)
        return None if arguments is None else (ToolCall(name, arguments), action_type)

    def _read_arguments(self, what: str, entries: Mapping[str, Entry]) -> ValueTemplate | None:
        if "with" not in entries:
            return ValueTemplate.parse({})
        node = entries["with"].node
        if not self._fields.mapping(node, f"'with' of {what}") and node.value != {}:
            return ValueTemplate.parse({})
        return self._fields.parse(ValueTemplate.parse, node.plain(), dict(node.origins()))

    def _fixed_type(self, what: str, entries: Mapping[str, Entry], action_type: ActionType, why: str) -> None:
        if "type" in entries:
            self._fields.one_of(entries["type"].node, f"'type' of {what}, {why},", [action_type])


def _read_output_schema(fields: Fields, what: str, entry: Entry) -> Mapping[str, Any] | None:
    if not isinstance(entry.node.value, dict):
        fields.note(Code.WRONG_TYPE, f"'output_schema' of {what} is a JSON Schema, a mapping", entry.node.place)
        return None
    fields.charge_schema(entry.node)
    schema: Mapping[str, Any] = entry.node.plain()
    problem = schema_problem(schema)
    if problem is not None:
        fields.note(Code.BAD_SCHEMA, f"'output_schema' of {what}: {problem}", entry.place)
        return None
    return schema


def _read_choices(fields: Fields, what: str, node: Node) -> tuple[str, ...]:
    choices: dict[str, None] = {}
    for text, place in fields.texts(node, f"'choices' of {what}"):
        if not text.strip():
            fields.note(Code.BAD_VALUE, f"an empty choice in {what}", place)
        elif text in choices:
            fields.note(Code.BAD_VALUE, f"the choice {text!r:.60} stands twice in {what}", place)
        else:
            choices[text] = None
    if len(choices) > MAX_CHOICES:
        fields.note(Code.BAD_VALUE, f"{what} has {len(choices):,} choices; the limit is {MAX_CHOICES:,}", node.place)
    if not choices and node.value == []:
        fields.note(Code.BAD_VALUE, f"{what} has no choices to choose from", node.place)
    return tuple(choices)


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
