"""A value as YAML text that says the same to every reader: YAML 1.2's, YAML 1.1's, and the eye of who edits it next.

Texts of several lines are literal blocks, which is how people write prompts. A text is quoted when any reader would make
something else of it: what ``yaml_scalars`` takes for a number, and what only YAML 1.1 does, such as ``yes`` and ``1:30``.
Lines are never folded, so that a place inside a text is the same place in the file. Equal values are written out each
time; there are no anchors.
"""

from __future__ import annotations

import math
import re
from typing import Any

import yaml
from yaml.emitter import ScalarAnalysis

from agentrt.declare.yaml_scalars import MAX_NUMBER_CHARS, plain_scalar

_TAG = "tag:yaml.org,2002:"
_NEEDS_ESCAPES = re.compile("[^\t -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters, line ends among them, that YAML does not allow as they are or takes for something else."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_OLD_BOOLEANS = frozenset("yYnN")
"""YAML 1.1 has them for true and false; PyYAML leaves them alone, other readers do not."""


def write_yaml(value: Any) -> str:
    """Write a value of dicts with text keys, lists, texts, numbers, booleans and None, in the order it has.

    Raises:
        TypeError: something else is in it.
        ValueError: a number is too long to be read as one, or a text holds half a surrogate pair.
    """
    return yaml.serialize(_node(value), Dumper=_Dumper, allow_unicode=True, width=math.inf)


def _node(value: Any) -> yaml.Node:
    match value:
        case None:
            return yaml.ScalarNode(_TAG + "null", "null")
        case bool():
            return yaml.ScalarNode(_TAG + "bool", "true" if value else "false")
        case int():
            return yaml.ScalarNode(_TAG + "int", _whole_number(value))
        case float():
            return yaml.ScalarNode(_TAG + "float", _number(value))
        case str():
            return _text(value)
        case dict():
            pairs = [(_key(key), _node(part)) for key, part in value.items()]
            return yaml.MappingNode(_TAG + "map", pairs, flow_style=False)
        case list() | tuple():
            return yaml.SequenceNode(_TAG + "seq", [_node(part) for part in value], flow_style=False)
    raise TypeError(f"{value!r:.80} is a {type(value).__name__}, which YAML has no form for here")


def _whole_number(value: int) -> str:
    # 4 bits a digit at most: Python refuses to write out the very long ones.
    text = str(int(value)) if value.bit_length() <= 4 * MAX_NUMBER_CHARS else None
    if text is None or len(text) > MAX_NUMBER_CHARS:
        raise ValueError(f"a whole number of more than {MAX_NUMBER_CHARS} characters would be read as a text")
    return text


def _number(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    text = repr(float(value))
    # YAML 1.1 wants a point in every number with an exponent.
    return text if "." in text else text.replace("e", ".0e")


def _key(key: Any) -> yaml.ScalarNode:
    if not isinstance(key, str):
        raise TypeError(f"a key must be a text, not {key!r:.80}")
    node = _text(key)
    if node.style == "|":
        node.style = '"'
    return node


def _text(text: str) -> yaml.ScalarNode:
    if _SURROGATE.search(text):
        raise ValueError(f"the text {text!r:.80} holds half a surrogate pair, which UTF-8 has no form for")
    style: str | None = None
    if _fits_a_block(text):
        style = "|"
    elif _NEEDS_ESCAPES.search(text):
        style = '"'
    elif not isinstance(plain_scalar(text), str) or text in _OLD_BOOLEANS:
        style = "'"
    return yaml.ScalarNode(_TAG + "str", str(text), style=style)


def _fits_a_block(text: str) -> bool:
    """Whether a literal block gives exactly this text back, without marks for its indentation or its end."""
    first, newline, _ = text.partition("\n")
    return (
        bool(newline)
        and not first.startswith((" ", "\t"))
        and bool(first.strip())
        and not text.endswith("\n\n")
        and not _NEEDS_ESCAPES.search(text.replace("\n", ""))
    )


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent the items of a list below its key."""
        super().increase_indent(flow, False)

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        """Allow blocks for all texts that suit one; PyYAML shrinks from spaces at the end of a line."""
        analysis = super().analyze_scalar(scalar)
        analysis.allow_block = _fits_a_block(scalar)
        return analysis

    def choose_scalar_style(self) -> str:
        """Take the quotes the text itself does not use, so that none of it is written twice."""
        style: str = super().choose_scalar_style()
        assert isinstance(self.event, yaml.ScalarEvent)
        text = self.event.value
        return '"' if style == "'" and "'" in text and '"' not in text and "\\" not in text else style
