"""A DAG file: YAML in, Dag out, and every mistake in it told at once with its place.

Reading goes on after a mistake wherever something sensible follows, so that a file with five mistakes needs one look and
not five. What is wrong only in the light of the whole Dag (cycles, unknown references) is found by ``compile.check``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentrt.declare.action import DEFAULT_AGENT, Action
from agentrt.declare.action_fields import ActionReader
from agentrt.declare.agent import Agent
from agentrt.declare.agent_fields import read_agent
from agentrt.declare.call import LlmCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag, Input, Slo
from agentrt.declare.dag_fields import read_edges, read_ignore, read_input, read_slo, read_state_field
from agentrt.declare.fields import Fields, TooManyMistakesError
from agentrt.declare.limits import MAX_FILE_BYTES
from agentrt.declare.secrets import find_secrets
from agentrt.declare.sub_dags import SubDags
from agentrt.declare.template import ValueTemplate
from agentrt.declare.yaml_events import decode, lines_of
from agentrt.declare.yaml_nodes import Entry, Node, read_yaml
from agentrt.errors import DeclarationError, Diagnostic, Place, nearest_match

DAG_KEYS = (
    "name", "description", "inputs", "outputs", "slo", "agents", "state", "actions", "edges", "ignore",
)  # fmt: skip


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
    resolved = path.resolve()
    return _read(data, str(path), resolved.parent, SubDags(_read, resolved.parent, (resolved,)))


def read_dag(text: str | bytes, *, file: str = "<text>", base_dir: Path | None = None) -> DagReading:
    """Read YAML as far as it can be read; never raises."""
    return _read(text, file, base_dir, SubDags(_read, base_dir))


def _read(text: str | bytes, file: str, base_dir: Path | None, sub_dags: SubDags) -> DagReading:
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        root, diagnostics = read_yaml(data, file)
    except DeclarationError as error:
        return DagReading(None, error.diagnostics)
    fields = Fields(diagnostics)
    try:
        fields.charge_templates(root)
        dag, unread = _read_dag(fields, root, base_dir, sub_dags)
        _note_secrets(fields, decode(data, file), file)
    except TooManyMistakesError:
        dag, unread = None, frozenset()
    return DagReading(dag, tuple(sorted(fields.diagnostics, key=_by_place)), unread)


def _note_secrets(fields: Fields, text: str, file: str) -> None:
    """Note what looks like a secret anywhere in the file, comments included; the value itself is never told."""
    told = {d.place.line for d in fields.diagnostics if d.code == Code.SECRET and d.place is not None}
    for found in find_secrets(text):
        before = text[: found.start]
        line = len(lines_of(before))
        column = found.start - max(before.rfind("\n"), before.rfind("\r"))
        if line not in told:
            hint = "let an environment variable hold it: api_key_env for a model, or read it inside the tool"
            fields.note(Code.SECRET, f"the file holds {found.kind}", Place(file, line, column), hint=hint)


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


def _read_dag(
    fields: Fields, root: Node, base_dir: Path | None, sub_dags: SubDags
) -> tuple[Dag | None, frozenset[str]]:
    entries = fields.mapping(root, "a DAG file", DAG_KEYS)
    for key in ("name", "outputs", "actions"):
        if key not in entries and isinstance(root.value, dict):
            fields.note(Code.MISSING_KEY, f"the key {key!r} is missing", root.place)
    name = fields.text(entries["name"].node, "'name'") if "name" in entries else None
    if name is not None and not name.strip():
        fields.note(Code.BAD_VALUE, "'name' is empty", entries["name"].node.place)
    description = fields.text(entries["description"].node, "'description'") if "description" in entries else None
    entries_of_inputs = _named(fields, entries, "inputs")
    inputs = {n: read_input(fields, n, e) for n, e in entries_of_inputs.items()}
    agents = {n: read_agent(fields, n, e, sub_dags) for n, e in _named(fields, entries, "agents").items()}
    state = {n: read_state_field(fields, n, e) for n, e in _named(fields, entries, "state").items()}
    reader = ActionReader(fields, agents, sub_dags)
    actions: dict[str, Action] = {}
    action_entries = _named(fields, entries, "actions")
    for action_name, entry in action_entries.items():
        action = reader.read(action_name, entry)
        if action is not None:
            actions[action_name] = action
    if "actions" in entries and entries["actions"].node.value == {}:
        fields.note(Code.BAD_VALUE, "'actions' is empty: there is nothing to do", entries["actions"].place)
    outputs: dict[str, ValueTemplate] = {}
    for output_name, entry in _named(fields, entries, "outputs").items():
        template = fields.parse(ValueTemplate.parse, entry.node.plain(), dict(entry.node.origins()))
        if template is not None:
            outputs[output_name] = template
    slo = read_slo(fields, entries["slo"].node) if "slo" in entries else Slo()
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
        edges=read_edges(fields, entries["edges"].node) if "edges" in entries else (),
        state={n: field for n, field in state.items() if field is not None},
        ignore=read_ignore(fields, entries["ignore"].node, "the Dag") if "ignore" in entries else {},
        place=root.place,
        base_dir=base_dir,
    )
    return (dag if isinstance(root.value, dict) else None), unread


def _named(fields: Fields, entries: Mapping[str, Entry], key: str) -> Mapping[str, Entry]:
    return fields.named(entries[key].node, f"{key!r}") if key in entries else {}
