"""The error tree is the one that is drawn."""

from __future__ import annotations

import inspect
import re

import pytest

from agentrt import errors
from agentrt.errors import ActionError, AgentrtError, DeadlineError, DeclarationError, Diagnostic, Place, nearest_match


def drawn_tree() -> dict[str, str | None]:
    """Read name -> parent out of the module's docstring."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ((?:[│ ]   |[├└]── )*)(\w+Error)\b", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            parents[found[2]] = path[depth - 1] if depth else None
    return parents


def test_the_drawing_shows_every_error_under_its_parent() -> None:
    """Nothing is missing, nothing has moved."""
    defined = {
        name: thing.__bases__[0].__name__ if thing is not AgentrtError else None
        for name, thing in vars(errors).items()
        if inspect.isclass(thing) and issubclass(thing, AgentrtError)
    }
    assert drawn_tree() == defined


def test_messages_say_what_where_and_how_often() -> None:
    """Place, name, number of attempts and what was unfinished stand in the message and in attributes."""
    error = ActionError("search", "refused", place=Place("d.yaml", 3, 5), num_attempts=3)
    assert str(error) == "d.yaml:3:5: action 'search' failed after 3 attempts: refused"
    assert str(DeadlineError(1.5, ["a", "b"])) == "the deadline of 1.5 s passed; unfinished actions: a, b"
    found = Diagnostic("DAG031", "there is no action 'x'", Place("d.yaml", 3, 5), "did you mean 'y'?")
    assert str(found) == "d.yaml:3:5: error DAG031: there is no action 'x' (did you mean 'y'?)"
    assert str(DeclarationError([found, found])).count("\n") == 1
    with pytest.raises(ValueError, match="at least one"):
        DeclarationError([])


def test_the_nearest_match_is_near_or_none() -> None:
    """A far-fetched suggestion is worse than none."""
    assert nearest_match("serch", ["search", "reply"]) == "search"
    assert nearest_match("zzz", ["search", "reply"]) is None
