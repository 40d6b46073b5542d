"""Stop strings in a text that arrives in pieces.

The rule does not know where pieces begin and end: reading character by character, the answer ends as soon as some stop
string is complete, and is cut where that stop string begins (the longest one, when several end at the same character).
Until then every character is handed on unless it may still turn out to be part of a stop string.

Both questions, "did one just end" and "how much might still become one", are answered by the automaton of Aho and
Corasick (1975): its state is the longest end of the text that begins a stop string, and the length of that end is exactly
what must be held back. Cost: one dictionary look-up a character, whatever the number of stop strings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


class StopStrings:
    """The automaton of some stop strings; immutable, shared by the streams that use them."""

    def __init__(self, stops: Sequence[str]) -> None:
        # State 0 is the empty text. depth: length of the text a state stands for; match: length of the longest stop
        # string this text ends with, else 0; fallback: the state of its longest proper end that is a state.
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match = [0]
        self._fallback = [0]
        for stop in stops:
            self._insert(stop)
        self._link()

    @property
    def is_empty(self) -> bool:
        """Whether there are no stop strings."""
        return not self._next[0]

    def advance(self, state: int, character: str) -> int:
        while character not in self._next[state] and state:
            state = self._fallback[state]
        return self._next[state].get(character, 0)

    def match_length(self, state: int) -> int:
        """Return the length of the longest stop string that ends in this state, 0 if none does."""
        return self._match[state]

    def held_length(self, state: int) -> int:
        """Return how many characters before this point may be the beginning of a stop string."""
        return self._depth[state]

    def _insert(self, stop: str) -> None:
        state = 0
        for character in stop:
            following = self._next[state].get(character)
            if following is None:
                following = len(self._next)
                self._next[state][character] = following
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._match.append(0)
                self._fallback.append(0)
            state = following
        self._match[state] = len(stop)

    def _link(self) -> None:
        states = deque(self._next[0].values())
        while states:
            state = states.popleft()
            for character, following in self._next[state].items():
                self._fallback[following] = self.advance(self._fallback[state], character)
                self._match[following] = self._match[following] or self._match[self._fallback[following]]
                states.append(following)


class StopStream:
    """One text, in pieces. After ``stopped`` is true nothing more is emitted."""

    def __init__(self, stops: StopStrings) -> None:
        self.stopped = False
        self._stops = stops
        self._is_idle = stops.is_empty
        self._state = 0
        self._held = ""

    def push(self, text: str) -> str:
        """Take the next piece; return what is now certain to stand before any stop string."""
        if self._is_idle:
            return text
        if self.stopped:
            return ""
        buffer = self._held + text
        for position in range(len(self._held), len(buffer)):
            self._state = self._stops.advance(self._state, buffer[position])
            if match_length := self._stops.match_length(self._state):
                self.stopped = True
                self._held = ""
                return buffer[: position + 1 - match_length]
        num_certain = len(buffer) - self._stops.held_length(self._state)
        self._held = buffer[num_certain:]
        return buffer[:num_certain]

    def flush(self) -> str:
        """Return what was held back: the text is over, and it did not become a stop string."""
        held, self._held = self._held, ""
        return held
