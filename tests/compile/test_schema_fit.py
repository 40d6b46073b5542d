"""Whether two JSON Schemas can have a value in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentrt.compile.schema_fit import clash
from agentrt.tools.annotations import describe, result_schema

TEXT, WHOLE, NUMBER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "null"}


def a_list(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def a_mapping(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        (TEXT, WHOLE, "text where a whole number is wanted"),
        (WHOLE, TEXT, "a whole number where text is wanted"),
        ({"type": ["string", "null"]}, NUMBER, "text or null where a number is wanted"),
        ({"anyOf": [TEXT, NULL]}, {"oneOf": [WHOLE, {"type": "boolean"}]},
         "text or null where a whole number or a boolean is wanted"),
        (a_list(TEXT, minItems=1), a_list(NUMBER), "items: text where a number is wanted"),
        (a_list(TEXT, maxItems=0), a_list(TEXT, minItems=1), "at most 0 items where at least 1 are wanted"),
        (a_list(TEXT, minItems=3), a_list(TEXT, maxItems=2), "at least 3 items where at most 2 are wanted"),
        ({"const": [1, "b"]}, {"prefixItems": [WHOLE, WHOLE]}, "[1]: text where a whole number is wanted"),
        ({"const": [1, 2, 3]}, {"prefixItems": [WHOLE, WHOLE], "items": False},
         "at least 3 items where at most 2 are wanted"),
        (a_mapping(("city",), city=TEXT), a_mapping(city=WHOLE), "city: text where a whole number is wanted"),
        (a_mapping(("at",), at=a_mapping(("x",), x=TEXT)), a_mapping(at=a_mapping(x=NUMBER)),
         "at.x: text where a number is wanted"),
        ({**a_mapping(city=TEXT), "additionalProperties": False}, a_mapping(("zip",)),
         "there is no 'zip', which is wanted"),
        (a_mapping(("zip",)), {**a_mapping(city=TEXT), "additionalProperties": False},
         "there is 'zip', which is not wanted"),
        ({"enum": ["low", "high"]}, {"enum": ["fast", "slow"]},
         "one of 'low', 'high' where one of 'fast', 'slow' is wanted"),
        ({"const": 1}, {"const": True}, "a whole number where a boolean is wanted"),
        ({"enum": [1, 2]}, {"type": "number", "minimum": 3}, "1 where at least 3 is wanted"),
        ({"type": "number", "minimum": 2}, {"type": "integer", "exclusiveMaximum": 2},
         "at least 2 where less than 2 is wanted"),
        ({"type": "integer", "maximum": 0}, {"type": "integer", "exclusiveMinimum": 0},
         "at most 0 where more than 0 is wanted"),
        ({"type": "string", "maxLength": 2}, {"type": "string", "minLength": 3},
         "at most 2 characters where at least 3 characters are wanted"),
        ({"const": 1.5}, WHOLE, "a number where a whole number is wanted"),
        ({"allOf": [TEXT, {"minLength": 9}]}, {"type": "string", "maxLength": 8},
         "at least 9 characters where at most 8 characters are wanted"),
        (TEXT, False, "text where nothing is wanted"),
    ],
)  # fmt: skip
def test_schemas_without_a_common_value_clash(given: Any, wanted: Any, reason: str) -> None:
    """The reason names what is given and what is wanted, with the path to the part that does not fit."""
    assert clash(given, wanted) == reason


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, WHOLE),
        (NUMBER, WHOLE),
        (WHOLE, NUMBER),
        ({"const": 1.0}, WHOLE),
        ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}),
        ({"type": "integer", "minimum": 2}, {"type": "integer", "maximum": 2}),
        (a_list(TEXT), a_list(WHOLE)),
        (a_mapping(city=TEXT), a_mapping(city=WHOLE)),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}),
        (TEXT, {"not": TEXT}),
        ({"type": "unheard of"}, WHOLE),
        ({"type": "string", "minLength": "three"}, {"type": "string", "maxLength": 1}),
        ({"$ref": "https://example.org/schema"}, WHOLE),
        ({"$ref": "#/$defs/absent"}, WHOLE),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"$id": "urn:x", "$ref": "#/$defs/y"}, "y": TEXT}}, WHOLE),
        (a_mapping(("a",)), {"type": "object", "patternProperties": {"^a": TEXT}, "additionalProperties": False}),
    ],
)
def test_what_may_fit_does_not_clash(given: Any, wanted: Any) -> None:
    """Where some value fits both, or it cannot be told, nothing is said."""
    assert clash(given, wanted) is None


def test_lists_and_mappings_may_be_taken_to_hold_something() -> None:
    """An empty list is of any type; whoever wants to hear of list[str] for list[int] asks for filled ones."""
    assert clash(a_list(TEXT), a_list(WHOLE), filled=True) == "items: text where a whole number is wanted"
    texts = {"type": "object", "additionalProperties": TEXT}
    numbers = {"type": "object", "additionalProperties": WHOLE}
    assert clash(texts, numbers) is None
    assert clash(texts, numbers, filled=True) == "values: text where a whole number is wanted"
    assert clash({"const": []}, a_list(WHOLE), filled=True) is None
    assert clash({"const": {}}, numbers, filled=True) is None
    assert clash(a_list(TEXT, maxItems=0), a_list(WHOLE), filled=True) is None


@dataclass
class Point:
    x: int
    y: int


@dataclass
class Shape:
    name: str
    corners: list[Point]


@dataclass
class Chain:
    link: str
    following: Chain | None


def test_schemas_of_annotations_are_followed_through_their_definitions() -> None:
    """What pydantic writes under $defs counts, on either side, and a type that holds itself ends."""
    given = result_schema(Shape, "f")
    described = describe({"shape": Shape, "texts": dict[str, str], "chain": Chain}, "g")
    wanted = {name: {**schema, **described.definitions} for name, schema in described.properties.items()}
    assert clash(given, wanted["shape"]) is None
    assert (
        clash(given, wanted["chain"]) == "there is no 'link', which is wanted" or clash(given, wanted["chain"]) is None
    )
    assert clash(given, wanted["texts"]) == "corners: a list where text is wanted"
    assert clash(result_schema(Chain, "f"), wanted["chain"]) is None
    corners = a_mapping(("corners",), corners=a_list(a_mapping(x=TEXT), minItems=1))
    assert clash(given, corners) == "corners.items.x: a whole number where text is wanted"


def test_hostile_schemas_are_given_up_on() -> None:
    """Loops, towers and doublings end at once, and what cannot be compared may fit."""
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert clash(loop, TEXT) is None
    choosing = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}] * 9}}}
    assert clash(choosing, TEXT) is None
    doubling: dict[str, Any] = {"$ref": "#/$defs/a0", "$defs": {"a99": TEXT}}
    for level in range(99):
        following = {"$ref": f"#/$defs/a{level + 1}"}
        doubling["$defs"][f"a{level}"] = {"anyOf": [following, following], "allOf": [following, following]}
    assert clash(doubling, doubling) is None
    tower: Any = TEXT
    for _ in range(50_000):
        tower = a_list(tower, minItems=1)
    assert clash(tower, tower) is None
    assert clash({"minimum": 10**500, "type": "number"}, {"maximum": 1, "type": "number"}) is not None
    assert clash({"type": "array", "minItems": float("nan")}, a_list(TEXT, minItems=1)) is None


# -- what fits both never clashes

_WORDS = st.sampled_from(["", "a", "bb", "ccc"])
_NAMES = st.sampled_from(["p", "q", "r"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([-1.0, 0.5, 2.0, 2.5]) | _WORDS,
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(_NAMES, parts, max_size=3),
    max_leaves=6,
)
_TYPES = ["null", "boolean", "integer", "number", "string", "array", "object"]


@st.composite
def schemas_around(draw: st.DrawFn, value: Any, defs: dict[str, Any], depth: int = 0) -> Any:
    """Draw a schema that ``value`` fits, by way of all words that are looked at; ``defs`` takes what it refers to."""
    if depth > 3:
        return draw(st.sampled_from([True, {}]))

    def inner(part: Any = value) -> Any:
        return draw(schemas_around(part, defs, depth + 1))

    schema: dict[str, Any] = {}
    ways = ["type", "values", "any", "all", "ref", "bounds", "parts", "parts", "bounds"]
    for way in draw(st.lists(st.sampled_from(ways), max_size=4)):
        match way:
            case "type":
                fitting = [name for name in _TYPES if Draft202012Validator({"type": name}).is_valid(value)]
                more = draw(st.lists(st.sampled_from(_TYPES), max_size=2))
                schema["type"] = draw(st.sampled_from([fitting[0], [draw(st.sampled_from(fitting)), *more]]))
            case "values":
                schema |= draw(st.sampled_from([{"const": value}, {"enum": [draw(_VALUES), value]}]))
            case "any":
                schema["anyOf"] = [*draw(st.lists(st.builds(lambda v: {"const": v}, _VALUES), max_size=2)), inner()]
            case "all":
                schema["allOf"] = [inner(), inner()]
            case "ref":
                name = f"d{len(defs)}"
                defs[name] = {}
                defs[name] = inner()
                schema["$ref"] = f"#/$defs/{name}"
            case "bounds":
                schema |= draw(_bounds_around(value))
            case "parts" if isinstance(value, list):
                schema.pop("prefixItems", None)
                num_prefixed = draw(st.integers(0, len(value)))
                if num_prefixed:
                    schema["prefixItems"] = [inner(part) for part in value[:num_prefixed]]
                rest = value[num_prefixed:]
                schema["items"] = (
                    {"anyOf": [inner(part) for part in rest]} if rest else draw(st.sampled_from([False, {}]))
                )
            case "parts" if isinstance(value, dict):
                schema.pop("additionalProperties", None)
                named = [name for name in value if draw(st.booleans())]
                schema["properties"] = {name: inner(value[name]) for name in named} | (
                    {"z": {"type": "string"}} if draw(st.booleans()) else {}
                )
                schema["required"] = [name for name in value if draw(st.booleans())]
                rest = [part for name, part in value.items() if name not in named]
                if draw(st.booleans()):
                    schema["additionalProperties"] = {"anyOf": [inner(part) for part in rest]} if rest else False
    return schema


def _bounds_around(value: Any) -> st.SearchStrategy[dict[str, Any]]:
    near = st.integers(0, 1)
    if isinstance(value, bool) or value is None:
        return st.just({})
    if isinstance(value, int | float):
        low, high = near.map(lambda by: value - by), near.map(lambda by: value + by)
        return st.one_of(
            low.map(lambda bound: {"minimum": bound}),
            high.map(lambda bound: {"maximum": bound}),
            low.map(lambda bound: {"exclusiveMinimum": bound - 1}),
            high.map(lambda bound: {"exclusiveMaximum": bound + 0.5}),
        )
    word = "Length" if isinstance(value, str) else "Items" if isinstance(value, list) else "Properties"
    size = len(value)
    return st.one_of(
        near.map(lambda by: {f"min{word}": max(0, size - by)}), near.map(lambda by: {f"max{word}": size + by})
    )


@st.composite
def fits(draw: st.DrawFn) -> tuple[Any, Mapping[str, Any], Mapping[str, Any]]:
    value = draw(_VALUES)
    made = []
    for _ in range(2):
        defs: dict[str, Any] = {}
        schema = draw(schemas_around(value, defs))
        made.append({**(schema if isinstance(schema, dict) else {}), "$defs": defs})
    return value, made[0], made[1]


@settings(max_examples=200, deadline=None)
@given(fits())
def test_schemas_that_a_value_fits_never_clash(case: tuple[Any, Mapping[str, Any], Mapping[str, Any]]) -> None:
    """Whatever words of JSON Schema two schemas are written in: with a value in common, they do not clash."""
    value, one, other = case
    for schema in (one, other):
        assert Draft202012Validator(schema).is_valid(value), "the strategy draws schemas that the value fits"
    assert clash(one, other) is None
    if not _holds_an_empty_one(value):
        assert clash(one, other, filled=True) is None


def _holds_an_empty_one(value: Any) -> bool:
    if isinstance(value, list | dict):
        parts = value if isinstance(value, list) else value.values()
        return not value or any(_holds_an_empty_one(part) for part in parts)
    return False


@settings(max_examples=100, deadline=None)
@given(_VALUES, _VALUES)
def test_two_different_values_clash_as_constants(one: Any, other: Any) -> None:
    """Two constants have a value in common when they are equal, and 1 is 1.0 but not true."""
    same = Draft202012Validator({"const": one}).is_valid(other)
    assert (clash({"const": one}, {"const": other}) is None) == same
