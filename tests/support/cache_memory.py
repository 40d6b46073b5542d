"""A cache memory that remembers what was written where, for tests of policies that have no model.

What a real cache holds of a token depends on the tokens before it, so a slot here holds just those: the namespace and all
tokens up to its own. A reader that meets anything else was given a block that is not its own, or one that was written
over.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentrt.inference.kv_cache import BlockCopy
from agentrt.inference.prefix_cache import Namespace

Content = tuple[Namespace, tuple[int, ...]]


class CacheMemory:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._slots: list[list[Content | None]] = [[None] * block_size for _ in range(num_blocks)]

    def copy(self, copies: Sequence[BlockCopy]) -> None:
        """Do the copies of a step, all at once."""
        targets = [copy.target for copy in copies]
        assert len(set(targets)) == len(targets), "a block is the target of two copies"
        assert set(targets).isdisjoint(copy.source for copy in copies), "a block is source and target"
        for copy in copies:
            self._slots[copy.target] = list(self._slots[copy.source])

    def write(self, table: Sequence[int], namespace: Namespace, tokens: Sequence[int], start: int) -> None:
        """Write the tokens from position ``start`` on, as a step does."""
        for position in range(start, len(tokens)):
            block, offset = divmod(position, self._block_size)
            self._slots[table[block]][offset] = (namespace, tuple(tokens[: position + 1]))

    def read(self, table: Sequence[int], namespace: Namespace, tokens: Sequence[int]) -> None:
        """Assert that the table holds exactly these tokens."""
        for position in range(len(tokens)):
            block, offset = divmod(position, self._block_size)
            expected = (namespace, tuple(tokens[: position + 1]))
            found = self._slots[table[block]][offset]
            assert found == expected, f"position {position}, block {table[block]}: {found}, not {expected}"
