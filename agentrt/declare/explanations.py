"""What each diagnostic means and how to mend it: the source of ``docs/diagnostics.md``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrt.declare.codes import Code


@dataclass(frozen=True, slots=True)
class Explanation:
    """A title of a few words, and what to know about the mistake."""

    title: str
    text: str


EXPLANATIONS: Mapping[Code, Explanation] = {
    Code.UNREADABLE_FILE: Explanation(
        "the file cannot be read",
        "There is no such file, it is a folder, or you may not read it. The hint names the file beside it whose name is "
        "most like the one given.",
    ),
    Code.FILE_TOO_LARGE: Explanation(
        "the file is too large",
        "A DAG file may have 1 MiB and 100,000 values, an alias counted as often as it is used. Keep data in files of "
        "their own and name them in an action's `with`.",
    ),
    Code.NOT_UTF8: Explanation(
        "a byte is not UTF-8",
        "DAG files are UTF-8, with or without a byte order mark. The message tells the byte and its offset.",
    ),
    Code.YAML_SYNTAX: Explanation(
        "this is not YAML",
        "The file cannot be read as YAML 1.2 from here on. Often a text that holds `: `, `#`, `{` or `*` lacks quotes, or "
        "a line is indented with a tab.",
    ),
    Code.DUPLICATE_KEY: Explanation(
        "a key stands twice",
        "One mapping has the same key twice. Other YAML readers silently keep the last one; here nothing is dropped in "
        "silence. Rename or remove one of them.",
    ),
    Code.YAML_FEATURE: Explanation(
        "a feature of YAML that DAG files do not use",
        "Tags (`!name`), merge keys (`<<`), several documents in one file, and aliases that hold themselves are refused. "
        "Plain anchors and aliases are fine.",
    ),
    Code.TOO_DEEP: Explanation(
        "something is nested too deeply, or too long",
        "Lists and mappings may be nested 64 deep; a template with expressions may have 64 KiB, a guard 4096 characters, "
        "and both only so many levels of parentheses and operators. Split it into several actions.",
    ),
    Code.EMPTY_FILE: Explanation("the file is empty", "A DAG file needs at least `name`, `outputs` and `actions`."),
    Code.UNKNOWN_KEY: Explanation(
        "an unknown key",
        "A key that means nothing here would be ignored, and its author would never know. The hint names the nearest key.",
    ),
    Code.MISSING_KEY: Explanation("a key is missing", "A required key is not there; the message names it."),
    Code.WRONG_TYPE: Explanation(
        "a value of the wrong kind",
        "A text where a list was expected, a number where a text was, and so on. Numbers, `true`, `false` and `null` "
        "need quotes to be texts.",
    ),
    Code.BAD_NAME: Explanation(
        "a name that cannot be used",
        "Names of inputs, outputs, agents and actions are letters, digits and underscores, not beginning with a digit, "
        "because templates and guards spell them as `actions.NAME`. Words of these languages (`in`, `if`, `true` ...) are "
        "taken.",
    ),
    Code.BAD_DURATION: Explanation(
        "not a duration",
        "Durations have a unit: `250ms`, `2s`, `1.5m`, `1h`. A bare number is refused, as nobody can tell seconds from "
        "milliseconds by looking at it.",
    ),
    Code.BAD_VALUE: Explanation(
        "a value that is not allowed", "The value is of the right kind, but out of range or not one of those allowed."
    ),
    Code.CONFLICTING_KEYS: Explanation(
        "keys that exclude each other",
        "An action either asks an agent (`prompt`) or calls a tool (`uses`). A key that has no effect without another one "
        "is refused as well.",
    ),
    Code.BAD_SCHEMA: Explanation(
        "not a JSON Schema",
        "An input is declared by a type name (`string`, `integer` ...) or by the words of JSON Schema (2020-12). `$ref` "
        "is not used; patterns are in RE2 syntax.",
    ),
    Code.BAD_DEFAULT: Explanation("the default does not fit", "An input's default must fit its own schema."),
    Code.SECRET: Explanation(
        "a secret in the file",
        "Files are copied, committed and traced. Name an environment variable with `api_key_env` instead.",
    ),
    Code.TEMPLATE_SYNTAX: Explanation(
        "a template cannot be read",
        "Templates are in the notation of jinja2: `{{ expression }}`, `{% if ... %}`, `{% for ... %}`. To write `{{` as a "
        "text, use `{{ '{{' }}`.",
    ),
    Code.GUARD_SYNTAX: Explanation(
        "a guard cannot be read",
        "The condition under `if` is in CEL: `==`, `!=`, `<`, `&&`, `||`, `!`, `in`, texts in quotes, and no `{{ }}`.",
    ),
    Code.UNKNOWN_NAME: Explanation(
        "an unknown name in a template or guard",
        "Only `inputs` and `actions` are there, variables of loops, and the listed filters, tests, methods and functions.",
    ),
    Code.NOT_ALLOWED: Explanation(
        "not allowed in a template or guard",
        "Templates have no macros, blocks, imports or calls other than methods of texts, lists and mappings, so that what "
        "they read is known beforehand and what they do is bounded.",
    ),
    Code.INCOMPLETE_REFERENCE: Explanation(
        "a reference that does not say what is read",
        "`inputs` and `actions` are followed by a name, and an action by `output` or `status`. A computed name "
        "(`actions[inputs.x]`) is refused, because nobody could tell what the action waits for.",
    ),
    Code.UNKNOWN_INPUT: Explanation("no such input", "A template or guard reads an input that is not declared."),
    Code.UNKNOWN_ACTION: Explanation(
        "no such action", "A template, a guard, `needs` or an output names an action that is not declared."
    ),
    Code.UNKNOWN_PART: Explanation(
        "no such part",
        "An action has `output` and `status`. The output of an action with a prompt is a text and has no parts; what a "
        "tool returns has the parts of its schema.",
    ),
    Code.SELF_REFERENCE: Explanation(
        "an action depends on itself", "It reads its own output or needs itself, and so could never begin."
    ),
    Code.CYCLE: Explanation(
        "actions wait for each other",
        "None of them could ever begin. The message names a shortest cycle and the line of each reference in it; take one "
        "of them away.",
    ),
    Code.UNKNOWN_AGENT: Explanation("no such agent", "An action names an agent that is not declared under `agents`."),
    Code.NO_AGENT: Explanation(
        "no agent is named", "With more than one agent, each action with a prompt says which one it asks."
    ),
    Code.UNKNOWN_TOOL: Explanation("no such tool", "Nothing is registered under the name after `tool/`."),
    Code.UNKNOWN_ARGUMENT: Explanation("no such parameter", "The tool has no parameter of that name under `with`."),
    Code.MISSING_ARGUMENT: Explanation(
        "a parameter is missing", "The tool needs a parameter that `with` does not give it."
    ),
    Code.WRONG_ARGUMENT: Explanation(
        "an argument does not fit",
        "A value written out under `with` does not fit the tool's schema. Values that a template gives are checked when "
        "the action runs.",
    ),
    Code.UNSAFE_RETRY: Explanation(
        "a retry could act twice",
        "The tool writes, and a failed attempt may have written already. Remove `retry`, or say `effects: idempotent` if "
        "calling the tool twice does no harm.",
    ),
    Code.NO_OUTPUTS: Explanation("there are no outputs", "A run without outputs would have nothing to show."),
    Code.UNUSED_INPUT: Explanation("an input that nothing reads", "A warning: remove it, or use it."),
    Code.UNUSED_AGENT: Explanation("an agent that no action asks", "A warning: remove it, or use it."),
    Code.TIMEOUT_OVER_DEADLINE: Explanation(
        "a timeout longer than the deadline",
        "A warning: the run is stopped at its deadline, so the timeout never has an effect.",
    ),
    Code.UNUSED_ACTION: Explanation(
        "an answer that nothing reads",
        "A warning: the action asks a model, and neither another action nor an output reads or needs it.",
    ),
    Code.BAD_FUNCTION: Explanation(
        "a function that cannot be an action",
        "Its parameters are given by name and have annotations with a JSON Schema. The same input has one annotation and "
        "one default everywhere.",
    ),
    Code.UNKNOWN_PARAMETER: Explanation(
        "a parameter that names nothing",
        "A parameter has the name of the action or input that it stands for; this one names neither.",
    ),
    Code.DUPLICATE_ACTION: Explanation(
        "two actions of one name", "Name one of them with `@action(name=...)` or rename the function."
    ),
    Code.NOT_WRITABLE: Explanation(
        "a Python function cannot be written to a file",
        "Register the function as a tool and use `Action.tool(...)`; a file then says `uses: tool/NAME`.",
    ),
}


def diagnostics_page() -> str:
    """Return ``docs/diagnostics.md``."""
    lines = [
        "# Diagnostics",
        "",
        "Every mistake in a DAG has a code that keeps its meaning, a place (`file:line:column`), the value seen, and where",
        "possible a hint with the nearest name. All mistakes of a file are told at once, up to 100. Those marked as a",
        "warning do not keep a DAG from running.",
        "",
    ]
    for code, explanation in EXPLANATIONS.items():
        lines += [f"## {code}: {explanation.title}", "", explanation.text, ""]
    return "\n".join(lines).rstrip() + "\n"
