"""The engine: requests in, tokens out, one step at a time.

A step has three beats: **schedule** which rows of which requests are computed, **run** them through the model, **apply**
what came out. Between steps everything is consistent, so that is when requests come and go.

What one request does wrong (logits that are not numbers, text that cannot be decoded, time that is over) ends that
request and nothing else. What goes wrong for all (the model itself raises) is raised from ``step``.

One thread at a time: ``async_engine`` gives it one of its own. ``prepare`` alone may be called from any.
"""

from __future__ import annotations

import functools
import itertools
import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentrt.errors import AgentrtError, EngineError, RequestError, TimeoutExpiredError
from agentrt.inference.answer import Answer, AnswerToken, ChoiceAnswer, FreeAnswer
from agentrt.inference.choices import ChoiceAutomaton, ChoiceSearch, TokenSpellings
from agentrt.inference.config import EngineConfig
from agentrt.inference.cpu.model import CpuModel
from agentrt.inference.cpu.runner import CpuRunner
from agentrt.inference.grammar_compiler import GrammarCompiler
from agentrt.inference.kv_cache import KVCache
from agentrt.inference.output import EngineStats, Finished, Output, RequestFailed, TokenOutput
from agentrt.inference.request import ORDINARY, FinishReason, Request, SchedulingParams
from agentrt.inference.runner import RowScores, Runner
from agentrt.inference.sampler import Draw
from agentrt.inference.sampling_params import SamplingParams
from agentrt.inference.scheduler import Scheduler, Step
from agentrt.inference.step_time import StepTime
from agentrt.inference.stop import StopStream, StopStrings
from agentrt.inference.tokenizer import Tokenizer

if TYPE_CHECKING:
    from agentrt.inference.forward import ForwardModel


@dataclass(frozen=True, slots=True)
class Generation:
    """A request in the engine, and its answer as far as it got."""

    request: Request
    answer: Answer
    timeout_s: float | None


class Engine:
    """Serves many requests with one model."""

    def __init__(
        self,
        model: ForwardModel | CpuModel,
        tokenizer: Tokenizer,
        config: EngineConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` gives seconds and never goes back; all durations and deadlines are by it.

        Raises:
            ConfigError: the cache does not hold a block, or there is no memory for it.
        """
        self.config = config or EngineConfig()
        self._tokenizer = tokenizer
        self._clock = clock
        # A model may have more rows than its tokenizer has tokens; they mean nothing and must not be drawn.
        self._vocab_size = min(model.vocab_size, tokenizer.vocab_size)
        self._runner = make_runner(model, self.config, self._vocab_size)
        self._cache = KVCache(
            self._runner.num_blocks, self.config.block_size, max_pinned_share=self.config.max_pinned_share
        )
        self._scheduler = Scheduler(self.config, self._cache, max_context_tokens=model.max_context_tokens)
        spellings = TokenSpellings(
            (token_id, tokenizer.token_bytes(token_id))
            for token_id in range(self._vocab_size)
            if token_id not in tokenizer.control_token_ids
        )
        self._automaton = functools.lru_cache(maxsize=64)(lambda choices: ChoiceAutomaton(choices, spellings))
        self._grammars = GrammarCompiler(tokenizer, self._vocab_size)
        self._step_time = StepTime(itl_target_s=self.config.itl_target_s, max_rows=self.config.max_batch_tokens)
        self._live: dict[int, Generation] = {}
        self._ids = itertools.count()
        self._num_steps = 0
        self._num_computed_tokens = 0
        self._num_output_tokens = 0

    @property
    def max_context_tokens(self) -> int:
        """Prompt and answer of one request together: what the model reads and the cache holds."""
        return self._scheduler.max_context_tokens

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def prepare(
        self,
        prompt_token_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        timeout_s: float | None = None,
        scheduling: SchedulingParams = ORDINARY,
    ) -> Generation:
        """Check a request and make it ready for ``submit``. Changes nothing of the engine.

        ``scheduling`` says for whom it is; its deadline is set from ``timeout_s``.

        Raises:
            PromptTooLongError: the prompt and one token of the answer do not fit the context.
            RequestError: a parameter that cannot be served; ``field`` names it.
            TimeoutExpiredError: ``timeout_s``, the seconds from now after which the request is dropped, is 0 or less.
        """
        self._check_prompt(prompt_token_ids)
        self._scheduler.check_fits(prompt_token_ids, sampling)
        now = self._clock()
        if timeout_s is not None:
            if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or math.isnan(timeout_s):
                raise RequestError(f"timeout_s is {timeout_s!r}; expected seconds", field="timeout_s")
            if timeout_s <= 0:
                raise TimeoutExpiredError(timeout_s)
        request = Request(
            request_id=next(self._ids),
            prompt_token_ids=tuple(prompt_token_ids),
            sampling=sampling,
            arrival_s=now,
            scheduling=replace(scheduling, deadline_s=None if timeout_s is None else now + timeout_s),
        )
        return Generation(request, self._begin_answer(request), timeout_s)

    def submit(self, generation: Generation) -> int:
        """Queue a prepared request; returns its id, which its outputs carry."""
        self._scheduler.submit(generation.request)
        self._live[generation.request.request_id] = generation
        return generation.request.request_id

    def add_request(
        self, prompt_token_ids: Sequence[int], sampling: SamplingParams, *, timeout_s: float | None = None
    ) -> int:
        """Check and queue a request; see ``prepare`` and ``submit``."""
        return self.submit(self.prepare(prompt_token_ids, sampling, timeout_s=timeout_s))

    def abort(self, request_id: int) -> None:
        """Drop a request and free its blocks. One that is over already, or was never known, is ignored."""
        if request_id in self._live:
            self._end(self._live[request_id], FinishReason.CANCELLED)

    def step(self) -> list[Output]:
        """Do one step; return what it brought, requests whose time is over included.

        Raises what the model raises; the engine cannot be used after that.
        """
        outputs: list[Output] = self._drop_late()
        max_prefill_rows = self._step_time.max_prefill_rows(
            self._scheduler.decode_load(), context_tokens=self._scheduler.prompt_context_tokens()
        )
        step = self._scheduler.schedule(self._clock(), max_prefill_rows)
        self._num_steps += 1
        if not step.rows:
            return outputs
        self._note_admissions(step)
        answering = [self._live[rows.request.request_id] for rows in step.rows if rows.needs_logits]
        wants_logits = [generation.answer.wants_logits for generation in answering]
        began = self._clock()
        scores = self._runner.run(step, self._cache, wants_logits)
        self._step_time.observe(step.load, self._clock() - began)
        self._scheduler.complete(step)
        self._num_computed_tokens += step.num_rows
        outputs += self._apply(answering, scores)
        return outputs

    def close(self) -> None:
        """Give back the cache and the threads of the model; the engine cannot be used after that."""
        self._runner.close()

    def stats(self) -> EngineStats:
        return EngineStats(
            num_waiting=len(self._scheduler.waiting),
            num_running=len(self._scheduler.running),
            num_blocks=self._cache.num_blocks,
            num_used_blocks=self._cache.num_used_blocks,
            payload_share=self._scheduler.payload_share,
            num_steps=self._num_steps,
            num_preemptions=self._scheduler.num_preemptions,
            num_computed_tokens=self._num_computed_tokens,
            num_cached_tokens=self._cache.num_hit_tokens,
            num_output_tokens=self._num_output_tokens,
        )

    def _check_prompt(self, prompt_token_ids: Sequence[int]) -> None:
        if len(prompt_token_ids) == 0:
            raise RequestError("the prompt is empty; it needs at least one token", field="prompt_token_ids")
        for position, token_id in enumerate(prompt_token_ids):
            if type(token_id) is not int or not 0 <= token_id < self._vocab_size:
                raise RequestError(
                    f"token {position} of the prompt is {token_id!r}; this model's tokens are whole numbers from 0 to "
                    f"{self._vocab_size - 1}",
                    field="prompt_token_ids",
                )

    def _begin_answer(self, request: Request) -> Answer:
        sampling = request.sampling
        for name, token_ids in (
            ("logit_bias", [token_id for token_id, _ in sampling.logit_bias]),
            ("stop_token_ids", sampling.stop_token_ids),
        ):
            if any(token_id >= self._vocab_size for token_id in token_ids):
                raise RequestError(
                    f"{name} names token {max(token_ids)}; this model's tokens are whole numbers from 0 to "
                    f"{self._vocab_size - 1}",
                    field=name,
                )
        draw = Draw(
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            seed=secrets.randbits(64) if sampling.seed is None else sampling.seed,
        )
        if sampling.choices:
            search = ChoiceSearch(self._automaton(sampling.choices), draw)
            return ChoiceAnswer(request, search, self._tokenizer)
        matcher = None if sampling.grammar is None else self._grammars.matcher(sampling.grammar)
        return FreeAnswer(request, draw, self._tokenizer, StopStream(StopStrings(sampling.stop)), matcher)

    def _drop_late(self) -> list[Output]:
        now = self._clock()
        outputs: list[Output] = []
        for generation in list(self._live.values()):
            deadline_s = generation.request.deadline_s
            if deadline_s is not None and now >= deadline_s:
                assert generation.timeout_s is not None, "a request with a deadline has a timeout"
                error = TimeoutExpiredError(generation.timeout_s)
                outputs.append(self._drop(generation, FinishReason.TIMED_OUT, error))
        return outputs

    def _note_admissions(self, step: Step) -> None:
        now = self._clock()
        for rows in step.rows:
            if rows.request.admitted_s is None:
                rows.request.admitted_s = now

    def _apply(self, answering: Sequence[Generation], scores: Sequence[RowScores]) -> list[Output]:
        """Let every request that got scores take its row of them."""
        outputs: list[Output] = []
        for generation, row in zip(answering, scores, strict=True):
            request = generation.request
            try:
                tokens = generation.answer.advance(row)
            except EngineError as error:
                outputs.append(self._drop(generation, FinishReason.FAILED, error))
            except Exception as cause:
                failure = EngineError(f"the answer failed after {len(request.output_token_ids)} tokens: {cause!r}")
                failure.__cause__ = cause
                outputs.append(self._drop(generation, FinishReason.FAILED, failure))
            else:
                outputs += self._hand_out(generation, tokens)
        return outputs

    def _hand_out(self, generation: Generation, tokens: Sequence[AnswerToken]) -> list[Output]:
        request, reason = generation.request, generation.answer.finish_reason
        if tokens and request.first_token_s is None:
            request.first_token_s = self._clock()
        finished = None
        if reason is not None:
            self._end(generation, reason)
            finished = _summary(request, reason)
        self._num_output_tokens += len(tokens)
        time_ns = time.time_ns()
        return [
            TokenOutput(
                request_id=request.request_id,
                token_id=token.token_id,
                text=token.text,
                logprob=token.logprob,
                time_ns=time_ns,
                finished=finished if number == len(tokens) else None,
                top_logprobs=token.top_logprobs,
            )
            for number, token in enumerate(tokens, start=1)
        ]

    def _drop(self, generation: Generation, reason: FinishReason, error: AgentrtError) -> RequestFailed:
        self._end(generation, reason)
        return RequestFailed(generation.request.request_id, error)

    def _end(self, generation: Generation, reason: FinishReason) -> None:
        self._scheduler.finish(generation.request, reason)
        del self._live[generation.request.request_id]


def make_runner(model: ForwardModel | CpuModel, config: EngineConfig, num_tokens: int) -> Runner:
    """Return what computes ``model``. torch is imported only for a model that needs it."""
    if isinstance(model, CpuModel):
        return CpuRunner(model, config, num_tokens)
    from agentrt.inference.model_runner import ModelRunner

    return ModelRunner(model, config, num_tokens)


def _summary(request: Request, reason: FinishReason) -> Finished:
    assert request.admitted_s is not None, "a request that has an answer was admitted"
    assert request.first_token_s is not None, "a request that has an answer has a first token"
    return Finished(
        reason=reason,
        num_prompt_tokens=len(request.prompt_token_ids),
        num_output_tokens=len(request.output_token_ids),
        num_cached_tokens=request.num_cached_tokens,
        num_preemptions=request.num_preemptions,
        queue_s=request.admitted_s - request.arrival_s,
        prefill_s=request.first_token_s - request.admitted_s,
    )
