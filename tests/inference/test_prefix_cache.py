"""The prefix cache's promises: exact tokens only, children before parents, pins for their time."""

from __future__ import annotations

import pytest

from agentrt.inference.kv_cache import KVCache
from agentrt.inference.prefix_cache import Namespace

HERE = Namespace()


def compute(cache: KVCache, owner: int, tokens: list[int], namespace: Namespace = HERE) -> int:
    """Let ``owner`` compute ``tokens``; return how many were found."""

    def source(start: int, stop: int) -> list[int]:
        return tokens[start:stop]

    nodes = cache.match(namespace, source, len(tokens) + 1)
    cache.begin(owner, namespace, nodes, len(tokens))
    num_found = len(nodes) * cache.block_size
    if num_found < len(tokens):
        assert cache.extend(owner, num_found, len(tokens) - num_found)
    cache.register(owner, source, len(tokens))
    cache.check()
    return num_found


def found(cache: KVCache, tokens: list[int], namespace: Namespace = HERE) -> int:
    return len(cache.match(namespace, lambda start, stop: tokens[start:stop], len(tokens) + 1)) * cache.block_size


def test_tokens_with_equal_hashes_are_told_apart() -> None:
    """Blocks are compared by their tokens: two whose tuples have the same hash in Python are different blocks."""
    cache = KVCache(8, block_size=2)
    first, second = [1, 0, 5, 5], [1, 2**61 - 1, 5, 5]
    assert hash(tuple(first)) == hash(tuple(second))
    compute(cache, 1, first)
    assert found(cache, second) == 0
    assert compute(cache, 2, second) == 0
    assert set(cache.table(1)).isdisjoint(cache.table(2))


@pytest.mark.parametrize("other", [Namespace(adapter="x"), Namespace(tenant="x"), Namespace(model="x")])
def test_namespaces_share_nothing(other: Namespace) -> None:
    """Model, adapter and tenant are separate: the same word in another place is another namespace."""
    cache = KVCache(16, block_size=2)
    for number, namespace in enumerate((HERE, Namespace("a", "x"), Namespace("a", "", "x"))):
        compute(cache, number, [1, 2, 3, 4], namespace)
    assert found(cache, [1, 2, 3, 4], other) == 0
    assert found(cache, [1, 2, 3, 4], Namespace("a", "x")) == 4


def test_an_equal_block_elsewhere_is_another_block() -> None:
    """What comes before belongs to the key: the same tokens after another beginning are not found."""
    cache = KVCache(8, block_size=2)
    compute(cache, 1, [1, 2, 7, 7])
    compute(cache, 2, [3, 4])
    assert found(cache, [3, 4, 7, 7]) == 2
    assert found(cache, [7, 7]) == 0


def test_blocks_are_evicted_from_the_ends_of_what_was_let_go_first() -> None:
    """The least lately used path goes first, its last block before the one above it; what is held never goes."""
    cache = KVCache(6, block_size=1)
    compute(cache, 1, [1, 2, 3])
    compute(cache, 2, [1, 8])
    compute(cache, 3, [5])
    for owner in (1, 3, 2):
        cache.release(owner)
    assert cache.num_free_blocks == 1
    expected = [
        ([1, 2, 3], 2),  # the end of the oldest
        ([1, 2], 1),
        ([5], 0),
        ([1, 8], 1),
    ]
    cache.begin(9, HERE, [], 0)
    assert cache.extend(9, 0, 1)
    for number, (tokens, num_left) in enumerate(expected):
        assert cache.extend(9, 0, number + 2)
        assert found(cache, tokens) == num_left
        cache.check()
    assert cache.stats().num_evictions == 4


def test_a_block_that_was_reused_brings_no_old_children_back() -> None:
    """What was filed under an evicted block is not found under what its block holds now."""
    cache = KVCache(2, block_size=1)
    compute(cache, 1, [1, 2])
    cache.release(1)
    compute(cache, 2, [3])  # takes the block of 2
    cache.release(2)
    compute(cache, 3, [4])
    cache.release(3)
    compute(cache, 4, [1])
    assert found(cache, [1, 2]) == 1
    assert found(cache, [3]) + found(cache, [4]) == 1


def test_an_empty_namespace_is_forgotten() -> None:
    """Tenants that come once leave nothing behind when their blocks are gone."""
    cache = KVCache(2, block_size=1)
    for number in range(5):
        compute(cache, number, [1, 2], Namespace(tenant=str(number)))
        cache.release(number)
    assert list(cache.prefixes._roots) == [Namespace(tenant="4")]


def test_a_pinned_prefix_stays_until_its_time() -> None:
    """Others cannot have pinned blocks before their time is over; afterwards they are ordinary cached ones."""
    cache = KVCache(4, block_size=2, max_pinned_share=0.5)
    compute(cache, 1, [1, 2, 3, 4, 5])
    cache.release(1)
    assert cache.prefixes.pin(HERE, [1, 2, 3, 4, 5], until_s=10.0) == 4
    assert (cache.stats().num_pinned_blocks, cache.num_available_blocks) == (2, 2)
    cache.begin(2, HERE, [], 0)
    assert not cache.extend(2, 0, 6)
    assert cache.extend(2, 0, 4)
    cache.prefixes.expire_pins(9.9)
    assert not cache.extend(2, 0, 6)
    cache.prefixes.expire_pins(10.0)
    assert cache.extend(2, 0, 6)
    assert found(cache, [1, 2, 3, 4]) == 2
    cache.check()


def test_pinning_again_extends_and_unpinning_ends() -> None:
    """A pin is moved to the later time, never to the earlier one; pins of one beginning are independent."""
    cache = KVCache(8, block_size=1)
    compute(cache, 1, [1, 2, 3])
    cache.release(1)
    for until_s in (5.0, 9.0, 7.0):
        assert cache.prefixes.pin(HERE, [1, 2], until_s) == 2
    assert cache.prefixes.pin(HERE, [1, 2, 3], 6.0) == 3
    cache.prefixes.expire_pins(8.0)
    assert cache.stats().num_pinned_blocks == 2
    cache.check()
    cache.prefixes.unpin(HERE, [1])
    cache.prefixes.unpin(HERE, [7, 7])
    assert cache.stats().num_pinned_blocks == 2
    cache.prefixes.unpin(HERE, [1, 2])
    assert cache.stats().num_pinned_blocks == 0
    cache.check()


def test_pins_hold_no_more_than_their_share() -> None:
    """A pin that would go over the limit covers a beginning and says so; earlier pins stay whole."""
    cache = KVCache(8, block_size=1, max_pinned_share=0.5)
    compute(cache, 1, [1, 2, 3])
    compute(cache, 2, [1, 5, 6, 7])
    assert cache.prefixes.pin(HERE, [1, 2, 3], 10.0) == 3
    assert cache.prefixes.pin(HERE, [1, 5, 6, 7], 99.0) == 2
    assert cache.prefixes.pin(HERE, [4, 4], 99.0) == 0
    cache.check()
    assert cache.stats().num_pinned_blocks == 4


def test_what_a_failed_request_computed_is_not_found_again() -> None:
    """Discarding drops the blocks that nobody else has, and only these."""
    cache = KVCache(8, block_size=1)
    compute(cache, 1, [1, 2, 3])
    compute(cache, 2, [1, 2, 4, 5])
    cache.release(2, discards=True)
    assert found(cache, [1, 2, 4, 5]) == 2
    cache.check()
    cache.release(1)
    assert found(cache, [1, 2, 3]) == 3


def test_a_damaged_tree_is_found() -> None:
    """``check`` is able to fail."""
    cache = KVCache(4, block_size=1)
    compute(cache, 1, [1, 2])
    cache.prefixes.match(HERE, lambda start, stop: [1], 1)[0].num_holders = 0
    with pytest.raises(AssertionError, match="idle and not listed"):
        cache.check()
