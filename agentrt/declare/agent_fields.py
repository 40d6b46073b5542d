"""Reading the agents of a DAG file."""

from __future__ import annotations

from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.call_fields import read_parameters
from agentrt.declare.codes import Code
from agentrt.declare.fields import Fields
from agentrt.declare.sub_dags import SubDags
from agentrt.declare.yaml_nodes import Entry, Node

AGENT_KEYS = ("model", "instructions", "with", "dag")
MODEL_KEYS = ("name", "endpoint", "api_key_env")
SECRET_KEYS = ("api_key", "apikey", "key", "token", "password", "secret")


def read_agent(fields: Fields, name: str, entry: Entry, sub_dags: SubDags) -> Agent:
    what = f"agent {name!r}"
    if entry.node.value is not None and _holds_secret(fields, entry.node, what):
        return Agent(name, place=entry.place)
    entries = fields.mapping(entry.node, what, AGENT_KEYS) if entry.node.value is not None else {}
    instructions = (
        fields.text(entries["instructions"].node, f"'instructions' of {what}") if "instructions" in entries else ""
    )
    parameters = read_parameters(fields, entries["with"].node, f"'with' of {what}") if "with" in entries else {}
    model = _read_model(fields, entries["model"].node, f"'model' of {what}") if "model" in entries else None
    source = fields.text(entries["dag"].node, f"'dag' of {what}") if "dag" in entries else None
    for key in ("model", "instructions", "with"):
        if source is not None and key in entries:
            message = f"{what} has 'dag' and {key!r}: its Dag says what it does"
            fields.note(Code.CONFLICTING_KEYS, message, entries[key].place)
    dag = None if source is None else sub_dags.load(fields, source, entries["dag"].node.place)
    return Agent(name, instructions or "", model, parameters, dag=dag, dag_source=source, place=entry.place)


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
