"""The block accounting: every block is in exactly one place, and every owner reads what it wrote, after any operation."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentrt.inference.kv_cache import KVCache
from agentrt.inference.prefix_cache import Namespace
from tests.support.cache_memory import CacheMemory

HERE = Namespace()
tokens_of_few_kinds = st.lists(st.integers(0, 1), min_size=1, max_size=12)


@dataclass
class Owner:
    namespace: Namespace
    tokens: list[int] = field(default_factory=list)
    """Those that are computed."""

    def source(self, start: int, stop: int) -> list[int]:
        return self.tokens[start:stop]


class KVCacheMachine(RuleBasedStateMachine):
    """Random owners compute, share, fork, rewind, pin and release; a memory beside says whether each reads its own."""

    @initialize(num_blocks=st.integers(1, 12), block_size=st.integers(1, 4), share=st.sampled_from([0.0, 0.5, 1.0]))
    def build(self, num_blocks: int, block_size: int, share: float) -> None:
        self.cache = KVCache(num_blocks, block_size, max_pinned_share=share)
        self.memory = CacheMemory(num_blocks, block_size)
        self.owners: dict[int, Owner] = {}
        self.next_owner = 0
        self.now_s = 0.0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.owners)))

    @rule(tokens=tokens_of_few_kinds, tenant=st.sampled_from(["", "", "other"]))
    def begin(self, tokens: list[int], tenant: str) -> None:
        """An owner takes what is found, and computes the rest if there is room."""
        name, self.next_owner = self.next_owner, self.next_owner + 1
        owner = self.owners[name] = Owner(Namespace(tenant=tenant))
        nodes = self.cache.match(owner.namespace, lambda start, stop: tokens[start:stop], len(tokens))
        self.cache.begin(name, owner.namespace, nodes, len(tokens))
        owner.tokens = tokens[: len(nodes) * self.cache.block_size]
        self._compute(name, tokens[len(owner.tokens) :])

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), tokens=tokens_of_few_kinds, breaks=st.booleans())
    def grow(self, data: st.DataObject, tokens: list[int], breaks: bool) -> None:
        self._compute(self.pick(data), tokens, may_break_pins=breaks)

    def _compute(self, name: int, tokens: list[int], *, may_break_pins: bool = False) -> None:
        owner, before = self.owners[name], list(self.cache.table(name))
        num_available = self.cache.num_available_blocks
        if not self.cache.extend(name, len(owner.tokens), len(tokens), may_break_pins=may_break_pins):
            assert list(self.cache.table(name)) == before
            assert not self.cache.copies
            assert num_available <= self.cache.blocks_for(len(owner.tokens) + len(tokens)) - len(before)
            return
        self.memory.copy(self.cache.copies)
        self.cache.check()
        self.cache.end_copies()
        start = len(owner.tokens)
        owner.tokens = owner.tokens + tokens
        self.memory.write(self.cache.table(name), owner.namespace, owner.tokens, start)
        self.cache.register(name, owner.source, len(owner.tokens))

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), tokens=tokens_of_few_kinds)
    def catch_up(self, data: st.DataObject, tokens: list[int]) -> None:
        name = self.pick(data)
        owner = self.owners[name]
        known = owner.tokens + tokens
        num_found = self.cache.catch_up(name, lambda start, stop: known[start:stop], len(known))
        owner.tokens = known[: len(owner.tokens) + num_found]

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), takes_all=st.booleans())
    def fork(self, data: st.DataObject, takes_all: bool) -> None:
        name = self.pick(data)
        owner, num_used = self.owners[name], self.cache.num_used_blocks
        num_tokens = len(owner.tokens) if takes_all else data.draw(st.integers(0, len(owner.tokens)))
        self.cache.fork(name, self.next_owner, num_tokens)
        self.owners[self.next_owner] = Owner(owner.namespace, owner.tokens[:num_tokens])
        if num_tokens < self.cache.num_registered_tokens(self.next_owner):
            kept = self.cache.rewind(self.next_owner, num_tokens)
            self.owners[self.next_owner].tokens = owner.tokens[:kept]
        self.next_owner += 1
        assert self.cache.num_used_blocks == num_used

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        name = self.pick(data)
        owner = self.owners[name]
        num_tokens = data.draw(st.integers(0, len(owner.tokens)))
        num_kept = self.cache.rewind(name, num_tokens)
        assert num_tokens - self.cache.block_size < num_kept <= num_tokens
        owner.tokens = owner.tokens[:num_kept]

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), discards=st.booleans())
    def release(self, data: st.DataObject, discards: bool) -> None:
        name = self.pick(data)
        others = {block for other in self.owners if other != name for block in self.cache.table(other)}
        num_let_go, num_used = len(set(self.cache.table(name)) - others), self.cache.num_used_blocks
        self.cache.release(name, discards=discards)
        del self.owners[name]
        assert self.cache.num_used_blocks == num_used - num_let_go
        assert len(self.cache.table(name)) == 0

    @rule(tokens=tokens_of_few_kinds, time_s=st.integers(0, 5))
    def pin(self, tokens: list[int], time_s: int) -> None:
        num_pinned = self.cache.prefixes.pin(HERE, tokens, self.now_s + time_s)
        assert num_pinned % self.cache.block_size == 0
        assert num_pinned <= len(tokens)

    @rule(tokens=tokens_of_few_kinds)
    def unpin(self, tokens: list[int]) -> None:
        self.cache.prefixes.unpin(HERE, tokens)

    @rule(time_s=st.integers(0, 3))
    def wait(self, time_s: int) -> None:
        self.now_s += time_s
        self.cache.prefixes.expire_pins(self.now_s)

    @invariant()
    def every_block_is_in_one_place_and_read_as_written(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check()
        for name, owner in self.owners.items():
            self.memory.read(self.cache.table(name), owner.namespace, owner.tokens)
        held = {block for name in self.owners for block in self.cache.table(name)}
        stats = self.cache.stats()
        assert stats.num_used_blocks == len(held)
        assert stats.num_free_blocks + stats.num_cached_blocks + stats.num_used_blocks == self.cache.num_blocks
        num_filled = self.cache.num_held_tokens({name: len(owner.tokens) for name, owner in self.owners.items()})
        assert num_filled <= len(held) * self.cache.block_size

    def teardown(self) -> None:
        """When everybody has left and no pin is left, one owner can have every block: none was lost."""
        if not hasattr(self, "cache"):
            return
        for name in self.owners:
            self.cache.release(name)
        self.cache.prefixes.expire_pins(1e9)
        self.cache.begin(-1, HERE, [], 0)
        assert self.cache.extend(-1, 0, self.cache.max_tokens)
        self.cache.check()
        assert self.cache.num_used_blocks == self.cache.num_blocks


TestKVCacheMachine = KVCacheMachine.TestCase
TestKVCacheMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


def begin(cache: KVCache, owner: int, num_tokens: int, first_token: int = 0) -> list[int]:
    """Let an owner compute ``num_tokens`` tokens that count up; return its table."""
    cache.begin(owner, HERE, [], num_tokens)
    assert cache.extend(owner, 0, num_tokens)
    cache.register(owner, lambda start, stop: range(first_token + start, first_token + stop), num_tokens)
    return list(cache.table(owner))


def test_a_table_that_is_released_twice_is_caught() -> None:
    """Freeing twice would hand one block to two requests: it stops the program instead."""
    cache = KVCache(4)
    begin(cache, 1, 20)
    cache.release(1)
    with pytest.raises(AssertionError, match="released twice"):
        cache.release(1)


def test_a_registered_block_is_never_written() -> None:
    """A row for a block that others may read is a fault of ours, and stops the program."""
    cache = KVCache(4, block_size=4)
    begin(cache, 1, 8)
    with pytest.raises(AssertionError, match="which is registered"):
        cache.extend(1, 6, 1)


def test_equal_blocks_computed_twice_are_kept_once() -> None:
    """Two that compute the same at the same time end with the same blocks; the doubles are free again."""
    cache = KVCache(6, block_size=4)
    for owner in (1, 2):
        cache.begin(owner, HERE, [], 10)
        assert cache.extend(owner, 0, 10)
    assert cache.num_used_blocks == 6
    for owner in (1, 2):
        cache.register(owner, lambda start, stop: range(start, stop), 10)
    assert cache.table(1)[:2] == cache.table(2)[:2]
    assert (cache.num_used_blocks, cache.num_free_blocks) == (4, 2)
    cache.check()


def test_samples_share_until_they_write() -> None:
    """Of three samples in a part-filled block, two get a copy when they write, and the last writes in place."""
    cache = KVCache(8, block_size=4)
    begin(cache, 1, 6)
    cache.fork(1, 2, 6)
    cache.fork(1, 3, 6)
    assert cache.num_used_blocks == 2
    for owner in (1, 2, 3):
        assert cache.extend(owner, 6, 1)
    source = cache.table(3)[1]
    assert [(copy.source, copy.target) for copy in cache.copies] == [
        (source, cache.table(1)[1]),
        (source, cache.table(2)[1]),
    ]
    assert cache.num_used_blocks == 4
    cache.check()
    cache.end_copies()
    assert not cache.copies
    cache.check()


def test_a_copy_keeps_its_source_until_it_is_made() -> None:
    """The block that a copy is made from is given to nobody before, though its last owner has left."""
    cache = KVCache(3, block_size=4)
    begin(cache, 1, 2)
    cache.fork(1, 2, 2)
    assert cache.extend(1, 2, 1)
    cache.release(2)
    cache.begin(3, HERE, [], 0)
    assert not cache.extend(3, 0, 8)
    cache.check()
    cache.end_copies()
    assert cache.extend(3, 0, 8)
    cache.check()


def test_a_copy_ends_with_its_owner() -> None:
    """An owner that loses its blocks before the step is computed has nothing copied."""
    cache = KVCache(3, block_size=4)
    begin(cache, 1, 2)
    cache.fork(1, 2, 2)
    assert cache.extend(1, 2, 1)
    cache.release(1)
    assert not cache.copies
    cache.check()
    assert cache.extend(2, 2, 1)
    assert not cache.copies


def test_a_damaged_count_is_found() -> None:
    """``check`` is able to fail: a count that says too little is reported with its block."""
    cache = KVCache(2)
    begin(cache, 1, 10)
    cache._counts[cache.table(1)[0]] = 2
    with pytest.raises(AssertionError, match="is counted 2 times, held 1"):
        cache.check()
