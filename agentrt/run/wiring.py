"""The composition root: a Runtime owns what runs share (models, connections, tools, tracing) and starts runs.

Nothing heavy happens when a Runtime is made: models load at their first call, connections open at their first request.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.from_thread
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream

from agentrt.compile.inputs import bind_inputs
from agentrt.compile.plan import Plan, plan
from agentrt.config import RuntimeConfig
from agentrt.declare.call import HumanCall, LlmCall
from agentrt.declare.dag import Dag
from agentrt.errors import InputError, UsageError
from agentrt.models.model import Model
from agentrt.models.registry import ModelRegistry
from agentrt.net.http_pool import HttpPool
from agentrt.run.attempt import Approver, Caller
from agentrt.run.events import RunEvent, RunFinished, RunResult
from agentrt.run.executor import Execution
from agentrt.tools.builtin import builtin_tools
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import Tool
from agentrt.trace.open import open_tracing


class RunStream:
    """A run while it goes on: iterate over its events, the last of which is RunFinished."""

    def __init__(self, run_id: str, events: MemoryObjectReceiveStream[RunEvent], scope: anyio.CancelScope) -> None:
        self.run_id = run_id
        self._events = events
        self._scope = scope

    def cancel(self) -> None:
        """Cancel the run; its last events, RunFinished included, still arrive."""
        self._scope.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RunEvent:
        return await self._events.__anext__()


class Runtime:
    """Runs Dags. Use it as an async context manager, on asyncio or trio; or as a plain one, for ``run_sync``.

    ``tools`` are added to the built-in ones. ``models`` are the caller's own Model objects by name; they win over the
    catalog and stay the caller's to close. ``approver`` is asked where a Dag asks a person; it may take its time, and holds
    nobody else up.
    """

    def __init__(
        self,
        config: RuntimeConfig | None = None,
        *,
        tools: Iterable[Tool] = (),
        models: Mapping[str, Model] | None = None,
        approver: Approver | None = None,
    ) -> None:
        self.config = config or RuntimeConfig.from_env()
        self.tools = ToolRegistry([*builtin_tools(), *tools])
        self._approver = approver
        self._pool = HttpPool()
        self._models = ModelRegistry(self.config, pool=self._pool, given=models)
        self._tracing = open_tracing(self.config)
        self._slots: anyio.Semaphore | None = None
        self._portal: anyio.from_thread.BlockingPortal | None = None
        self._portal_lock = threading.Lock()
        self._portal_stack = ExitStack()

    async def run(
        self,
        dag: Dag | Plan,
        inputs: Mapping[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        run_id: str | None = None,
    ) -> RunResult:
        """Run a Dag to its end.

        ``deadline_s`` overrides the Dag's own deadline; after that many seconds everything is cancelled.

        Raises:
            DeclarationError, InputError, UnknownModelError, UsageError: nothing was run.
            ActionError, DeadlineError, RunError: the run failed; ``.result`` keeps what had finished.

        Cancelling the call cancels everything the run has begun.
        """
        result: RunResult | None = None
        async with self.stream(dag, inputs, deadline_s=deadline_s, run_id=run_id) as events:
            async for event in events:
                if isinstance(event, RunFinished):
                    result = event.result
        assert result is not None, "a run's last event is RunFinished"
        if result.error is not None:
            raise result.error
        return result

    @asynccontextmanager
    async def stream(
        self,
        dag: Dag | Plan,
        inputs: Mapping[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        run_id: str | None = None,
    ) -> AsyncIterator[RunStream]:
        """Start a run and give its events as they happen; leaving the block cancels what is still going on.

        Events wait in memory for a slow reader; a run is never held up by whoever watches it.

        Raises:
            DeclarationError, InputError, UnknownModelError: on entry; nothing was run.
        """
        if isinstance(dag, Plan):
            planned, bound = dag, bind_inputs(dag.dag, inputs or {})
        else:
            # Checked first: inputs of a Dag that is wrong are not worth a word.
            planned = plan(dag, self.tools)
            bound = bind_inputs(dag, inputs or {})
        for each in planned.dag.with_inner():
            self._check_can_run(each)
        deadline_s = planned.dag.slo.deadline_s if deadline_s is None else deadline_s
        if deadline_s is not None and not (0 < deadline_s < math.inf):
            raise InputError(f"the deadline must be more than 0 seconds, got {deadline_s:g}")
        if self._slots is None:
            self._slots = anyio.Semaphore(self.config.max_concurrency, fast_acquire=True)
        run_id = run_id or secrets.token_hex(6)
        send, receive = anyio.create_memory_object_stream[RunEvent](math.inf)
        span = self._tracing.start_run(
            run_id=run_id, dag=planned.dag.name, deadline_s=deadline_s, slo_p99_s=planned.dag.slo.p99_s
        )
        caller = Caller(
            planned.dag,
            models=self._models,
            tools=self.tools,
            trace_content=self.config.trace_content,
            max_concurrency=self.config.max_concurrency,
            approver=self._approver,
        )
        execution = Execution(
            planned,
            bound,
            run_id=run_id,
            deadline_s=deadline_s,
            caller=caller,
            slots=self._slots,
            span=span,
            emit=send.send_nowait,
        )
        scope = anyio.CancelScope()

        async def execute() -> None:
            with send, scope:
                await execution.run()

        with receive:
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(execute)
                    yield RunStream(run_id, receive, scope)
                    scope.cancel()
            except BaseExceptionGroup as group:
                error = group.exceptions[0]
                raise error from error.__cause__

    def _check_can_run(self, dag: Dag) -> None:
        """Find out before anything runs that a model has no such name, or that nobody is there to be asked."""
        for action in dag.actions.values():
            for call in action.calls:
                if isinstance(call, LlmCall):
                    # Nothing is loaded yet.
                    self._models.get(dag.agents[call.agent].model, dag.base_dir)
                elif isinstance(call, HumanCall) and self._approver is None:
                    raise UsageError(
                        f"action {action.name!r} asks a person for approval, and nobody answers: "
                        "run it from a terminal, with 'agentrt run --yes', or give Runtime an 'approver'"
                    )

    def run_sync(
        self,
        dag: Dag | Plan,
        inputs: Mapping[str, Any] | None = None,
        *,
        deadline_s: float | None = None,
        run_id: str | None = None,
    ) -> RunResult:
        """Do as ``run`` does, from a program without an event loop.

        The Runtime then keeps an event loop of its own in a background thread until ``close``. An interrupt
        (KeyboardInterrupt) cancels the run before it is raised.
        """
        with self._portal_lock:  # several threads may be the first
            if self._portal is None:
                self._portal = self._portal_stack.enter_context(
                    anyio.from_thread.start_blocking_portal(name="agentrt-runtime")
                )

        async def run() -> RunResult:
            return await self.run(dag, inputs, deadline_s=deadline_s, run_id=run_id)

        future = self._portal.start_task_soon(run)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def aclose(self) -> None:
        """Unload models, close connections, and hand the last traces over."""
        async with AsyncExitStack() as stack:
            # Handing traces over may wait for a collector; in a thread it holds nobody else up.
            stack.push_async_callback(anyio.to_thread.run_sync, self._tracing.close)
            stack.push_async_callback(self._pool.aclose)
            stack.push_async_callback(self._models.aclose)

    def close(self) -> None:
        """Do as ``aclose`` does, for a program that used ``run_sync``."""
        if self._portal is None:
            self._tracing.close()
            return
        with self._portal_stack:
            self._portal.call(self.aclose)
        self._portal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()
