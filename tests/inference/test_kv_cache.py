"""The block accounting: every block is in exactly one place, after any operation."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agentrt.inference.kv_cache import KVCache


class KVCacheMachine(RuleBasedStateMachine):
    """Random owners grow, share and release; a plain model of who holds how much runs beside."""

    @initialize(num_blocks=st.integers(1, 12), block_size=st.integers(1, 5))
    def build(self, num_blocks: int, block_size: int) -> None:
        self.cache = KVCache(num_blocks, block_size)
        self.num_tokens: dict[int, int] = {}
        self.next_owner = 0

    def pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.num_tokens)))

    @rule(num_tokens=st.integers(1, 40))
    def begin(self, num_tokens: int) -> None:
        self._extend(self.next_owner, num_tokens)
        self.next_owner += 1

    @precondition(lambda self: self.num_tokens)
    @rule(data=st.data(), more=st.integers(0, 10))
    def grow(self, data: st.DataObject, more: int) -> None:
        owner = self.pick(data)
        before = list(self.cache.table(owner))
        self._extend(owner, self.num_tokens[owner] + more)
        assert list(self.cache.table(owner))[: len(before)] == before

    def _extend(self, owner: int, num_tokens: int) -> None:
        num_missing = self.cache.blocks_for(num_tokens) - len(self.cache.table(owner))
        fits = num_missing <= self.cache.num_free_blocks
        before = list(self.cache.table(owner))
        assert self.cache.extend(owner, num_tokens) == fits
        if fits:
            self.num_tokens[owner] = num_tokens
        else:
            assert list(self.cache.table(owner)) == before

    @precondition(lambda self: self.num_tokens)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        owner = self.pick(data)
        num_full = self.num_tokens[owner] // self.cache.block_size
        if num_full == 0:
            return
        num_shared = data.draw(st.integers(1, num_full))
        num_free = self.cache.num_free_blocks
        self.cache.share(owner, self.next_owner, num_shared)
        assert list(self.cache.table(self.next_owner)) == list(self.cache.table(owner))[:num_shared]
        assert self.cache.num_free_blocks == num_free
        self.num_tokens[self.next_owner] = num_shared * self.cache.block_size
        self.next_owner += 1

    @precondition(lambda self: self.num_tokens)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        owner = self.pick(data)
        others = {block for other in self.num_tokens if other != owner for block in self.cache.table(other)}
        freed = set(self.cache.table(owner)) - others
        num_free = self.cache.num_free_blocks
        self.cache.release(owner)
        del self.num_tokens[owner]
        assert self.cache.num_free_blocks == num_free + len(freed)
        assert len(self.cache.table(owner)) == 0

    @invariant()
    def every_block_is_in_one_place(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check()
        for owner, num_tokens in self.num_tokens.items():
            assert len(self.cache.table(owner)) == self.cache.blocks_for(num_tokens)
        held = {block for owner in self.num_tokens for block in self.cache.table(owner)}
        assert self.cache.num_used_blocks == len(held)
        assert self.cache.num_free_blocks + self.cache.num_used_blocks == self.cache.num_blocks


TestKVCacheMachine = KVCacheMachine.TestCase
TestKVCacheMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_table_that_is_released_twice_is_caught() -> None:
    """Freeing twice would hand one block to two requests: it stops the program instead."""
    cache = KVCache(4)
    assert cache.extend(1, 20)
    cache.release(1)
    with pytest.raises(AssertionError, match="released twice"):
        cache.release(1)


def test_a_shared_block_outlives_the_one_who_filled_it() -> None:
    """Blocks that another request still reads are not given to a third."""
    cache = KVCache(3, block_size=4)
    assert cache.extend(1, 8)
    cache.share(1, 2, 2)
    shared = set(cache.table(2))
    cache.release(1)
    assert cache.extend(3, 4)
    assert not cache.extend(4, 4)
    assert shared.isdisjoint(cache.table(3))
    cache.check()


def test_a_damaged_count_is_found() -> None:
    """``check`` is able to fail: a count that says too little is reported with its block."""
    cache = KVCache(2)
    assert cache.extend(1, 16)
    cache._counts[cache.table(1)[0]] = 2
    with pytest.raises(AssertionError, match="is counted 2 times, held 1"):
        cache.check()
