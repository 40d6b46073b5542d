"""Doing what an action says, once: ask a model, call a tool, call a function.

Every way an attempt can fail leaves here as an AgentrtError; cancellation passes through untouched.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread

from agentrt.declare.action import Action, ActionType
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.call import FunctionCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.dag import Dag
from agentrt.declare.json_schema import misfit
from agentrt.errors import AgentrtError, ModelResponseError, ModelStreamError, ToolError
from agentrt.models.model import ChatRequest, FinishEvent, Message, Model, Sampling, TokenEvent
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import ToolContext
from agentrt.trace.spans import ActionSpan
from agentrt.trace.token_timing import TokenTiming

Scope = Mapping[str, Any]
"""What templates and guards see: ``{"inputs": {name: value}, "actions": {name: {"output", "status"}}}``."""


@dataclass(slots=True)
class Attempt:
    """One try of an action: what it may know and where it reports to."""

    action: str
    scope: Scope
    span: ActionSpan
    remaining_s: float | None
    """Seconds until this attempt is stopped; None when nothing stops it."""
    on_token: Callable[[str], None]
    tokens: TokenTiming | None = field(default=None, init=False)


class ModelSource(Protocol):
    """Where an agent's model comes from."""

    def get(self, ref: ModelRef | None, base_dir: Path | None) -> Model:
        """Return the model ``ref`` names, the same object each time; relative paths start from ``base_dir``.

        Raises:
            UnknownModelError: nothing answers to that name.
        """
        ...


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a person is asked: the action and its question, with everything filled in."""

    dag: str
    action: str
    question: str


@dataclass(frozen=True, slots=True)
class Approval:
    """What a person answered. A refusal fails the action, with the comment as its reason."""

    approved: bool
    comment: str = ""


Approver = Callable[[ApprovalRequest], Awaitable[Approval]]


class Caller:
    """Carries out the calls of one Dag's actions."""

    def __init__(
        self,
        dag: Dag,
        *,
        models: ModelSource,
        tools: ToolRegistry,
        trace_content: bool,
        max_concurrency: int = 64,
        approver: Approver | None = None,
    ) -> None:
        self._dag = dag
        self.max_concurrency = max_concurrency
        self._approver = approver
        self._models = models
        self._tools = tools
        self._trace_content = trace_content

    def type_of(self, action: Action) -> ActionType:
        """Return what kind of work an action is: what the Dag says, or else what its tool says of itself."""
        if action.type is ActionType.TOOL and isinstance(action.call, ToolCall) and action.call.tool in self._tools:
            return ActionType(self._tools[action.call.tool].action_type)
        return action.type

    def of(self, dag: Dag) -> Caller:
        """Return what carries out the calls of another Dag in the same run."""
        return Caller(
            dag,
            models=self._models,
            tools=self._tools,
            trace_content=self._trace_content,
            max_concurrency=self.max_concurrency,
            approver=self._approver,
        )

    async def call(self, call: LlmCall | ToolCall | FunctionCall | HumanCall, attempt: Attempt) -> Any:
        """Do it once and return the action's output.

        Raises:
            AgentrtError: whatever went wrong, with its cause chained.
        """
        match call:
            case LlmCall():
                answer = await self._ask(call, attempt)
                return answer if call.output_schema is None else _read_answer(answer, call.output_schema)
            case ToolCall():
                return await self._use_tool(call, attempt)
            case HumanCall():
                return await self._ask_person(call, attempt)
            case FunctionCall():
                arguments = {name: read.look_up(attempt.scope) for name, read in call.arguments.items()}
                for name, convert in call.converters.items():
                    try:
                        arguments[name] = convert(arguments[name])
                    except ValueError as error:
                        raise ToolError(f"parameter {name!r}: {error}") from error
                return await _call_function(call.function, arguments)

    async def _ask(self, call: LlmCall, attempt: Attempt) -> str:
        agent = self._dag.agents[call.agent]
        request = _chat_request(agent, call, attempt)
        model = self._models.get(agent.model, self._dag.base_dir)
        span = attempt.span.model_call(
            model=model.name,
            provider=model.provider,
            max_tokens=request.sampling.max_tokens,
            temperature=request.sampling.temperature,
            prompt=request.messages[-1].content if self._trace_content else None,
        )
        request = ChatRequest(request.messages, request.sampling, request.timeout_s, span.traceparent)
        began_ns = time.time_ns()
        times_ns: list[int] = []
        pieces: list[str] = []
        finish: FinishEvent | None = None
        try:
            async with model.stream(request) as events:
                async for event in events:
                    if isinstance(event, TokenEvent):
                        times_ns.append(event.time_ns)
                        span.token(event.time_ns, event.token_id, event.logprob, event.text)
                        pieces.append(event.text)
                        if event.text:
                            attempt.on_token(event.text)
                    else:
                        finish = event
            if finish is None:
                raise ModelStreamError(f"the answer of model {model.name!r} ended without saying why")
        except BaseException as error:
            span.end(error=error)
            raise
        finally:
            attempt.tokens = TokenTiming.from_times(began_ns, times_ns)
        span.end(
            finish_reason=finish.reason,
            num_prompt_tokens=finish.num_prompt_tokens,
            num_completion_tokens=finish.num_completion_tokens,
            num_cached_tokens=finish.num_cached_tokens,
            queue_s=finish.queue_s,
            prefill_s=finish.prefill_s,
        )
        return "".join(pieces)

    async def _ask_person(self, call: HumanCall, attempt: Attempt) -> Mapping[str, Any]:
        if self._approver is None:
            raise ToolError("it asks a person for approval, and nobody answers: give Runtime an 'approver'")
        question = call.question.render(attempt.scope)
        approval = await self._approver(ApprovalRequest(self._dag.name, attempt.action, question))
        if not approval.approved:
            raise ToolError(f"it was not approved{f': {approval.comment}' if approval.comment else ''}")
        return {"approved": True, "comment": approval.comment}

    async def _use_tool(self, call: ToolCall, attempt: Attempt) -> Any:
        tool = self._tools[call.tool]
        arguments = tool.bind(call.arguments.render(attempt.scope), ToolContext(base_dir=self._dag.base_dir))
        return await _call_function(tool.function, arguments)


def _read_answer(answer: str, schema: Mapping[str, Any]) -> Any:
    """Read an answer as JSON; a fence around it, which models like to write, is taken off.

    Raises:
        ModelResponseError: it is no JSON, or does not fit ``schema``.
    """
    text = answer.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text[text.index("\n") : -3]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelResponseError(f"the answer is no JSON ({error}): {answer!r:.200}") from error
    problem = misfit(value, schema)
    if problem is not None:
        raise ModelResponseError(f"the answer does not fit its output_schema: {problem}")
    return value


def _chat_request(agent: Agent, call: LlmCall, attempt: Attempt) -> ChatRequest:
    messages = [Message("system", agent.instructions)] if agent.instructions.strip() else []
    messages.append(Message("user", call.prompt.render(attempt.scope)))
    parameters = {**agent.parameters, **call.parameters}
    stop = parameters.pop("stop", ())
    sampling = Sampling(
        **parameters,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        choices=call.choices,
        output_schema=call.output_schema,
    )
    return ChatRequest(tuple(messages), sampling, timeout_s=attempt.remaining_s)


async def _call_function(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call a user's function; a plain one runs in a worker thread so that it cannot hold up the event loop.

    A thread cannot be stopped from outside: when the call is cancelled the run goes on without it, and the function may
    ask ``anyio.from_thread.check_cancelled()`` to end early.
    """
    try:
        if inspect.iscoroutinefunction(function):
            return await function(**arguments)
        result = await anyio.to_thread.run_sync(lambda: function(**arguments), abandon_on_cancel=True)
        return await result if inspect.isawaitable(result) else result
    except (AgentrtError, anyio.get_cancelled_exc_class()):
        raise
    except (Exception, SystemExit) as error:
        text = str(error) or "no message"
        raise ToolError(f"{type(error).__name__}: {text}") from error
