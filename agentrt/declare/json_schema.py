"""JSON Schema of inputs and arguments: whether a schema is one, and what keeps a value from fitting it.

Patterns are matched by RE2, in time linear in the text: with Python's own ``re`` a file could hold a pattern that takes
years on forty characters. References out of a schema are refused where a file brings one, as nothing is fetched.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from agentrt.errors import nearest_match

_EXTRA_WORDS = frozenset(
    {
        "then",
        "else",
        "minContains",
        "maxContains",
        "title",
        "description",
        "default",
        "examples",
        "$defs",
        "$comment",
        "format",
        "deprecated",
    }
)
_REFUSED_WORDS = frozenset({"$ref", "$dynamicRef", "unevaluatedProperties", "unevaluatedItems"})
"""The last two go through other schemas' patterns in a way that cannot be handed to RE2."""


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a schema that a file brings; None when it is fine."""
    from jsonschema import Draft202012Validator, SchemaError

    known = {*Draft202012Validator.VALIDATORS, *_EXTRA_WORDS}
    for key in schema:
        if key not in known:
            match = nearest_match(key, sorted(known))
            return f"{key!r:.60} is no word of JSON Schema" + (f" (did you mean {match!r}?)" if match else "")
    for word, value in _words(schema):
        if word in _REFUSED_WORDS:
            return f"{word!r} is not used in inputs; write the schema out"
        is_mapping = word == "patternProperties" and isinstance(value, Mapping)
        patterns = [value] if word == "pattern" else value if is_mapping else ()
        for pattern in patterns:
            if isinstance(pattern, str) and (reason := _pattern_problem(pattern)) is not None:
                return f"the pattern {pattern!r:.80} cannot be read: {reason} (RE2 syntax is wanted)"
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return f"this is no JSON Schema: {error.message[:200]}"
    return None


def misfit(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Say in one line what keeps ``value`` from fitting a schema; None when it fits."""
    if schema == {"type": "string"} and isinstance(value, str):
        return None  # the commonest of all, without loading jsonschema (0.15 s)
    from jsonschema.exceptions import best_match

    try:
        error = best_match(_validator_class()(dict(schema)).iter_errors(value))
    except RecursionError:
        return "it is nested too deeply"
    if error is None:
        return None
    at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    shown = " ".join(error.message.split())
    return f"{at.lstrip('.')}: {shown[:300]}" if at else shown[:300]


def _words(schema: Any) -> Iterator[tuple[str, Any]]:
    """Go through all keys in a schema, with their values; without recursion."""
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, Mapping):
            yield from part.items()
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)


@functools.cache
def _validator_class() -> Any:
    """Return jsonschema's validator with RE2 in place of ``re``."""
    from jsonschema import Draft202012Validator, ValidationError, validators

    def pattern(validator: Any, wanted: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "string") and not _matches(wanted, instance):
            yield ValidationError(f"{instance[:100]!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "object"):
            for regex, subschema in wanted.items():
                for key, part in instance.items():
                    if _matches(regex, key):
                        yield from validator.descend(part, subschema, path=key, schema_path=regex)

    def additional_properties(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not validator.is_type(instance, "object"):
            return
        properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for key, part in instance.items():
            if key in properties or any(_matches(regex, key) for regex in patterns):
                continue
            if validator.is_type(wanted, "object"):
                yield from validator.descend(part, wanted, path=key)
            elif not wanted:
                yield ValidationError(f"{key!r:.100} is not among its properties")

    return validators.extend(  # type: ignore[no-untyped-call]
        Draft202012Validator,
        {
            "pattern": pattern,
            "patternProperties": pattern_properties,
            "additionalProperties": additional_properties,
        },
    )


def _pattern_problem(pattern: str) -> str | None:
    import re2  # type: ignore[import-untyped]

    try:
        _compiled(pattern)
    except re2.error as error:
        return error.args[0].decode(errors="replace") if error.args else "it is malformed"
    return None


def _matches(pattern: str, text: str) -> bool:
    return _compiled(pattern).search(text) is not None


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)
