"""Constrained answers: whatever the model, the vocabulary and the company, what finishes is what was asked for."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.errors import EngineError, RequestError
from agentrt.inference.config import EngineConfig
from agentrt.inference.engine import Engine
from agentrt.inference.file_fields import Fields
from agentrt.inference.grammar import MAX_DEPTH, MAX_GRAMMAR_BYTES, Grammar, ToolShape
from agentrt.inference.grammar_compiler import MAX_CACHED_GRAMMARS, GrammarCompiler, GrammarMatcher
from agentrt.inference.output import RequestFailed, TokenOutput
from agentrt.inference.request import FinishReason
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.tokenizer import ControlToken, Tokenizer, Vocabulary
from agentrt.inference.tokenizer_gguf import tokenizer_from_gguf
from tests.support.tiny_model import END, tiny_model, tiny_tokenizer
from tests.support.told_models import RecitingModel

BYTE_LEVEL = tiny_tokenizer()
END_ID = next(iter(BYTE_LEVEL.eos_token_ids))
COMPILER = GrammarCompiler(BYTE_LEVEL, BYTE_LEVEL.vocab_size)

SPM_PIECES = ("▁", "{", '{"', "true", "1", "▁1", "a", "▁a", "é", '":', "}", "🙂")


def sentencepiece() -> Tokenizer:
    """A SentencePiece vocabulary with byte fallback: some bytes have two tokens."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *SPM_PIECES]
    return tokenizer_from_gguf(
        Fields(
            Path("m.gguf"),
            {
                "tokenizer.ggml.model": "llama",
                "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.scores": np.zeros(len(tokens), np.float32),
                "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(SPM_PIECES), np.int32),
                "tokenizer.ggml.bos_token_id": 1,
                "tokenizer.ggml.eos_token_id": 2,
            },
        )
    )


VOCABULARIES = {"byte-level": BYTE_LEVEL, "sentencepiece": sentencepiece()}
MODELS = {name: tiny_model(vocab_size=tokenizer.vocab_size) for name, tokenizer in VOCABULARIES.items()}
CONFIG = EngineConfig(num_blocks=400, max_sequences=8)
PRESSED = EngineConfig(num_blocks=20, block_size=16, max_sequences=8)
"""A whole context takes 16 of its blocks."""

ALL_KINDS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["red", "grün", 3, None]},
        "size": {"type": "integer", "minimum": -5, "maximum": 20},
        "ratio": {"type": "number", "minimum": 0, "maximum": 1},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-c]{1,3}$"}, "minItems": 1, "maxItems": 3},
        "sure": {"type": "boolean"},
        "next": {"$ref": "#/$defs/link"},
    },
    "required": ["name", "kind", "size", "tags"],
    "additionalProperties": False,
    "$defs": {
        "link": {
            "type": "object",
            "properties": {"id": {"type": "string", "format": "date"}, "next": {"$ref": "#/$defs/link"}},
            "required": ["id"],
            "additionalProperties": False,
        }
    },
}


def leaf_schemas() -> st.SearchStrategy[dict[str, Any]]:
    return st.one_of(
        st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"const": {"a": ["é\n\"", 1.5]}}]),
        st.builds(lambda low, width: {"type": "integer", "minimum": low, "maximum": low + width},
                  st.integers(-1000, 1000), st.integers(0, 50)),
        st.builds(lambda low, width: {"type": "string", "minLength": low, "maxLength": low + width},
                  st.integers(0, 3), st.integers(0, 3)),
        st.builds(lambda values: {"enum": values},
                  st.lists(st.text(max_size=4).filter(is_ordinary), min_size=1, max_size=3)),
    )  # fmt: skip


def is_ordinary(text: str) -> bool:
    return all(character >= " " and character != "\x7f" for character in text)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    """Schemas whose values are short enough to be finished."""
    return st.recursive(
        leaf_schemas(),
        lambda inner: st.one_of(
            st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least, "maxItems": 2},
                      inner, st.integers(0, 2)),
            st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner),
            st.builds(lambda properties, num_required: {
                "type": "object", "properties": properties, "required": sorted(properties)[:num_required],
                "additionalProperties": False,
            }, st.dictionaries(st.sampled_from(["a", "b c", "é"]), inner, min_size=1, max_size=3), st.integers(0, 3)),
        ),
        max_leaves=4,
    )  # fmt: skip


def answers(
    engine: Engine, wanted: Sequence[SamplingParams], *, prompt: Sequence[int] = (5, 6)
) -> list[tuple[str, FinishReason, list[int]]]:
    """Run requests at the same time; return text, reason and tokens of each."""
    ids = [engine.add_request([*prompt, number], sampling) for number, sampling in enumerate(wanted)]
    outputs: dict[int, list[TokenOutput]] = {request_id: [] for request_id in ids}
    while engine.has_work:
        for output in engine.step():
            assert not isinstance(output, RequestFailed), output
            outputs[output.request_id].append(output)
    found = []
    for request_id in ids:
        finished = outputs[request_id][-1].finished
        assert finished is not None
        text = "".join(output.text for output in outputs[request_id])
        found.append((text, finished.reason, [output.token_id for output in outputs[request_id]]))
    return found


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@settings(max_examples=25, deadline=None)
@given(
    schemas=st.lists(schemas() | st.just(ALL_KINDS), min_size=1, max_size=6),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    seed=st.integers(0, 2**32),
    is_pressed=st.booleans(),
)
def test_every_finished_answer_fits_its_schema(
    vocabulary: str, schemas: list[dict[str, Any]], temperature: float, seed: int, is_pressed: bool
) -> None:
    """Random weights, any vocabulary, several requests at once, too few blocks: what ends by itself is valid JSON that
    fits, whole; what max_tokens cuts says so; and each is what it would be alone."""
    tokenizer, config = VOCABULARIES[vocabulary], PRESSED if is_pressed else CONFIG
    engine = Engine(MODELS[vocabulary], tokenizer, config)
    wanted = [
        SamplingParams(max_tokens=150, temperature=temperature, seed=seed + number, grammar=Grammar.json_schema(schema))
        for number, schema in enumerate(schemas)
    ]
    crowd = answers(engine, wanted)
    for number, ((text, reason, tokens), schema) in enumerate(zip(crowd, schemas, strict=True)):
        if reason is FinishReason.STOP:
            jsonschema.validate(json.loads(text), schema, jsonschema.Draft202012Validator)
        else:
            assert (reason, len(tokens)) == (FinishReason.LENGTH, 150)
        if number == 0:
            alone = answers(Engine(MODELS[vocabulary], tokenizer, CONFIG), wanted[:1])
            assert alone == [(text, reason, tokens)]
    assert engine.stats().num_used_blocks == 0


def test_answers_do_finish() -> None:
    """Many get their whole answer, no two the same, so the property above is not about cut answers only; some were
    preempted on the way."""
    engine = Engine(MODELS["byte-level"], BYTE_LEVEL, PRESSED)
    wanted = [
        SamplingParams(max_tokens=240, temperature=1.0, seed=seed, grammar=Grammar.json_schema(ALL_KINDS))
        for seed in range(30)
    ]
    found = answers(engine, wanted)
    done = [text for text, reason, _ in found if reason is FinishReason.STOP]
    assert len(set(done)) == len(done) > 6
    assert engine.stats().num_preemptions > 0
    for text in done:
        jsonschema.validate(json.loads(text), ALL_KINDS, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(
    "pattern",
    [
        r"[a-z]{2,6}",
        r"^\d{3}-\d{4}$",
        "(yes|no|maybe)",
        "é+/ü?🙂",
        r"a\$",
        r"[/\\]{3}",
        r"(0|1)*a(0|1){6}",
        r"\w{1,3}\s\w",
    ],
)
def test_every_finished_answer_matches_its_regex(vocabulary: str, pattern: str) -> None:
    """The whole answer matches the whole pattern, anchors written or not."""
    engine = Engine(MODELS[vocabulary], VOCABULARIES[vocabulary], CONFIG)
    wanted = [
        SamplingParams(max_tokens=100, temperature=2.0 * (seed > 0), seed=seed, grammar=Grammar.regex(pattern))
        for seed in range(8)
    ]
    found = answers(engine, wanted)
    assert any(reason is FinishReason.STOP for _, reason, _ in found)
    for text, reason, _ in found:
        if reason is FinishReason.STOP:
            assert re.fullmatch(pattern, text, re.ASCII), text


def recite(said: Sequence[int], grammar: Grammar, **sampling: Any) -> tuple[list[str], FinishReason]:
    """Let a model that wants to say ``said`` answer under a grammar; return the texts of its tokens."""
    engine = Engine(RecitingModel(said, vocab_size=BYTE_LEVEL.vocab_size), BYTE_LEVEL, EngineConfig(num_blocks=16))
    engine.add_request([0], SamplingParams(**{"max_tokens": 60, "grammar": grammar, **sampling}))
    texts: list[str] = []
    while engine.has_work:
        for output in engine.step():
            assert isinstance(output, TokenOutput)
            texts.append(output.text)
            if output.finished is not None:
                return texts, output.finished.reason
    raise AssertionError("it never ended")


def test_the_answer_ends_where_nothing_can_follow() -> None:
    """A grammar that is complete ends the answer with its last token; the model need not end it."""
    texts, reason = recite([*b"abcdef"], Grammar.regex("abc"))
    assert (texts, reason) == (["a", "b", "c"], FinishReason.STOP)


def test_the_model_ends_the_answer_only_where_the_grammar_lets_it() -> None:
    """Where more could follow, the model decides; where something must, its end is not taken."""
    assert recite([*b"12", END_ID], Grammar.regex("[0-9]+")) == (["1", "2", ""], FinishReason.STOP)
    texts, reason = recite([*b"1", END_ID, END_ID], Grammar.regex("[0-9]{3}"))
    assert ("".join(texts)[0], len(texts), reason) == ("1", 3, FinishReason.STOP)


def test_max_tokens_cuts_a_constrained_answer_like_any_other() -> None:
    """An answer that is too long is cut with reason ``length``."""
    assert recite([*b"abcdef"], Grammar.regex("abcdef"), max_tokens=2) == (["a", "b"], FinishReason.LENGTH)


def test_a_model_without_an_end_token_answers_too() -> None:
    """Where a vocabulary has no token that ends an answer, the grammar still does."""
    tokenizer = Tokenizer(BYTE_LEVEL._first, Vocabulary([bytes([byte]) for byte in range(256)], [], frozenset()))
    matcher = GrammarCompiler(tokenizer, 256).matcher(Grammar.json_schema({"type": "boolean"}))
    for byte in b"true":
        assert matcher.allows(byte)
        matcher.add(byte)
    assert matcher.is_complete
    assert not matcher.allowed().any()


def spelled_answer(matcher: GrammarMatcher, text: str) -> bool:
    """Whether the bytes of ``text``, one token each, are an answer; the mask must agree with ``allows`` all along."""
    for byte in text.encode():
        assert matcher.allows(byte) == matcher.allowed()[byte]
        if not matcher.allows(byte):
            return False
        matcher.add(byte)
    assert matcher.allows(END_ID) == matcher.allowed()[END_ID]
    return matcher.allows(END_ID)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object"}, ['{}', '{ "a": [1, 2.5e3, null]\n}'], ["[]", " {}", "{}{", '{"a"}', '{"a":1,}']),
        ({"const": "é"}, ['"é"'], ['"e"', '"\\u00e9"']),
        ({"type": "string", "maxLength": 1}, ['"🙂"', '"\\n"', '""'], ['"ab"', '"\\ud83d"']),
        ({"type": "array", "items": False}, ["[]"], ["[1]"]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["12", "-3", "null"], ["1.5", "01", "nul"]),
        ({"enum": [1, "1", [1], {"a": None}]}, ["1", '"1"', "[1]", '{"a":null}'], ["2"]),
    ],
)  # fmt: skip
def test_what_a_schema_allows(schema: dict[str, Any], good: list[str], bad: list[str]) -> None:
    """Examples of what is an answer and what is none; the compact and the spaced way of writing are both allowed."""
    for text in good:
        assert spelled_answer(COMPILER.matcher(Grammar.json_schema(schema)), text), text
    for text in bad:
        assert not spelled_answer(COMPILER.matcher(Grammar.json_schema(schema)), text), text


def test_white_space_cannot_go_on_for_ever() -> None:
    """Between two parts of a value there are at most twenty blanks."""
    assert spelled_answer(COMPILER.matcher(Grammar.json_object()), "{" + " " * 20 + "}")
    assert not spelled_answer(COMPILER.matcher(Grammar.json_object()), "{" + " " * 21 + "}")


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_every_token_that_spells_an_allowed_text_is_allowed(vocabulary: str) -> None:
    """No tokenisation is forced, tokens of the same spelling are equal, and control tokens and empty ones spell nothing."""
    tokenizer = VOCABULARIES[vocabulary]
    allowed = GrammarCompiler(tokenizer, tokenizer.vocab_size).matcher(Grammar.regex("( )?(th|1|a|é)(e|y).*")).allowed()
    beginnings = (
        b" ",
        b" t",
        b" th",
        b" the",
        b" a",
        b" 1",
        b"t",
        b"th",
        b"the",
        b"1",
        b"a",
        "é".encode(),
        "é".encode()[:1],
    )
    expected = {
        token_id
        for token_id in range(tokenizer.vocab_size)
        if token_id not in tokenizer.control_token_ids and tokenizer.token_bytes(token_id) in beginnings
    }
    assert set(np.flatnonzero(allowed).tolist()) == expected


def test_an_end_token_that_is_plain_text_ends_and_does_not_spell() -> None:
    """A vocabulary whose end token has ordinary text: it is allowed as an end, never as that text."""
    vocabulary = Vocabulary([bytes([byte]) for byte in range(128)], [], frozenset({ord(".")}))
    matcher = GrammarCompiler(Tokenizer(BYTE_LEVEL._first, vocabulary), 128).matcher(Grammar.regex("a(\\.b)?"))
    assert not matcher.allows(ord("."))
    matcher.add(ord("a"))
    assert np.flatnonzero(matcher.allowed()).tolist() == [ord(".")]
    assert not matcher.is_complete


def test_matchers_of_one_grammar_know_nothing_of_each_other() -> None:
    """A grammar is compiled once and each request has its own state, whichever thread it runs in."""
    grammar = Grammar.regex("(ab|cd){8}")
    first, second = COMPILER.matcher(grammar), COMPILER.matcher(grammar)
    first.add(ord("a"))
    assert (first.allows(ord("b")), second.allows(ord("b")), second.allows(ord("c"))) == (True, False, True)

    def follow(number: int) -> bool:
        matcher, pair = COMPILER.matcher(grammar), "ab" if number % 2 else "cd"
        return spelled_answer(matcher, pair * 8)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(follow, range(64)))


def test_compiled_grammars_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same grammar is compiled once; the least recently used one goes when there are too many."""
    compiler = GrammarCompiler(BYTE_LEVEL, BYTE_LEVEL.vocab_size)
    compiled: list[str] = []
    compile_it = compiler._compile
    monkeypatch.setattr(
        compiler,
        "_compile",
        lambda grammar, tokenizer: (compiled.append(grammar.text), compile_it(grammar, tokenizer))[1],
    )
    for number in range(MAX_CACHED_GRAMMARS + 1):
        compiler.matcher(Grammar.regex(f"x{number}"))
        compiler.matcher(Grammar.regex("x0"))
    assert len(compiled) == MAX_CACHED_GRAMMARS + 1
    assert len(compiler._compiled) == MAX_CACHED_GRAMMARS
    compiler.matcher(Grammar.regex("x1"))
    assert len(compiled) == MAX_CACHED_GRAMMARS + 2


def chain(num_levels: int, link: str) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        str(level): {link: [{"$ref": f"#/$defs/{level + 1}"}]} for level in range(num_levels)
    }
    return {"$defs": {**definitions, str(num_levels): {"type": "null"}}, "$ref": "#/$defs/0"}


def crossed(num_levels: int) -> dict[str, Any]:
    """Every level doubles what the next one has to be combined with."""
    definitions: dict[str, Any] = {
        str(level): {
            "allOf": [
                {"anyOf": [{"properties": {f"x{level}": {"type": "integer"}}}, {"properties": {f"y{level}": {}}}]},
                {"$ref": f"#/$defs/{level + 1}"},
            ]
        }
        for level in range(num_levels)
    }
    return {"$defs": {**definitions, str(num_levels): {"type": "object"}}, "$ref": "#/$defs/0"}


BOMBS = {
    "combinations": crossed(24),
    "fewer combinations": crossed(9),
    "divisors": {"type": "integer", "multipleOf": 1_000_003, "minimum": 5, "maximum": 10**17},
    "a reference to itself": {"$ref": "#"},
    "a circle of references": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_schema_that_costs_too_much_is_refused(name: str) -> None:
    """What would cost time or memory without bound is a RequestError by fuel; the engine goes on."""
    with pytest.raises(RequestError, match="schema cannot be enforced") as raised:
        COMPILER.matcher(Grammar.json_schema(BOMBS[name]))
    assert raised.value.field == "grammar"
    assert spelled_answer(COMPILER.matcher(Grammar.json_object()), "{}")


@pytest.mark.parametrize("link", ["allOf", "anyOf", "oneOf", "prefixItems"])
def test_references_may_go_as_deep_as_the_size_allows(link: str) -> None:
    """A chain of references that fills the largest schema, from a thread with a small stack: it is served or refused, and
    the process lives."""
    schema = chain(1300, link)
    results: list[object] = []

    def compile_it() -> None:
        try:
            results.append(COMPILER.matcher(Grammar.json_schema(schema)).allowed().any())
        except RequestError as error:
            results.append(error)

    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=compile_it)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert len(results) == 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Grammar.json_schema({"type": "array", "uniqueItems": True}), "Unimplemented keys"),
        (lambda: Grammar.json_schema({"type": "strnig"}), "Invalid type: strnig"),
        (lambda: Grammar.json_schema({"$ref": "https://example.com/schema"}), "not present in a registry"),
        (lambda: Grammar.json_schema({"allOf": [{"type": "null"}, {"type": "string"}]}), "Unsatisfiable schema"),
        (lambda: Grammar.json_schema(False), "nothing fits it"),
        (lambda: Grammar.json_schema({"const": {1, 2}}), "the schema is no JSON: it holds {1, 2}"),
        (lambda: Grammar.json_schema({"const": float("nan")}), "the schema is no JSON"),
        (lambda: Grammar.json_schema({"const": "\ud800"}), "unexpected end of hex escape"),
        (lambda: Grammar.json_schema("{}"), "expected a JSON Schema"),  # type: ignore[arg-type]
        (lambda: Grammar.json_schema({"enum": ["x" * MAX_GRAMMAR_BYTES]}), "at most 65536"),
        (lambda: Grammar.json_schema({"enum": list(range(MAX_GRAMMAR_BYTES))}), "more than 65536"),
        (lambda: Grammar.json_schema(nested(MAX_DEPTH)), f"more than {MAX_DEPTH} levels"),
        (lambda: Grammar.json_schema(nested(100_000)), f"more than {MAX_DEPTH} levels"),
        (lambda: Grammar.regex(""), "expected a text"),
        (lambda: Grammar.regex("a\\"), "backslash"),
        (lambda: Grammar.regex("(a"), "regex cannot be enforced"),
        (lambda: Grammar.regex("(?=a)b"), "regex cannot be enforced"),
        (lambda: Grammar.regex("$"), "allows no answer"),
        (lambda: Grammar.regex("x" * (MAX_GRAMMAR_BYTES + 1)), "at most 65536"),
    ],
)
def test_a_grammar_that_cannot_be_served_is_refused(make: Any, says: str) -> None:
    """Malformed, unsupported, impossible or too large: a RequestError that says why and names the field."""
    with pytest.raises(RequestError, match=re.escape(says)) as raised:
        COMPILER.matcher(make())
    assert raised.value.field == "grammar"


def nested(num_levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(num_levels):
        schema = {"items": schema}
    return schema


def test_a_lenient_schema_leaves_out_what_cannot_be_enforced() -> None:
    """For callers who validate afterwards, unknown keywords are ignored and the others hold."""
    grammar = Grammar.json_schema({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, is_lenient=True)
    assert spelled_answer(COMPILER.matcher(grammar), "[null,null]")
    assert not spelled_answer(COMPILER.matcher(grammar), "[1]")


def test_an_answer_that_becomes_too_costly_fails_alone() -> None:
    """A grammar that begins cheap and then exceeds what a step may cost ends its own request with an EngineError."""
    engine = Engine(MODELS["byte-level"], BYTE_LEVEL, CONFIG)
    properties = {f"p{number}": {"type": "string"} for number in range(300)}
    schema = {"anyOf": [{"type": "object", "properties": {name: properties[name]}} for name in properties]}
    sick = engine.add_request([1], SamplingParams(max_tokens=200, grammar=Grammar.json_schema(schema)))
    sound = engine.add_request([2], SamplingParams(max_tokens=20))
    failed: list[RequestFailed] = []
    num_sound = 0
    while engine.has_work:
        for output in engine.step():
            if isinstance(output, RequestFailed):
                failed.append(output)
            num_sound += output.request_id == sound
    assert [(failure.request_id, type(failure.error)) for failure in failed] == [(sick, EngineError)]
    assert "grammar" in str(failed[0].error)
    assert num_sound == 20
    assert engine.stats().num_used_blocks == 0


TOOLS = [
    ToolShape("add", {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],
                      "additionalProperties": False}),
    ToolShape("now", {"type": "object", "additionalProperties": False}),
]  # fmt: skip
CALL = '{"name":"add","arguments":{"a":1}}'


def test_tool_calls_among_free_text() -> None:
    """Any text is an answer; once a call is opened it must be whole and fit its tool, and then text may go on."""
    grammar = Grammar.tool_calls(TOOLS)
    now = '{"name": "now", "arguments": {}}'
    for text in ("", "hello <tool", f"Let me see.\n<tool_call>\n{CALL}\n</tool_call> and on",
                 f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{now}\n</tool_call>"):  # fmt: skip
        assert spelled_answer(COMPILER.matcher(grammar), text), text
    for text in ("<tool_call>", "<tool_call> ", '<tool_call>\n{"name":"sub"', f"<tool_call>\n{CALL}",
                 '<tool_call>\n{"name":"now","arguments":{"a":1}}\n</tool_call>'):  # fmt: skip
        assert not spelled_answer(COMPILER.matcher(grammar), text), text


def test_a_call_can_be_demanded() -> None:
    """With ``must_call`` the answer is calls and nothing else, at least one."""
    grammar = Grammar.tool_calls(TOOLS, must_call=True)
    assert spelled_answer(COMPILER.matcher(grammar), f"<tool_call>\n{CALL}\n</tool_call>" * 2)
    assert not spelled_answer(COMPILER.matcher(grammar), "")
    assert not spelled_answer(COMPILER.matcher(grammar), "hello")


@pytest.mark.parametrize("must_call", [True, False])
def test_a_control_token_may_open_and_close_calls(must_call: bool) -> None:
    """Where the spelling around a call is a control token's, that token is wanted, and the same letters are plain text."""
    controls = [ControlToken(256, END), ControlToken(257, "<call>"), ControlToken(258, "</call>")]
    vocabulary = Vocabulary(
        [bytes([byte]) for byte in range(256)] + [END.encode(), b"<call>", b"</call>"], controls, frozenset({256})
    )
    tokenizer = Tokenizer(BYTE_LEVEL._first, vocabulary)
    grammar = Grammar.tool_calls(TOOLS, begin="<call>", end="</call>", must_call=must_call)
    matcher = GrammarCompiler(tokenizer, 259).matcher(grammar)
    if not must_call:
        for byte in b"x <call> y":
            matcher.add(byte)
    assert (matcher.allows(257), matcher.allows(258), matcher.allows(ord("x"))) == (True, False, not must_call)
    for token in (257, *CALL.encode()):
        assert matcher.allows(token)
        matcher.add(token)
    assert np.flatnonzero(matcher.allowed()).tolist() == [258]
    matcher.add(258)
    assert matcher.allows(256)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grammar.tool_calls([]),
        lambda: Grammar.tool_calls([TOOLS[0], TOOLS[0]]),
        lambda: Grammar.tool_calls(TOOLS, begin=""),
        lambda: Grammar.tool_calls([ToolShape("x", {"properties": {"a": {"$ref": "#/x"}}})]),
    ],
)
def test_tools_that_cannot_be_told_apart_are_refused(make: Any) -> None:
    """No tools, two of one name, nothing around a call, or references that would point elsewhere: refused by name."""
    with pytest.raises(RequestError) as raised:
        make()
    assert raised.value.field == "tools"
