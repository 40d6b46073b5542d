"""The small parts of the file format's JSON Schema: texts, names, durations, parameters, and JSON Schemas themselves.

Each says what ``fields``, ``duration``, ``parameters`` and ``json_schema`` accept. Patterns mean the same to ECMAScript,
which editors use, and to Python, which the tests use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentrt.declare.call_fields import USES_PREFIXES
from agentrt.declare.codes import Code
from agentrt.declare.dag_fields import SCHEMA_TYPES
from agentrt.declare.explanations import EXPLANATIONS
from agentrt.declare.fields import NAME, RESERVED_NAMES
from agentrt.declare.parameters import PARAMETERS
from agentrt.errors import Severity

Schema = dict[str, Any]


def described(description: str, schema: Mapping[str, Any]) -> Schema:
    return {"description": description, **schema}


def ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def closed(keys: Iterable[str], parts: Mapping[str, Any], **more: Any) -> Schema:
    """Describe a mapping that has ``keys`` and no others. ``keys`` is the reader's own table: a key that is new in it,
    or gone from it, stops the schema from being made."""
    keys = tuple(keys)
    assert set(keys) == set(parts), set(keys) ^ set(parts)
    properties = {key: parts[key] for key in keys}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def one_or_list(item: Schema, **more: Any) -> Schema:
    """Describe an item, or a list of such."""
    return {"anyOf": [item, {"type": "array", "items": item, **more}]}


def named(value: Schema, **more: Any) -> Schema:
    """Describe a mapping whose keys are names of the user's choice."""
    return {"type": "object", "propertyNames": ref("name"), "additionalProperties": value, **more}


def whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def choice(known: Iterable[str]) -> Schema:
    return {"enum": [str(name) for name in known]}


TEXT: Schema = {"type": "string"}
SOLID_TEXT: Schema = {"type": "string", "pattern": r"\S"}
USES: Schema = {"type": "string", "pattern": rf"^(?:{'|'.join(USES_PREFIXES)})\s*\S"}


def any_case(words: Iterable[str]) -> str:
    """Return a pattern of the words, however their letters are cased: ECMAScript has no flag for it in a schema."""
    cased = ("".join(f"[{c.upper()}{c.lower()}]" if c.isalpha() else c for c in word) for word in words)
    return f"^(?:{'|'.join(cased)})$"


def name() -> Schema:
    return {
        "description": "Letters, digits and underscores, not beginning with a digit; no word of the language.",
        "pattern": f"^{NAME.pattern}$",
        "not": {"pattern": any_case(sorted(RESERVED_NAMES))},
    }


def duration() -> Schema:
    return {
        "type": "string",
        "description": "A number with its unit: 250ms, 2s, 1.5m, 1h. More than none, at most 30 days.",
        "pattern": r"^\s*(?!0+(?:\.0+)? ?[a-z])\d+(?:\.\d+)? ?(?:ms|s|m|h)\s*$",
        "examples": ["250ms", "2s", "1.5m"],
    }


def ignore() -> Schema:
    warnings = [code for code in Code if code.severity is Severity.WARNING]
    return {
        "type": "object",
        "description": "Code of a warning -> why it does not matter here. Errors cannot be ignored.",
        "properties": {str(code): described(EXPLANATIONS[code].title, SOLID_TEXT) for code in warnings},
        "patternProperties": {any_case(str(code) for code in warnings): SOLID_TEXT},
        "additionalProperties": False,
    }


def parameters() -> Schema:
    return closed(
        PARAMETERS,
        {
            "max_tokens": described("The answer ends after so many tokens.", whole(1, 2**31)),
            "temperature": described(
                "How much chance has its way; 0: none.", {"type": "number", "minimum": 0, "maximum": 100}
            ),
            "top_k": described("Only the so many likeliest tokens are drawn from.", whole(1, 2**31)),
            "top_p": described(
                "Only the likeliest tokens that have this probability together are drawn from.",
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            ),
            "seed": described("The same seed draws the same tokens.", whole(0, 2**64 - 1)),
            "stop": described(
                "The answer ends before any of these texts.",
                one_or_list({"type": "string", "minLength": 1}, minItems=1, maxItems=64),
            ),
        },
        description="Sampling parameters.",
    )


_TYPE_NAME = choice(SCHEMA_TYPES)
_INNER = {"anyOf": [{"type": "boolean"}, ref("json_schema")]}
_INNER_LIST = {"type": "array", "items": _INNER, "minItems": 1}
_INNER_MAPPING = {"type": "object", "additionalProperties": _INNER}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = {"type": "number"}
_TEXTS = {"type": "array", "items": TEXT, "uniqueItems": True}

SCHEMA_WORDS: Mapping[str, Schema] = {
    "type": {"anyOf": [_TYPE_NAME, {"type": "array", "items": _TYPE_NAME, "minItems": 1, "uniqueItems": True}]},
    "title": TEXT,
    "description": TEXT,
    "default": {},
    "examples": {"type": "array"},
    "enum": described("The values there are.", {"type": "array"}),
    "const": described("The only value there is.", {}),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    "multipleOf": {"type": "number", "exclusiveMinimum": 0},
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT),
    "pattern": described("In RE2 syntax.", TEXT),
    "format": TEXT,
    "items": described("What every item of a list is like.", _INNER),
    "prefixItems": _INNER_LIST,
    "contains": _INNER,
    **dict.fromkeys(("minContains", "maxContains"), _COUNT),
    "uniqueItems": {"type": "boolean"},
    "properties": described("The keys of a mapping, and what each holds.", _INNER_MAPPING),
    "patternProperties": _INNER_MAPPING,
    "additionalProperties": _INNER,
    "propertyNames": _INNER,
    "required": described("Keys that must be there.", _TEXTS),
    "dependentRequired": {"type": "object", "additionalProperties": _TEXTS},
    "dependentSchemas": _INNER_MAPPING,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _INNER_LIST),
    **dict.fromkeys(("not", "if", "then", "else"), _INNER),
    "$defs": _INNER_MAPPING,
    "$comment": TEXT,
    "deprecated": {"type": "boolean"},
}
"""Words of JSON Schema 2020-12 that a file may use. References are not among them: see ``json_schema``."""


def json_schema() -> Schema:
    """Describe a JSON Schema inside another one, where words that nobody knows mean nothing and do no harm."""
    return {
        "type": "object",
        "description": "A JSON Schema (2020-12).",
        "properties": {**SCHEMA_WORDS, "$ref": False, "$dynamicRef": False},
    }


def type_or_schema(description: str, beside: Mapping[str, Schema] | None = None) -> Schema:
    """Describe the name of a type, or a JSON Schema with the keys ``beside`` in it."""
    return {"description": description, "anyOf": [_TYPE_NAME, whole_schema(beside)]}


def whole_schema(beside: Mapping[str, Schema] | None = None) -> Schema:
    """Describe a JSON Schema that stands by itself, where a misspelt word is a mistake."""
    beside = beside or {}
    known = {"propertyNames": {"enum": list(dict.fromkeys((*beside, *SCHEMA_WORDS)))}}
    return {"allOf": [ref("json_schema")], **known, **({"properties": beside} if beside else {})}
