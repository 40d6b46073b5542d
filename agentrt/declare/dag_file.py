"""A DAG file: YAML in, Dag out, and every mistake in it told at once with its place.

Reading goes on after a mistake wherever something sensible follows, so that a file with five mistakes needs one look and
not five. What is wrong only in the light of the whole Dag (cycles, unknown references) is found by ``compile.check``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrt.declare.action import DEFAULT_AGENT, Action, LlmCall
from agentrt.declare.action_fields import read_action, read_parameters
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag, Input, Slo
from agentrt.declare.fields import Fields, TooManyMistakesError
from agentrt.declare.json_schema import misfit, schema_problem
from agentrt.declare.limits import MAX_FILE_BYTES
from agentrt.declare.template import ValueTemplate
from agentrt.declare.yaml_nodes import Entry, Node, read_yaml
from agentrt.errors import DeclarationError, Diagnostic, Place, nearest_match

DAG_KEYS = ("name", "description", "inputs", "outputs", "slo", "agents", "actions")
AGENT_KEYS = ("model", "instructions", "with")
MODEL_KEYS = ("name", "endpoint", "api_key_env")
SECRET_KEYS = ("api_key", "apikey", "key", "token", "password", "secret")
SCHEMA_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")


@dataclass(frozen=True, slots=True)
class DagReading:
    """What came of reading a file: the Dag as far as it could be read, and everything that is wrong.

    ``unread_actions`` are declared in the file but could not be read; ``dag`` lacks them.
    """

    dag: Dag | None
    diagnostics: tuple[Diagnostic, ...]
    unread_actions: frozenset[str] = frozenset()

    def dag_or_raise(self) -> Dag:
        """Return the Dag.

        Raises:
            DeclarationError: something is wrong.
        """
        if self.diagnostics:
            raise DeclarationError(self.diagnostics)
        assert self.dag is not None
        return self.dag


def load_dag_file(path: str | Path) -> Dag:
    """Read a DAG file; relative paths in it start from its folder.

    Raises:
        DeclarationError: the file cannot be read, or something in it is wrong; tells everything that is.
    """
    return read_dag_file(path).dag_or_raise()


def parse_dag(text: str | bytes, *, file: str = "<text>", base_dir: Path | None = None) -> Dag:
    """Read a Dag from YAML.

    Raises:
        DeclarationError: something in it is wrong; tells everything that is.
    """
    return read_dag(text, file=file, base_dir=base_dir).dag_or_raise()


def read_dag_file(path: str | Path) -> DagReading:
    """Read a DAG file as far as it can be read; never raises."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            # One byte more than allowed is enough to know that it is too much.
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        hint = _file_like(path) if isinstance(error, FileNotFoundError) else None
        message = f"the file cannot be read: {reason}"
        return DagReading(None, (diagnose(Code.UNREADABLE_FILE, message, Place(str(path)), hint=hint),))
    return read_dag(data, file=str(path), base_dir=path.resolve().parent)


def read_dag(text: str | bytes, *, file: str = "<text>", base_dir: Path | None = None) -> DagReading:
    """Read YAML as far as it can be read; never raises."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        root, diagnostics = read_yaml(data, file)
    except DeclarationError as error:
        return DagReading(None, error.diagnostics)
    fields = Fields(diagnostics)
    try:
        dag, unread = _read_dag(fields, root, base_dir)
    except TooManyMistakesError:
        dag, unread = None, frozenset()
    return DagReading(dag, tuple(sorted(fields.diagnostics, key=_by_place)), unread)


def _file_like(path: Path) -> str | None:
    """Name the DAG file beside ``path`` whose name is most like it."""
    try:
        beside = {entry.stem: entry for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")}
    except OSError:
        return None
    match = nearest_match(path.stem, beside)
    return f"did you mean {str(beside[match])!r}?" if match else None


def _by_place(diagnostic: Diagnostic) -> tuple[int, int]:
    place = diagnostic.place
    return (place.line or 0, place.column or 0) if place else (0, 0)


def _read_dag(fields: Fields, root: Node, base_dir: Path | None) -> tuple[Dag | None, frozenset[str]]:
    entries = fields.mapping(root, "a DAG file", DAG_KEYS)
    for key in ("name", "outputs", "actions"):
        if key not in entries and isinstance(root.value, dict):
            fields.note(Code.MISSING_KEY, f"the key {key!r} is missing", root.place)
    name = fields.text(entries["name"].node, "'name'") if "name" in entries else None
    if name is not None and not name.strip():
        fields.note(Code.BAD_VALUE, "'name' is empty", entries["name"].node.place)
    description = fields.text(entries["description"].node, "'description'") if "description" in entries else None
    entries_of_inputs = _named(fields, entries, "inputs")
    inputs = {n: _read_input(fields, n, e) for n, e in entries_of_inputs.items()}
    agents = {n: _read_agent(fields, n, e) for n, e in _named(fields, entries, "agents").items()}
    actions: dict[str, Action] = {}
    action_entries = _named(fields, entries, "actions")
    for action_name, entry in action_entries.items():
        action = read_action(fields, action_name, entry, agents)
        if action is not None:
            actions[action_name] = action
    if "actions" in entries and entries["actions"].node.value == {}:
        fields.note(Code.BAD_VALUE, "'actions' is empty: there is nothing to do", entries["actions"].place)
    outputs: dict[str, ValueTemplate] = {}
    for output_name, entry in _named(fields, entries, "outputs").items():
        template = fields.parse(ValueTemplate.parse, entry.node.plain(), dict(entry.node.origins()))
        if template is not None:
            outputs[output_name] = template
    slo = _read_slo(fields, entries["slo"].node) if "slo" in entries else Slo()
    if not agents and any(isinstance(action.call, LlmCall) for action in actions.values()):
        agents = {DEFAULT_AGENT: Agent(DEFAULT_AGENT)}
    unread = frozenset(action_entries) - frozenset(actions)
    dag = Dag(
        name=name or "",
        actions=actions,
        outputs=outputs,
        inputs={n: i or Input(n, {}, place=entries_of_inputs[n].place) for n, i in inputs.items()},
        agents=agents,
        description=description or "",
        slo=slo,
        place=root.place,
        base_dir=base_dir,
    )
    return (dag if isinstance(root.value, dict) else None), unread


def _named(fields: Fields, entries: Mapping[str, Entry], key: str) -> Mapping[str, Entry]:
    return fields.named(entries[key].node, f"{key!r}") if key in entries else {}


def _read_input(fields: Fields, name: str, entry: Entry) -> Input | None:
    what = f"input {name!r}"
    if isinstance(entry.node.value, str):
        type_name = fields.one_of(entry.node, what, SCHEMA_TYPES)
        return Input(name, {"type": type_name}, place=entry.place) if type_name else None
    schema = {key: item.node.plain() for key, item in fields.mapping(entry.node, what).items()}
    description = schema.pop("description", "")
    has_default, default = "default" in schema, schema.pop("default", None)
    if not isinstance(description, str):
        fields.note(Code.WRONG_TYPE, f"the description of {what} is no text", entry.place)
        description = ""
    problem = schema_problem(schema)
    if problem is not None:
        fields.note(Code.BAD_SCHEMA, f"{what}: {problem}", entry.place)
        return None
    if has_default and (problem := misfit(default, schema)) is not None:
        fields.note(Code.BAD_DEFAULT, f"the default of {what} does not fit: {problem}", entry.place)
    return Input(name, schema, description, default, required=not has_default, place=entry.place)


def _read_agent(fields: Fields, name: str, entry: Entry) -> Agent:
    what = f"agent {name!r}"
    if entry.node.value is not None and _holds_secret(fields, entry.node, what):
        return Agent(name, place=entry.place)
    entries = fields.mapping(entry.node, what, AGENT_KEYS) if entry.node.value is not None else {}
    instructions = (
        fields.text(entries["instructions"].node, f"'instructions' of {what}") if "instructions" in entries else ""
    )
    parameters = read_parameters(fields, entries["with"].node, f"'with' of {what}") if "with" in entries else {}
    model = _read_model(fields, entries["model"].node, f"'model' of {what}") if "model" in entries else None
    return Agent(name, instructions or "", model, parameters, place=entry.place)


def _read_model(fields: Fields, node: Node, what: str) -> ModelRef | None:
    if isinstance(node.value, str):
        if node.value.strip():
            return ModelRef(node.value.strip())
        fields.note(Code.BAD_VALUE, f"{what} is empty", node.place)
        return None
    if _holds_secret(fields, node, what):
        return None
    entries = fields.mapping(node, what, MODEL_KEYS)
    given = {key: fields.text(entry.node, f"{key!r} in {what}") for key, entry in entries.items()}
    if isinstance(node.value, dict) and "name" not in entries:
        fields.note(Code.MISSING_KEY, f"{what} lacks 'name'", node.place)
    endpoint = given.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        message = f"'endpoint' in {what} is {endpoint!r:.80}; expected an http:// or https:// address"
        fields.note(Code.BAD_VALUE, message, entries["endpoint"].node.place)
    if endpoint is not None and "@" in endpoint.partition("://")[2].partition("/")[0]:
        hint = "write api_key_env: NAME instead"
        fields.note(Code.SECRET, f"'endpoint' in {what} holds a user name or password", node.place, hint=hint)
    if endpoint is None and "api_key_env" in entries and isinstance(node.value, dict):
        message = f"'api_key_env' in {what} has no effect without 'endpoint'"
        fields.note(Code.CONFLICTING_KEYS, message, entries["api_key_env"].place)
    if given.get("name") is None:
        return None
    return ModelRef(given["name"] or "", endpoint, given.get("api_key_env"))


def _holds_secret(fields: Fields, node: Node, what: str) -> bool:
    """Note a key for a secret, which has no place in a file that is shared and traced."""
    secrets = [key for key in SECRET_KEYS if isinstance(node.value, dict) and key in node.value]
    for key in secrets:
        hint = "write model: {name: ..., endpoint: ..., api_key_env: NAME}, and put the key into that variable"
        fields.note(Code.SECRET, f"{what} holds a secret under {key!r}", node.value[key].place, hint=hint)
    return bool(secrets)


def _read_slo(fields: Fields, node: Node) -> Slo:
    if not isinstance(node.value, dict):
        return Slo(p99_s=fields.duration(node, "'slo'"))
    entries = fields.mapping(node, "'slo'", ("p99", "deadline"))
    p99_s = fields.duration(entries["p99"].node, "'p99' in 'slo'") if "p99" in entries else None
    deadline_s = fields.duration(entries["deadline"].node, "'deadline' in 'slo'") if "deadline" in entries else None
    if p99_s is not None and deadline_s is not None and p99_s > deadline_s:
        hint = "a run is stopped at its deadline, so the p99 cannot be longer"
        fields.note(Code.BAD_VALUE, "'p99' in 'slo' is longer than 'deadline'", entries["p99"].node.place, hint=hint)
    return Slo(p99_s, deadline_s)
