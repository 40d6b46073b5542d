"""Answers that are exactly one text of a list.

What is chosen. Every choice is scored as a whole: by the probability, under the model, that its answer begins with that
choice and with no longer one. Taking the best allowed token at each place instead (masking and walking on greedily) can
commit to a choice by its first letters and only then find that its end is improbable. Whether the model would stop after
the choice does not count: small models like to go on with a full stop or an explanation, and say nothing by it. So a
choice that begins another one ("no", "no change") has the probability of everything that does not go on with the longer.

How it is found. The choices make a trie of bytes, and a token is allowed at a place of it when its bytes lead to another
place: so a choice may be spelled with any tokens. The best is found by best-first search (Dijkstra 1959, over negative
log-probabilities): compute the most probable beginning so far, add its continuations, until what comes out on top is a
whole choice. As probabilities only fall along a path, nothing unexplored can be better. Each place is computed once, for
the most probable spelling that reaches it: how the text before was cut into tokens hardly changes what follows. When the
model is sure, the search computes no more than the answer itself; a choice of one token costs no step beyond the prompt.
With a temperature the walk is drawn instead, one allowed token at a time, as constrained sampling is done elsewhere.

One leading space is allowed and dropped: after "Category:" the natural first token is " billing". The answer is the text
as the list has it.

No vocabulary-sized masks: the tokens allowed at a place are found from the few bytes that may follow, and kept.
"""

from __future__ import annotations

import codecs
import heapq
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentrt.errors import RequestError
from agentrt.inference.runner import Floats
from agentrt.inference.sampler import Draw, Positions, choose


class TokenSpellings:
    """Which tokens spell which bytes; built once a vocabulary from (token id, bytes) pairs."""

    def __init__(self, tokens: Iterable[tuple[int, bytes]]) -> None:
        pairs = sorted((spelling, token_id) for token_id, spelling in tokens if spelling)
        self._spellings = [spelling for spelling, _ in pairs]
        self._ids = [token_id for _, token_id in pairs]

    def find(self, spelling: bytes) -> tuple[Sequence[int], bool]:
        """Return the tokens spelled exactly so, and whether any token begins so."""
        first = bisect_left(self._spellings, spelling)
        end = first
        while end < len(self._spellings) and self._spellings[end] == spelling:
            end += 1
        begins = end > first or (end < len(self._spellings) and self._spellings[end].startswith(spelling))
        return self._ids[first:end], begins


@dataclass(frozen=True, slots=True)
class Options:
    """What may follow at a place: ``token_ids[i]`` leads to ``places[i]``."""

    token_ids: Positions
    places: tuple[int, ...]


class ChoiceAutomaton:
    """The trie of some choices. Places are numbered; 0 is the beginning. Immutable.

    Raises:
        RequestError: a choice that the vocabulary cannot spell.
    """

    def __init__(self, choices: Sequence[str], spellings: TokenSpellings) -> None:
        self._children: list[dict[int, int]] = [{}]
        self._choices: list[str | None] = [None]
        for choice in choices:
            self._insert(choice.encode(), choice)
        for choice in choices:
            if not choice[0].isspace() and f" {choice}" not in choices:
                self._insert(b" " + choice.encode(), choice)
        self._options: list[Options] = [Options(np.empty(0, np.intp), ())] * len(self._children)
        # Children have larger numbers than their parents, so every place is done before those that lead to it.
        for place in reversed(range(len(self._children))):
            self._options[place] = self._find_options(place, spellings)
        self._check_reachable(choices)

    def choice_at(self, place: int) -> str | None:
        """Return the choice that is complete at this place."""
        return self._choices[place]

    def options(self, place: int) -> Options:
        return self._options[place]

    def _insert(self, spelling: bytes, choice: str) -> None:
        place = 0
        for byte in spelling:
            following = self._children[place].get(byte)
            if following is None:
                following = len(self._children)
                self._children[place][byte] = following
                self._children.append({})
                self._choices.append(None)
            place = following
        self._choices[place] = choice

    def _find_options(self, place: int, spellings: TokenSpellings) -> Options:
        found: list[tuple[int, int]] = []
        unexplored = [(b"", place)]
        while unexplored:
            spelling, reached = unexplored.pop()
            for byte, following in self._children[reached].items():
                longer = spelling + bytes([byte])
                token_ids, begins = spellings.find(longer)
                if self._choices[following] is not None or self._options[following].places:
                    found += [(token_id, following) for token_id in token_ids]
                if begins:
                    unexplored.append((longer, following))
        found.sort()
        return Options(
            np.array([token_id for token_id, _ in found], dtype=np.intp), tuple(following for _, following in found)
        )

    def _check_reachable(self, choices: Sequence[str]) -> None:
        reached = {0}
        for place in range(len(self._children)):
            if place in reached:
                reached.update(self._options[place].places)
        spelled = {self._choices[place] for place in reached}
        for choice in choices:
            if choice not in spelled:
                raise RequestError(f"choice {choice!r} cannot be spelled with this model's tokens", field="choices")


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice, the tokens that spell it and the log-probability of each."""

    choice: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True, order=True)
class _Beginning:
    """A spelling of the beginning of some choices, as (token id, log-probability) pairs; a whole one if ``ends``.

    Ordered by cost, the negative log-probability of all of it, then by age.
    """

    cost: float
    number: int
    place: int
    ends: bool
    tokens: tuple[tuple[int, float], ...]


class ChoiceSearch:
    """The search for the answer to one request.

    ``token_ids`` is the beginning whose continuations it wants to see next. Of ``draw`` the index is not read: the tokens
    of a walk count from 0.
    """

    def __init__(self, automaton: ChoiceAutomaton, draw: Draw) -> None:
        self._automaton = automaton
        self._draw = draw
        self._frontier: list[_Beginning] = []
        self._computed: set[int] = set()
        self._num_found = 0
        self._current = _Beginning(0.0, 0, 0, False, ())

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token_id for token_id, _ in self._current.tokens)

    def observe(self, logprobs: Floats) -> Decision | None:
        """Take the log-probabilities [vocab_size] of what follows ``token_ids``.

        Returns the decision, or None when ``token_ids`` is now another beginning to be computed.
        Raises ValueError when they are not numbers, or nothing that is allowed has a probability.
        """
        if math.isnan(logprobs[0]):
            raise ValueError("the model's values for what follows are not numbers")
        found = self._continue(self._current, logprobs)
        if self._draw.temperature > 0:
            values = np.array([self._current.cost - beginning.cost for beginning in found])
            position = choose(values, replace(self._draw, index=len(self._current.tokens))) if found else None
            self._frontier = [] if position is None else [found[position]]
        else:
            for beginning in found:
                heapq.heappush(self._frontier, beginning)
        while self._frontier:
            self._current = heapq.heappop(self._frontier)
            if self._current.ends:
                choice = self._automaton.choice_at(self._current.place)
                assert choice is not None, "a search ends only where a choice is complete"
                return Decision(choice, self.token_ids, tuple(logprob for _, logprob in self._current.tokens))
            if self._current.place not in self._computed:
                return None
        raise ValueError("the model gives no token that continues one of the choices any probability")

    def _continue(self, current: _Beginning, logprobs: Floats) -> list[_Beginning]:
        """Return the beginnings one token longer, and the one that ends here if a choice is complete."""
        self._computed.add(current.place)
        options = self._automaton.options(current.place)
        found = []
        rest = 1.0
        values: list[float] = logprobs[options.token_ids].tolist()
        for token_id, place, logprob in zip(options.token_ids.tolist(), options.places, values, strict=True):
            if math.isfinite(logprob):
                rest -= math.exp(logprob)
                ends = not self._automaton.options(place).places
                found.append(self._found(current, logprob, place, ends, ((token_id, logprob),)))
        if rest > 0 and self._automaton.choice_at(current.place) is not None:
            found.append(self._found(current, math.log(rest), current.place, True, ()))
        return found

    def _found(
        self, current: _Beginning, logprob: float, place: int, ends: bool, token: tuple[tuple[int, float], ...]
    ) -> _Beginning:
        self._num_found += 1
        return _Beginning(current.cost - logprob, self._num_found, place, ends, current.tokens + token)


def split_text(choice: str, spellings: Sequence[bytes]) -> list[str]:
    """Return the text of each token of a choice: never half a character, and together the choice exactly."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    texts = [decoder.decode(spelling) for spelling in spellings]
    if "".join(texts) != choice:
        texts[0] = texts[0].removeprefix(" ")
    assert "".join(texts) == choice, f"the tokens of choice {choice!r} spell {''.join(texts)!r}"
    return texts
