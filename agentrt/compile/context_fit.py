"""Prompts that cannot fit the context window of their model, whatever is put into them.

What is known of a prompt before a run is its fixed part: the agent's instructions, and the text of the template that stands
outside of expressions, conditions and loops. Only a prompt whose fixed part alone is refused is told of, so the fixed part
is counted low. Where a text goes on with a value, its last word may melt with it into fewer tokens: words at such a seam
are left out. What the chat template adds is left out too. And tokens of the answer are not counted, as an engine cuts
``max_tokens`` to what there is room for; only an answer that is one of ``choices`` needs its room whole.

Counting needs the model's tokenizer, which takes half a second to read. A token spells a byte at least, so nothing is
opened for a text with fewer bytes than any window has tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from agentrt.declare.action import Action
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.call import LlmCall
from agentrt.declare.codes import Code, diagnose
from agentrt.declare.dag import Dag
from agentrt.declare.template import Template
from agentrt.declare.template_program import Compiled, Pieces, read_program
from agentrt.errors import Diagnostic

MIN_BYTES = 2000
"""A shorter fixed part fits every window worth the name."""

_WORD_START = re.compile(r"(?<=[A-Za-z0-9]) (?=[A-Za-z])")
"""Where a word begins in every tokenizer, whatever stands before the word in front of it."""


class ModelFacts(Protocol):
    """What is known of models without loading them; None where it is not. Relative paths start from ``base_dir``.

    A ``ref`` of None is the configured default model.
    """

    def context_tokens(self, ref: ModelRef | None, base_dir: Path | None) -> int | None:
        """Return how many tokens prompt and answer may have together."""
        ...

    def count_tokens(self, ref: ModelRef | None, base_dir: Path | None, text: str) -> int | None:
        """Return how many tokens a text has by itself."""
        ...


def context_problems(dag: Dag, facts: ModelFacts) -> Iterator[Diagnostic]:
    """Go through the actions whose prompts their model must refuse as too long."""
    for action in dag.actions.values():
        for call in action.calls:
            if isinstance(call, LlmCall) and call.agent in dag.agents:
                yield from _check_prompt(dag, action, call, dag.agents[call.agent], facts)


def _check_prompt(dag: Dag, action: Action, call: LlmCall, agent: Agent, facts: ModelFacts) -> Iterator[Diagnostic]:
    if _size_bytes(agent.instructions) + _size_bytes(call.prompt.source) < MIN_BYTES:
        return
    texts = [text for text in (_inner_words(agent.instructions), *fixed_texts(call.prompt)) if text]
    size_bytes = sum(map(_size_bytes, texts))
    if size_bytes < MIN_BYTES:
        return
    window = facts.context_tokens(agent.model, dag.base_dir)
    # One token of an answer must fit, or the longest choice, whose every token spells a byte of it or one space before.
    num_answer = max((_size_bytes(choice) + 1 for choice in call.choices), default=1)
    if window is None or size_bytes + num_answer <= window:
        return
    num_fixed = 0
    for text in texts:
        num_tokens = facts.count_tokens(agent.model, dag.base_dir, text)
        if num_tokens is None:
            return
        # Some tokenizers put a space before a text that stands alone, and that may be a token.
        num_fixed += max(0, num_tokens - 1)
    if num_fixed + num_answer <= window:
        return
    model = "the default model" if agent.model is None else f"model {agent.model.name!r}"
    needed = f", and its longest choice may take {num_answer}" if call.choices else ""
    message = (
        f"the prompt of action {action.name!r} has at least {num_fixed} tokens before anything is put into it{needed}; "
        f"the context of {model} holds {window}, answer included"
    )
    of_instructions = f"the instructions of agent {agent.name!r} ({len(agent.instructions)} characters)"
    hint = (
        f"shorten {f'{of_instructions} or ' if agent.instructions else ''}the prompt, or take a model that reads more"
    )
    yield diagnose(Code.CONTEXT_OVERFLOW, message, action.place_of("prompt"), hint=hint)


def fixed_texts(template: Template) -> list[str]:
    """Return the texts that a template renders in any case, without the words that may melt with a value beside them."""
    program = read_program(template.source, template.origin)
    pieces: list[str | None]
    if isinstance(program, Pieces):
        pieces = [piece if isinstance(piece, str) else None for piece in program.pieces]
    elif isinstance(program, Compiled):
        pieces = _top_level_texts(template.source)
    else:
        pieces = [template.source]
    last = len(pieces) - 1
    texts = [
        _inner_words(piece, is_cut_before=index > 0, is_cut_after=index < last)
        for index, piece in enumerate(pieces)
        if piece is not None
    ]
    return [text for text in texts if text]


def _top_level_texts(source: str) -> list[str | None]:
    """Return the texts outside of all statements, and None for everything between them."""
    from jinja2 import nodes

    from agentrt.declare.template_syntax import read

    texts: list[str | None] = []
    for statement in read(source).tree.body:
        parts = statement.nodes if isinstance(statement, nodes.Output) else [statement]
        texts += [part.data if isinstance(part, nodes.TemplateData) else None for part in parts]
    return texts


def _inner_words(text: str, *, is_cut_before: bool = False, is_cut_after: bool = False) -> str:
    """Return a text without the words at its cut ends."""
    # A chat template may take white space away at the start, and the first word is then spelled by other tokens.
    if is_cut_before or text[:1].isspace():
        start = _WORD_START.search(text)
        if start is None:
            return ""
        text = text[start.start() :]
    if is_cut_after:
        ends = [match.start() for match in _WORD_START.finditer(text)]
        text = text[: ends[-1]] if ends else ""
    return text.rstrip()


def _size_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
