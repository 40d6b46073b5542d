"""The table of an action's moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrt.declare.action import Action, ActionType
from agentrt.declare.call import FunctionCall
from agentrt.run.joining import Arrivals
from agentrt.run.progress import Progress
from agentrt.run.state import MOVES, ActionState


def test_every_state_is_reached_and_every_final_state_is_left_by_nothing() -> None:
    """From pending each state can be reached; final states have no way out."""
    reached, queue = {ActionState.PENDING}, [ActionState.PENDING]
    while queue:
        for state in MOVES[queue.pop()] - reached:
            reached.add(state)
            queue.append(state)
    assert reached == set(ActionState) == set(MOVES)
    assert {state for state in ActionState if state.is_final} == {
        ActionState.SUCCEEDED,
        ActionState.FAILED,
        ActionState.SKIPPED,
        ActionState.CANCELLED,
    }


@pytest.mark.parametrize("before", ActionState)
@pytest.mark.parametrize("after", ActionState)
def test_only_legal_moves_are_made(before: ActionState, after: ActionState) -> None:
    """A move that the table does not hold is refused."""
    action = Action("a", ActionType.FUNCTION, FunctionCall(print, {}))
    progress = Progress(action, Arrivals(0), state=before)
    if after in MOVES[before]:
        progress.move(after)
        assert progress.state is after
    else:
        with pytest.raises(AssertionError, match="no legal move"):
            progress.move(after)


def test_the_published_table_is_the_one_that_is_obeyed() -> None:
    """docs/dag-file.md shows every state and exactly its moves."""
    page = (Path(__file__).parents[2] / "docs" / "dag-file.md").read_text()
    for state, moves in MOVES.items():
        told = ", ".join(f"`{after.value}`" for after in ActionState if after in moves) or "(an end)"
        assert f"| `{state.value}` | {told} |" in page
