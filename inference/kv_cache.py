"""Which block of the paged cache belongs to whom.

The cache is cut into blocks of ``block_size`` tokens (Kwon et al. 2023, "PagedAttention"). A request owns a table of
blocks, in the order of its tokens; any free block will do for the next one, so nothing is moved and at most one block a
request is partly empty. A table has two parts:

- **registered** blocks: full, computed, filed in the ``PrefixCache`` under their tokens, never written again. Any number
  of tables hold them. When two requests have computed the same block, the second takes the first one's and gives its own
  back, so equal beginnings are held once whatever the timing.
- **own** blocks: the last one, and those of rows being computed. Samples of one prompt (``fork``) share the partly filled
  one until one of them writes: it gets a block of its own and the runner copies the content first (copy-on-write).

A table that is released leaves its registered blocks findable; they are evicted when others need room. Every block is in
exactly one place: on the free list; registered and held by no table (idle or pinned); registered or own, in as many
tables as its count says. ``check`` asserts this, and the tests call it after every operation. This module only counts;
the memory is the runner's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentrt.inference.prefix_cache import Namespace, Node, PrefixCache, TokenSource


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """The runner copies all keys and values of block ``source`` to ``target`` before it computes the step.

    In one step no block is a target twice, or a target and a source: the copies may be done in any order, or at once.
    """

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Where the blocks are (free + cached + used = all), and what the prefix cache did since the beginning."""

    num_blocks: int
    num_free_blocks: int
    """Holding nothing."""
    num_cached_blocks: int
    """Held by no request, kept to be found again; pinned ones included."""
    num_used_blocks: int
    """In at least one table; one that is shared counts once."""
    num_pinned_blocks: int
    num_queried_tokens: int
    """Tokens of requests when they were admitted ..."""
    num_hit_tokens: int
    """... and of these, or later while others computed them, those that were found."""
    num_evictions: int
    num_broken_pins: int


@dataclass(slots=True)
class _Table:
    namespace: Namespace
    blocks: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    """Of the registered blocks, which are the first ones."""


class KVCache:
    """The blocks of one engine and the tables of their owners (request ids)."""

    def __init__(self, num_blocks: int, block_size: int = 16, *, max_pinned_share: float = 0.5) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefixes = PrefixCache(block_size, int(num_blocks * max_pinned_share))
        # A stack: the block freed last is the one most likely still in the processor's caches.
        self._free = list(range(num_blocks - 1, -1, -1))
        self._counts = [0] * num_blocks
        """Tables that hold an own block, and copies that are to be made from it; 0 for registered ones."""
        self._tables: dict[int, _Table] = {}
        self._copies: dict[int, BlockCopy] = {}
        self._num_queried_tokens = 0
        self.num_hit_tokens = 0
        """See ``CacheStats``."""

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    @property
    def num_available_blocks(self) -> int:
        """Blocks that can be had without taking one from a table or breaking a pin."""
        return len(self._free) + self.prefixes.num_idle

    @property
    def num_used_blocks(self) -> int:
        """Blocks in at least one table, each counted once."""
        return self.num_blocks - len(self._free) - self.prefixes.num_registered + self.prefixes.num_held

    @property
    def max_tokens(self) -> int:
        """How many tokens one request can have in the cache when it is alone."""
        return self.num_blocks * self.block_size

    @property
    def copies(self) -> tuple[BlockCopy, ...]:
        """What is to be copied before the next step is computed; ``end_copies`` says that it was."""
        return tuple(self._copies.values())

    def blocks_for(self, num_tokens: int) -> int:
        """Return how many blocks ``num_tokens`` tokens take."""
        return -(-num_tokens // self.block_size)

    def table(self, owner: int) -> Sequence[int]:
        """Return the owner's blocks in token order; empty for one that holds none. Not to be changed."""
        table = self._tables.get(owner)
        return () if table is None else table.blocks

    def num_registered_tokens(self, owner: int) -> int:
        """Return how many of the owner's tokens, from the first, are in blocks that must not be written."""
        return len(self._tables[owner].nodes) * self.block_size

    def match(self, namespace: Namespace, token_ids: TokenSource, num_tokens: int) -> list[Node]:
        """Return the registered blocks of a beginning. At least one token is left to compute: logits come from that."""
        return self.prefixes.match(namespace, token_ids, (num_tokens - 1) // self.block_size)

    def begin(self, owner: int, namespace: Namespace, nodes: Sequence[Node], num_tokens: int) -> None:
        """Begin the owner's table with what ``match`` found for its ``num_tokens`` tokens."""
        assert owner not in self._tables, f"request {owner} holds blocks already"
        self._tables[owner] = table = _Table(namespace)
        self._num_queried_tokens += num_tokens
        for node in nodes:
            self._hold(table, node)

    def catch_up(self, owner: int, token_ids: TokenSource, num_tokens: int) -> int:
        """Take blocks of the owner's next tokens that others have computed meanwhile; return the tokens they hold.

        Only where its next token begins a block that it does not have yet.
        """
        table = self._tables[owner]
        num_before = len(table.nodes)
        while len(table.blocks) == len(table.nodes) < (num_tokens - 1) // self.block_size:
            node = self._find_next(table, token_ids)
            if node is None:
                break
            self._hold(table, node)
        return (len(table.nodes) - num_before) * self.block_size

    def next_part(self, owner: int, token_ids: TokenSource, num_blocks: int) -> tuple[object, tuple[int, ...]]:
        """Return what the owner computes next: a key that is equal for owners who would compute equal blocks."""
        table = self._tables[owner]
        start = len(table.nodes) * self.block_size
        place = table.nodes[-1] if table.nodes else table.namespace
        return place, tuple(token_ids(start, start + num_blocks * self.block_size))

    def extend(self, owner: int, num_computed: int, num_new: int, *, may_break_pins: bool = False) -> bool:
        """Make room for ``num_new`` tokens after the ``num_computed`` first, which the owner alone will write.

        Returns False and changes nothing (but pins, if they may be broken) when blocks are short.
        """
        table = self._tables[owner]
        blocks, index = table.blocks, num_computed // self.block_size
        assert index >= len(table.nodes), f"request {owner} would write block {blocks[index]}, which is registered"
        needs_copy = index < len(blocks) and self._is_shared(blocks[index])
        num_missing = -(-(num_computed + num_new) // self.block_size) - len(blocks) + needs_copy
        if num_missing <= 0:
            return True
        while num_missing > self.num_available_blocks:
            if not (may_break_pins and self.prefixes.break_pin()):
                return False
        if needs_copy:
            self._copies[owner] = BlockCopy(blocks[index], self._take())  # the copy counts as a holder of its source
            blocks[index] = self._copies[owner].target
            num_missing -= 1
        blocks.extend(self._take() for _ in range(num_missing))
        return True

    def register(self, owner: int, token_ids: TokenSource, num_tokens: int) -> None:
        """File the blocks that the owner's first ``num_tokens`` tokens fill, all computed, under their tokens."""
        table = self._tables[owner]
        while len(table.nodes) < num_tokens // self.block_size:
            index = len(table.nodes)
            block = table.blocks[index]
            assert self._counts[block] == 1, f"block {block} is full and has {self._counts[block]} writers"
            self._counts[block] = 0
            node = self._find_next(table, token_ids)
            if node is None:
                tokens = tuple(token_ids(index * self.block_size, (index + 1) * self.block_size))
                parent = table.nodes[-1] if table.nodes else None
                node = self.prefixes.add(table.namespace, parent, tokens, block)
            else:
                self.prefixes.hold(node)
                self._free.append(block)
                table.blocks[index] = node.block
            table.nodes.append(node)

    def rewind(self, owner: int, num_tokens: int) -> int:
        """Keep the table of the owner's first ``num_tokens`` tokens only; return how many of them are still computed.

        Fewer if the last of them is in a registered block: that block is let go, and computed again.
        """
        table = self._tables[owner]
        if num_tokens < len(table.nodes) * self.block_size:
            num_tokens -= num_tokens % self.block_size
        self._cut(owner, self.blocks_for(num_tokens))
        return num_tokens

    def fork(self, owner: int, new_owner: int, num_tokens: int) -> None:
        """Begin the table of ``new_owner`` with the blocks of the first ``num_tokens`` tokens, a part-filled one too."""
        assert new_owner not in self._tables, f"request {new_owner} holds blocks already"
        source = self._tables[owner]
        self._tables[new_owner] = table = _Table(source.namespace)
        num_blocks = self.blocks_for(num_tokens)
        assert num_blocks - len(source.nodes) <= 1, f"request {owner} has full blocks that may still be written"
        for node in source.nodes[:num_blocks]:
            self._hold(table, node, is_hit=False)
        for block in source.blocks[len(table.blocks) : num_blocks]:
            self._counts[block] += 1
            table.blocks.append(block)

    def release(self, owner: int, *, discards: bool = False) -> None:
        """Give back the owner's table; with ``discards`` nobody will find the blocks that no one else needs.

        An owner that has no table is a fault of ours.
        """
        assert owner in self._tables, f"request {owner} holds no blocks; were they released twice?"
        nodes = list(self._tables[owner].nodes)
        self._cut(owner, 0)
        del self._tables[owner]
        for node in reversed(nodes if discards else ()):
            block = self.prefixes.discard(node)
            if block is None:
                break
            self._free.append(block)

    def end_copies(self) -> None:
        """The copies were made; their sources are needed for them no longer."""
        for copy in self._copies.values():
            self._let_go(copy.source)
        self._copies.clear()

    def num_held_tokens(self, num_computed: dict[int, int]) -> int:
        """Return how many slots of used blocks hold a token; ``num_computed`` says how many tokens each owner has."""
        filled: dict[int, int] = {}
        for owner, table in self._tables.items():
            for index in range(len(table.nodes), len(table.blocks)):
                num_filled = min(self.block_size, max(0, num_computed[owner] - index * self.block_size))
                filled[table.blocks[index]] = max(filled.get(table.blocks[index], 0), num_filled)
        return self.prefixes.num_held * self.block_size + sum(filled.values())

    def stats(self) -> CacheStats:
        num_used = self.num_used_blocks
        return CacheStats(
            num_blocks=self.num_blocks,
            num_free_blocks=len(self._free),
            num_cached_blocks=self.num_blocks - num_used - len(self._free),
            num_used_blocks=num_used,
            num_pinned_blocks=self.prefixes.num_pinned,
            num_queried_tokens=self._num_queried_tokens,
            num_hit_tokens=self.num_hit_tokens,
            num_evictions=self.prefixes.num_evictions,
            num_broken_pins=self.prefixes.num_broken_pins,
        )

    def check(self) -> None:
        """Assert that every block is in exactly one place, and every count exact."""
        self.prefixes.check()
        held = Counter(block for table in self._tables.values() for block in table.blocks)
        held.update(copy.source for copy in self._copies.values())
        nodes = {node.block: node for node in self.prefixes.nodes()}
        free = set(self._free)
        assert len(free) == len(self._free), "a block is on the free list twice"
        for block in range(self.num_blocks):
            node = nodes.get(block)
            count = self._counts[block] if node is None else node.num_holders
            assert count == held[block], f"block {block} is counted {count} times, held {held[block]}"
            assert node is None or self._counts[block] == 0, f"block {block} is registered and has writers"
            is_free = node is None and held[block] == 0
            assert (block in free) == is_free, f"block {block} is both free and held, or neither"
        for owner, table in self._tables.items():
            assert len(set(table.blocks)) == len(table.blocks), f"request {owner} holds a block twice"
            path = list(table.nodes[-1].path())[::-1] if table.nodes else []
            assert path == table.nodes, f"the blocks of request {owner} are not a path of the tree"
            assert [node.block for node in path] == table.blocks[: len(path)], f"the table of request {owner} is wrong"
        targets = {copy.target for copy in self._copies.values()}
        assert targets.isdisjoint(copy.source for copy in self._copies.values()), "a copy is made of a copy"

    def _find_next(self, table: _Table, token_ids: TokenSource) -> Node | None:
        start = len(table.nodes) * self.block_size
        tokens = tuple(token_ids(start, start + self.block_size))
        return self.prefixes.find(table.namespace, table.nodes[-1] if table.nodes else None, tokens)

    def _hold(self, table: _Table, node: Node, *, is_hit: bool = True) -> None:
        self.prefixes.hold(node)
        table.nodes.append(node)
        table.blocks.append(node.block)
        self.num_hit_tokens += is_hit * self.block_size

    def _is_shared(self, block: int) -> bool:
        count = self._counts[block]
        return count > 1 and count > 1 + sum(copy.source == block for copy in self._copies.values())

    def _take(self) -> int:
        block = self._free.pop() if self._free else self.prefixes.evict()
        self._counts[block] = 1
        return block

    def _let_go(self, block: int) -> None:
        assert self._counts[block] > 0, f"block {block} was freed twice"
        self._counts[block] -= 1
        if self._counts[block] == 0:
            self._free.append(block)

    def _cut(self, owner: int, num_blocks: int) -> None:
        """Give back all but the first blocks of a table, from the end: what comes first is kept longest."""
        table = self._tables[owner]
        copy = self._copies.get(owner)
        if copy is not None and copy.target not in table.blocks[:num_blocks]:
            self._let_go(self._copies.pop(owner).source)
        while len(table.blocks) > max(num_blocks, len(table.nodes)):
            self._let_go(table.blocks.pop())
        while len(table.nodes) > num_blocks:
            table.blocks.pop()
            self.prefixes.let_go(table.nodes.pop())
