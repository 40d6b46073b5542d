"""How the answer of one request grows, given what the model says next.

Two kinds. A free answer gains one token a time: drawn, turned into text, watched for stop strings, until the model ends
it, a stop string appears or it is long enough. A choice is searched for; its tokens come all at once, when it is decided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from agentrt.errors import EngineError
from agentrt.inference.choices import ChoiceSearch, split_text
from agentrt.inference.detokenizer import IncrementalDetokenizer
from agentrt.inference.request import FinishReason, Request
from agentrt.inference.runner import RowScores
from agentrt.inference.sampler import Draw, choose, log_probabilities
from agentrt.inference.stop import StopStream
from agentrt.inference.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class AnswerToken:
    token_id: int
    text: str
    logprob: float


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

    def __init__(self, request: Request, draw: Draw, tokenizer: Tokenizer, stop: StopStream) -> None:
        self.finish_reason: FinishReason | None = None
        self._request = request
        self._draw = draw
        self._tokenizer = tokenizer
        self._detokenizer = IncrementalDetokenizer(tokenizer)
        self._stop = stop

    @property
    def wants_logits(self) -> bool:
        return self._draw.temperature > 0

    def advance(self, scores: RowScores) -> Sequence[AnswerToken]:
        tokens = self._request.output_token_ids
        token_id, logprob = self._choose(scores)
        if token_id is None:
            raise EngineError(
                f"the model's values for token {len(tokens)} of the answer are not numbers; the answer ends here"
            )
        tokens.append(token_id)
        is_end = token_id in self._tokenizer.eos_token_ids
        text = "" if is_end else self._stop.push(self._detokenizer.push(token_id))
        is_long_enough = len(tokens) == self._request.sampling.max_tokens
        if (is_end or is_long_enough) and not self._stop.stopped:
            text += self._stop.push(self._detokenizer.flush()) + self._stop.flush()
        if is_end or self._stop.stopped:
            self.finish_reason = FinishReason.STOP
        elif is_long_enough:
            self.finish_reason = FinishReason.LENGTH
        return [AnswerToken(token_id, text, logprob)]

    def _choose(self, scores: RowScores) -> tuple[int | None, float]:
        if not self.wants_logits:
            return scores.best_token_id, scores.best_logprob
        assert scores.logits is not None, "a draw needs logits"
        logprobs = log_probabilities(scores.logits)
        token_id = choose(logprobs, replace(self._draw, index=len(self._request.output_token_ids)))
        return token_id, math.nan if token_id is None else float(logprobs[token_id])


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
