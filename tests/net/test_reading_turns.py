from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.net.reading_turns import ReadingTurns
from tests.support.virtual_time import run_in_virtual_time


@dataclass
class Line:
    """A connection on which messages for numbered tasks arrive at set times; reads many at once when it is late."""

    arrivals: list[tuple[float, int]]
    arrived: dict[int, int] = field(default_factory=dict)
    num_reads: int = 0

    def __post_init__(self) -> None:
        self.arrivals.sort()
        self.turns = ReadingTurns(self.read)

    async def read(self) -> None:
        at, task = self.arrivals[0] if self.arrivals else (float("inf"), -1)
        if at > anyio.current_time():
            await anyio.sleep_until(at)
        del self.arrivals[0]
        self.num_reads += 1
        self.arrived[task] = self.arrived.get(task, 0) + 1
        self.turns.wake(task)

    async def receive(self, task: int, num_messages: int) -> float:
        await self.turns.wait_until(task, lambda: self.arrived.get(task, 0) >= num_messages)
        return anyio.current_time()


plans = st.lists(
    st.tuples(
        st.lists(st.integers(1, 50), min_size=1, max_size=4),  # when this task's messages arrive
        st.none() | st.integers(0, 60),  # when it is cancelled
    ),
    min_size=1,
    max_size=6,
)


@given(plans)
@settings(max_examples=200, deadline=None)
def test_everybody_is_served_at_once_whoever_leaves(plan: list[tuple[list[int], int | None]]) -> None:
    """Each task has its message the moment it arrives, although others, readers included, are cancelled."""

    async def main() -> None:
        start = anyio.current_time()
        line = Line([(start + at, task) for task, (times, _) in enumerate(plan) for at in times])

        async def live(task: int, times: list[int], cancelled_at: int | None) -> None:
            end = float("inf") if cancelled_at is None else start + cancelled_at + 0.5
            with anyio.CancelScope(deadline=end):
                for number, at in enumerate(sorted(times), 1):
                    assert await line.receive(task, number) - start == at

        with anyio.fail_after(1000):
            async with anyio.create_task_group() as tasks:
                for task, (times, cancelled_at) in enumerate(plan):
                    tasks.start_soon(live, task, times, cancelled_at)

    run_in_virtual_time(main)


def test_a_failed_read_fails_all_who_wait() -> None:
    """When reading raises, every waiting task raises, one after another."""

    async def main() -> None:
        failures = []

        async def read() -> None:
            await anyio.sleep(1)
            raise ConnectionError("gone")

        turns = ReadingTurns(read)

        async def wait(task: int) -> None:
            try:
                await turns.wait_until(task, lambda: False)
            except ConnectionError:
                failures.append(task)

        async with anyio.create_task_group() as tasks:
            for task in range(3):
                tasks.start_soon(wait, task)
        assert sorted(failures) == [0, 1, 2]

    run_in_virtual_time(main)
