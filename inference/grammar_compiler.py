"""A Grammar and a vocabulary together: which tokens may come next in a constrained answer.

The work is llguidance's (Microsoft; the engine behind several servers' structured outputs): an Earley parser over a lexer
of regex derivatives, walked along a trie of the vocabulary. It was chosen over xgrammar by measurement and by what it
brings along: no dependency at all (xgrammar needs torch and transformers), one wheel for every CPython, compiling in
milliseconds where xgrammar takes 50 to 300, masks in tens of microseconds both.

What must hold:

- Any tokens that spell an allowed text are allowed: nothing is forced into one tokenisation (``no_forcing``), so the
  library needs no tokenizer, only the bytes of each token. That is the same for byte-level and SentencePiece vocabularies.
- Control tokens never spell text. The tokens that end an answer are kept from the library: the answer may end exactly
  where its text is complete, and must where nothing can follow.
- White space between the parts of a JSON value is bounded; a small model can otherwise write blanks until it is cut.
- A grammar is compiled once, in the caller's thread, and copied for each request (15 us). Cost is bounded by fuel, not by
  time: the same grammar is refused on every machine. Following references, the library goes as deep as they go, by up to
  10 KB of stack a level: it is given a stack for the deepest that a grammar's size allows.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from agentrt.errors import EngineError, RequestError
from agentrt.inference.grammar import Grammar
from agentrt.inference.tokenizer import Tokenizer

if TYPE_CHECKING:
    import llguidance

MAX_CACHED_GRAMMARS = 64

_LIMITS = {
    "max_items_in_row": 2_000,
    "step_lexer_fuel": 100_000,
    "step_max_items": 10_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 100_000,
    "verbose_errors": False,
}
_STACK_BYTES = 64 * 1024 * 1024
_JSON_OPTIONS = {
    "whitespace_pattern": r"[ \n\t]{1,20}",
    # Not \u: half of a surrogate pair is no text, and every other character can stand for itself.
    "json_allowed_escapes": 'nrbtf\\"',
}
_HEADER = '%llguidance {"no_forcing": true}\n'
_stack_size_lock = threading.Lock()

Mask = npt.NDArray[np.bool_]


class GrammarCompiler:
    """Makes matchers for one vocabulary. May be used by several threads.

    ``vocab_size``: how many tokens there are to choose from. The vocabulary's trie is built with the first grammar (0.2 s
    for 49,000 tokens).
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._lock = threading.Lock()
        self._library_tokenizer: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, llguidance.LLMatcher] = OrderedDict()

    def matcher(self, grammar: Grammar) -> GrammarMatcher:
        """Return a matcher at the beginning of an answer.

        Raises:
            RequestError: the grammar is malformed, allows nothing, has parts that are not supported or costs too much.
        """
        with self._lock:
            found = self._compiled.get(grammar)
            if found is not None:
                self._compiled.move_to_end(grammar)
                return self._copy(found)
            if self._library_tokenizer is None:
                self._library_tokenizer = self._make_tokenizer()
            tokenizer = self._library_tokenizer
        # Not under the lock: others need not wait for it. Two that compile the same at once do it twice.
        compiled = _on_a_large_stack(lambda: self._compile(grammar, tokenizer))
        with self._lock:
            self._compiled[grammar] = compiled
            if len(self._compiled) > MAX_CACHED_GRAMMARS:
                self._compiled.popitem(last=False)
            return self._copy(compiled)

    def _copy(self, compiled: llguidance.LLMatcher) -> GrammarMatcher:
        return GrammarMatcher(compiled.deep_copy(), self._tokenizer.eos_token_ids, self._vocab_size)

    def _make_tokenizer(self) -> llguidance.LLTokenizer:
        import llguidance

        return llguidance.LLTokenizer(_LibraryVocabulary(self._tokenizer, self._vocab_size))  # type: ignore[arg-type]

    def _compile(self, grammar: Grammar, tokenizer: llguidance.LLTokenizer) -> llguidance.LLMatcher:
        import llguidance

        source = _source(grammar, self._tokenizer)
        limits = llguidance.LLParserLimits(**_LIMITS)  # type: ignore[arg-type]
        compiled = llguidance.LLMatcher(tokenizer, source, log_level=0, limits=limits)
        if compiled.is_error():
            raise RequestError(
                f"the {_NAMES[grammar.kind]} cannot be enforced: {_reason(compiled.get_error())}", field="grammar"
            )
        # The first mask costs most and, kept with what is copied, is paid once. It also finds what can begin no answer.
        matcher = GrammarMatcher(compiled, frozenset(), self._vocab_size)
        try:
            allows_something = bool(matcher.allowed().any())
        except EngineError as error:
            raise RequestError(f"the {_NAMES[grammar.kind]} cannot be enforced: {error}", field="grammar") from error
        if not allows_something:
            raise RequestError(f"the {_NAMES[grammar.kind]} allows no answer with any text", field="grammar")
        return compiled


class GrammarMatcher:
    """One constrained answer as it grows. Its state follows the tokens of the answer, which are never drawn anew."""

    def __init__(self, matcher: llguidance.LLMatcher, eos_token_ids: frozenset[int], vocab_size: int) -> None:
        self._matcher = matcher
        self._eos_token_ids = eos_token_ids
        self._vocab_size = vocab_size
        # One more than the vocabulary: the library's own end, which is never drawn.
        self._bits = np.zeros((vocab_size + 1 + 31) // 32, np.int32)

    @property
    def is_complete(self) -> bool:
        """Whether the answer is allowed as it is and nothing can follow."""
        return self._matcher.is_stopped() and self._matcher.is_accepting()

    def allows(self, token_id: int) -> bool:
        """Return whether this token may come next; cheaper than all of ``allowed``."""
        if token_id in self._eos_token_ids:
            return self._matcher.is_accepting()
        return self._matcher.validate_tokens([token_id]) == 1

    def allowed(self) -> Mask:
        """Return which tokens may come next, [vocab_size].

        Raises:
            EngineError: it costs more than is allowed.
        """
        try:
            self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        except ValueError as error:
            raise EngineError(f"the grammar takes too long to follow: {_reason(str(error))}") from error
        self._check()
        mask = np.unpackbits(self._bits.view(np.uint8), count=self._vocab_size, bitorder="little").view(np.bool_)
        if self._eos_token_ids and self._matcher.is_accepting():
            mask[list(self._eos_token_ids)] = True
        return mask

    def add(self, token_id: int) -> None:
        """Take the next token of the answer, one that is allowed and does not end it.

        Raises:
            EngineError: it is not allowed, or costs more than is allowed.
        """
        self._matcher.consume_token(token_id)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise EngineError(f"the grammar cannot be followed any further: {_reason(self._matcher.get_error())}")


class _LibraryVocabulary:
    """The vocabulary as llguidance wants to see it: bytes by id, one end of its own, and what never is text."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        silent = tokenizer.control_token_ids | tokenizer.eos_token_ids
        self.tokens = [
            # A marked token needs a name of its own; what has neither bytes nor a name is never allowed.
            f"<|{token_id}|>".encode() if token_id in silent else tokenizer.token_bytes(token_id)
            for token_id in range(vocab_size)
        ]
        self.tokens.append(b"<|end|>")
        self.eos_token_id = vocab_size
        self.special_token_ids = [*sorted(token_id for token_id in silent if token_id < vocab_size), vocab_size]

    def __call__(self, text: str) -> Sequence[int]:
        raise AssertionError("no tokenisation is forced, so nothing is tokenised")


_NAMES = {"json_schema": "schema", "regex": "regex", "tool_calls": "tools"}


def _source(grammar: Grammar, tokenizer: Tokenizer) -> str:
    """Return the grammar in llguidance's own language, a variant of Lark's."""
    match grammar.kind:
        case "json_schema":
            return f"{_HEADER}start: {_json_rule(grammar)}"
        case "regex":
            return f"{_HEADER}start: {_regex_rule(grammar.text)}"
        case "tool_calls":
            return _HEADER + _tool_rules(grammar, tokenizer)


def _tool_rules(grammar: Grammar, tokenizer: Tokenizer) -> str:
    # What opens a call is told from text as soon as it is whole; white space after it is then demanded, not waited for.
    opening = grammar.begin.rstrip()
    begin = _symbols(opening, tokenizer) + _symbols(grammar.begin[len(opening) :], tokenizer)
    call = [_json_rule(grammar), *_symbols(grammar.end, tokenizer)]
    if grammar.must_call:
        return f"start: call+\ncall: {' '.join(begin + call)}"
    rules = "start: call* TEXT\nTEXT: /(.|\\n)*/\n"
    if begin[0].startswith("<["):
        return f"{rules}call: TEXT {' '.join(begin + call)}"
    return f"{rules}opened[lazy]: TEXT {begin[0]}\ncall: opened {' '.join(begin[1:] + call)}"


def _symbols(text: str, tokenizer: Tokenizer) -> list[str]:
    """Return ``text`` as symbols of the grammar: control tokens by id, what is between them as literals."""
    controls = {tokenizer.token_bytes(token_id).decode(): token_id for token_id in tokenizer.control_token_ids}
    spellings = sorted(filter(None, controls), key=len, reverse=True)
    pieces = re.split(f"({'|'.join(map(re.escape, spellings))})", text) if spellings else [text]
    return [f"<[{controls[piece]}]>" if piece in controls else json.dumps(piece) for piece in pieces if piece]


def _regex_rule(pattern: str) -> str:
    import llguidance

    if re.search(r"(?<!\\)(\\\\)*\\$", pattern):
        raise RequestError("the regex ends in a backslash that escapes nothing", field="grammar")
    # Anchors say what holds anyway; the library does not know them.
    pattern = pattern.removeprefix("^")
    if pattern.endswith("$") and not re.search(r"(?<!\\)(\\\\)*\\\$$", pattern):
        pattern = pattern[:-1]
    return f"/{llguidance.regex_to_lark(pattern, 'dws')}/"


def _json_rule(grammar: Grammar) -> str:
    schema = json.loads(grammar.text)
    if schema is True:
        schema = {}
    elif schema is False:
        raise RequestError("the schema is false: nothing fits it", field="grammar")
    options: dict[str, Any] = {**_JSON_OPTIONS, "lenient": grammar.is_lenient}
    return "%json " + json.dumps({**schema, "x-guidance": options}, separators=(",", ":"))


def _reason(message: str) -> str:
    """Return the first line of what the library says, without its own frame."""
    line = message.strip().splitlines()[0] if message.strip() else "no reason is given"
    line = re.sub(r"^at \d+\(\d+\): ", "", line).removesuffix("<non-verbose/>").strip()
    return line if len(line) <= 300 else f"{line[:300]}..."


def _on_a_large_stack(compile_it: Callable[[], llguidance.LLMatcher]) -> llguidance.LLMatcher:
    """Call it in a thread whose stack is large enough whatever the caller's is."""
    done: Future[llguidance.LLMatcher] = Future()

    def run() -> None:
        try:
            done.set_result(compile_it())
        except BaseException as error:
            done.set_exception(error)

    with _stack_size_lock:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="agentrt-grammar", daemon=True)
            thread.start()
        finally:
            threading.stack_size(before)
    return done.result()
