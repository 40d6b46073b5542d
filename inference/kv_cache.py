"""Which block of the paged cache belongs to whom.

The cache is cut into blocks of ``block_size`` tokens (Kwon et al. 2023, "PagedAttention"). A request owns a table of
blocks, in the order of its tokens; any free block will do for the next one, so nothing is moved and at most one block a
request is partly empty. Blocks are counted: a request that begins with the same tokens as another may share that one's
full blocks. Full blocks are never written again, so sharing needs no copying; a block returns to the free list when the
last table that holds it is released.

Every block is in exactly one place: on the free list with count 0, or in as many tables as its count says. ``check``
asserts this, and the tests call it after every operation. This module only counts; the tensors are in ``model_runner``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


class KVCache:
    """The blocks of one engine and the tables of their owners (request ids)."""

    def __init__(self, num_blocks: int, block_size: int = 16) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        # A stack: the block freed last is the one most likely still in the processor's caches.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._counts = [0] * num_blocks
        self._tables: dict[int, list[int]] = {}

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._free)

    @property
    def max_tokens(self) -> int:
        """How many tokens one request can have in the cache when it is alone."""
        return self.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks ``num_tokens`` tokens take."""
        return -(-num_tokens // self.block_size)

    def table(self, owner: int) -> Sequence[int]:
        """Return the owner's blocks in token order; empty for one that holds none. Not to be changed."""
        return self._tables.get(owner, ())

    def extend(self, owner: int, num_tokens: int) -> bool:
        """Grow the owner's table to hold ``num_tokens`` tokens; return False and change nothing if blocks are short."""
        num_missing = self.blocks_for(num_tokens) - len(self.table(owner))
        if num_missing > len(self._free):
            return False
        if num_missing > 0:
            table = self._tables.setdefault(owner, [])
            for _ in range(num_missing):
                block = self._free.pop()
                self._counts[block] = 1
                table.append(block)
        return True

    def share(self, owner: int, new_owner: int, num_blocks: int) -> None:
        """Begin the table of ``new_owner`` with the first ``num_blocks`` blocks of ``owner``; these must be full."""
        assert new_owner not in self._tables, f"request {new_owner} holds blocks already"
        shared = self._tables[owner][:num_blocks]
        assert len(shared) == num_blocks, f"request {owner} has {len(shared)} blocks, {num_blocks} are to be shared"
        for block in shared:
            self._counts[block] += 1
        self._tables[new_owner] = shared

    def release(self, owner: int) -> None:
        """Give back the owner's table. An owner that holds no table is a fault of ours."""
        assert owner in self._tables, f"request {owner} holds no blocks; were they released twice?"
        for block in reversed(self._tables.pop(owner)):
            assert self._counts[block] > 0, f"block {block} was freed twice"
            self._counts[block] -= 1
            if self._counts[block] == 0:
                self._free.append(block)

    def check(self) -> None:
        """Assert that every block is in exactly one place."""
        held = Counter(block for table in self._tables.values() for block in table)
        free = set(self._free)
        assert len(free) == len(self._free), "a block is on the free list twice"
        for block in range(self.num_blocks):
            assert self._counts[block] == held[block], (
                f"block {block} is counted {self._counts[block]} times, held {held[block]}"
            )
            assert (block in free) == (held[block] == 0), f"block {block} is both free and held, or neither"
        for owner, table in self._tables.items():
            assert len(set(table)) == len(table), f"request {owner} holds a block twice"
