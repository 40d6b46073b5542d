"""How the answer of one request grows, given what the model says next.

Two kinds. A free answer gains one token a time: drawn, turned into text, watched for stop strings, until the model ends
it, a stop string appears, its grammar is complete or it is long enough. A choice is searched for; its tokens come all at
once, when it is decided.

A plain greedy answer needs nothing but the best token of each row, so no row of logits is made for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from agentrt.errors import EngineError
from agentrt.inference.choices import ChoiceSearch, split_text
from agentrt.inference.detokenizer import IncrementalDetokenizer
from agentrt.inference.grammar_compiler import GrammarMatcher
from agentrt.inference.penalties import Penalties
from agentrt.inference.request import FinishReason, Request
from agentrt.inference.runner import Floats, RowScores
from agentrt.inference.sampler import Draw, choose, log_probabilities, most_probable
from agentrt.inference.stop import StopStream
from agentrt.inference.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class AnswerToken:
    token_id: int
    text: str
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()


class Answer(Protocol):
    """The answer of one request; ``finish_reason`` is set once it is complete."""

    finish_reason: FinishReason | None

    @property
    def wants_logits(self) -> bool:
        """Whether the next ``advance`` needs all logits, and not only the best token."""
        ...

    def advance(self, scores: RowScores) -> Sequence[AnswerToken]:
        """Take what the model says of the token after the request's newest; return what is new.

        The request's ``output_token_ids`` are changed to what must be computed next. Raises EngineError if no token can
        be chosen.
        """
        ...


class FreeAnswer:
    """An answer drawn token by token. The token that ends it is part of it, without text."""

    def __init__(
        self,
        request: Request,
        draw: Draw,
        tokenizer: Tokenizer,
        stop: StopStream,
        matcher: GrammarMatcher | None = None,
    ) -> None:
        sampling = request.sampling
        self.finish_reason: FinishReason | None = None
        self._request = request
        self._draw = draw
        self._detokenizer = IncrementalDetokenizer(tokenizer, shows_control=not sampling.skip_special_tokens)
        self._stop = stop
        self._matcher = matcher
        self._penalties = Penalties(sampling, request.prompt_token_ids) if sampling.changes_logits else None
        self._silent_ids = tokenizer.eos_token_ids.union(sampling.stop_token_ids)
        self._end_ids = frozenset(sampling.stop_token_ids) if sampling.ignore_eos else self._silent_ids
        self.wants_logits = (
            draw.temperature > 0 or self._penalties is not None or matcher is not None or sampling.num_logprobs > 0
        )

    def advance(self, scores: RowScores) -> Sequence[AnswerToken]:
        tokens = self._request.output_token_ids
        if scores.best_token_id is None:
            raise EngineError(
                f"the model's values for token {len(tokens)} of the answer are not numbers; the answer ends here"
            )
        token_id = self._choose(scores.best_token_id, scores.logits)
        logprob, top_logprobs = self._judge(token_id, scores.best_token_id, scores)
        tokens.append(token_id)
        if self._penalties is not None:
            self._penalties.add(token_id)
        is_end = token_id in self._end_ids
        if self._matcher is not None and not is_end:
            self._matcher.add(token_id)
        text = "" if token_id in self._silent_ids else self._stop.push(self._detokenizer.push(token_id))
        is_over = is_end or (self._matcher is not None and self._matcher.is_complete)
        is_long_enough = len(tokens) == self._request.sampling.max_tokens
        if (is_over or is_long_enough) and not self._stop.stopped:
            text += self._stop.push(self._detokenizer.flush()) + self._stop.flush()
        if is_over or self._stop.stopped:
            self.finish_reason = FinishReason.STOP
        elif is_long_enough:
            self.finish_reason = FinishReason.LENGTH
        return [AnswerToken(token_id, text, logprob, top_logprobs)]

    def _choose(self, best_token_id: int, logits: Floats | None) -> int:
        if not self.wants_logits:
            return best_token_id
        assert logits is not None, "a draw needs logits"
        is_plain = self._draw.temperature == 0 and self._penalties is None
        if is_plain and (self._matcher is None or self._matcher.allows(best_token_id)):
            return best_token_id
        if self._penalties is not None:
            logits = self._penalties.apply(logits)
        draw = replace(self._draw, index=len(self._request.output_token_ids))
        if self._matcher is None:
            token_id = choose(logits, draw)
        else:
            allowed = np.flatnonzero(self._matcher.allowed())
            position = choose(logits[allowed], draw) if len(allowed) else None
            token_id = None if position is None else int(allowed[position])
        if token_id is None:
            raise EngineError(
                f"no token that is allowed has a probability at token {draw.index} of the answer; the answer ends here"
            )
        return token_id

    def _judge(
        self, token_id: int, best_token_id: int, scores: RowScores
    ) -> tuple[float, tuple[tuple[int, float], ...]]:
        """Return the model's own log-probability of a token, and of the most probable ones."""
        if scores.logits is None:
            return scores.best_logprob, ()
        normaliser = float(scores.logits[best_token_id]) - scores.best_logprob
        top = most_probable(scores.logits, self._request.sampling.num_logprobs)
        return (
            float(scores.logits[token_id]) - normaliser,
            tuple((likely, float(scores.logits[likely]) - normaliser) for likely in top),
        )


class ChoiceAnswer:
    """An answer found by search. Until it is decided, the request's output is the beginning under examination."""

    def __init__(self, request: Request, search: ChoiceSearch, tokenizer: Tokenizer) -> None:
        self.finish_reason: FinishReason | None = None
        self._request = request
        self._search = search
        self._tokenizer = tokenizer

    @property
    def wants_logits(self) -> bool:
        return True

    def advance(self, scores: RowScores) -> Sequence[AnswerToken]:
        assert scores.logits is not None, "a search needs logits"
        try:
            decision = self._search.observe(log_probabilities(scores.logits))
        except ValueError as error:
            raise EngineError(f"{error}; the answer ends here") from error
        if decision is None:
            self._request.replace_output(self._search.token_ids)
            return []
        self._request.replace_output(decision.token_ids)
        self.finish_reason = FinishReason.CHOICE
        texts = split_text(decision.choice, [self._tokenizer.token_bytes(token) for token in decision.token_ids])
        return [
            AnswerToken(token_id, text, logprob)
            for token_id, text, logprob in zip(decision.token_ids, texts, decision.logprobs, strict=True)
        ]
