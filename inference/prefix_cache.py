"""Which computed blocks can be found again, by the tokens that led to them, and which of them goes first.

A tree. A node is one full block; its key is its parent node and the exact tuple of its tokens, so a path from the root
spells a prompt (RadixAttention: Zheng et al. 2023, "SGLang"; here with an edge per block). The roots are namespaces:
model, adapter and tenant as separate fields, so that no spelling of one can pass for another. Nothing stands for the
tokens: vLLM, TensorRT-LLM and OpenVINO chain hashes, and a collision there hands one caller the answer to another's
prompt. Here Python compares the tuples. The parent is the node object, not a block number, so what is filed below a node
that is gone cannot be found under a block that was given a new meaning.

A block has **holders** (tables of requests) and **pins**. With neither it is *idle*: still found, and the first to go
when blocks are short. Whoever holds or pins a block holds its whole path, so:

- all of an idle node's descendants are idle: every idle block can be evicted, and counts as available;
- a path is let go from its end, so in the order of letting go children come before their parents. Evicting the block
  that was let go longest ago therefore always evicts a leaf: LRU, and no subtree is ever cut off from its root.

A pin keeps a path until a given time, for a system prompt or a run that waits on a tool. Pins hold at most
``max_pinned_blocks`` together; a pin beyond that covers the beginning of its prefix only, and says how much. Earlier pins
are not shortened for later ones: who asks most often would win.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

TokenSource = Callable[[int, int], Sequence[int]]
"""Gives the tokens at positions start ... stop-1."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """What must be equal, besides the tokens, for a block to be the same."""

    model: str = ""
    adapter: str = ""
    tenant: str = ""
    """A salt: tenants with different ones never share blocks, so none can time what another has asked."""


class Node:
    """One registered block. ``parent`` is None for a root, which has no block, and for a node that was evicted."""

    __slots__ = ("block", "children", "namespace", "num_holders", "num_pins", "parent", "tokens")

    def __init__(self, namespace: Namespace, parent: Node | None, tokens: tuple[int, ...], block: int) -> None:
        self.namespace = namespace
        self.parent = parent
        self.tokens = tokens
        self.block = block
        self.children: dict[tuple[int, ...], Node] = {}
        self.num_holders = 0
        self.num_pins = 0

    def path(self) -> Iterator[Node]:
        """Yield the node and those above it, the root left out."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent


class PrefixCache:
    """The tree of one cache. It knows blocks by number only; ``KVCache`` says who holds them."""

    def __init__(self, block_size: int, max_pinned_blocks: int) -> None:
        self.num_registered = 0
        self.num_held = 0
        self.num_pinned = 0
        self.num_evictions = 0
        self.num_broken_pins = 0
        self._block_size = block_size
        self._max_pinned_blocks = max_pinned_blocks
        self._roots: dict[Namespace, Node] = {}
        self._idle: OrderedDict[Node, None] = OrderedDict()
        self._pins: dict[Node, float] = {}
        """The last node of each pinned path, and until when."""
        self._pin_ends: list[tuple[float, int, Node]] = []
        """A heap; an entry that differs from ``_pins`` is void."""
        self._serial = itertools.count()

    @property
    def num_idle(self) -> int:
        """Blocks that can be evicted."""
        return len(self._idle)

    def match(self, namespace: Namespace, token_ids: TokenSource, num_blocks: int) -> list[Node]:
        """Return the longest registered path that spells the tokens, of at most ``num_blocks`` nodes."""
        found: list[Node] = []
        node = self._roots.get(namespace)
        while node is not None and len(found) < num_blocks:
            start = len(found) * self._block_size
            node = node.children.get(tuple(token_ids(start, start + self._block_size)))
            if node is not None:
                found.append(node)
        return found

    def find(self, namespace: Namespace, parent: Node | None, tokens: tuple[int, ...]) -> Node | None:
        """Return the block of ``tokens`` after ``parent``; None as a parent is the root."""
        above = parent or self._roots.get(namespace)
        return None if above is None else above.children.get(tokens)

    def add(self, namespace: Namespace, parent: Node | None, tokens: tuple[int, ...], block: int) -> Node:
        """Register a computed block with one holder. Nothing may be registered there yet."""
        above = parent or self._roots.get(namespace)
        if above is None:
            above = self._roots[namespace] = Node(namespace, None, (), -1)
        assert tokens not in above.children, f"block {above.children[tokens].block} holds the same as block {block}"
        node = above.children[tokens] = Node(namespace, above, tokens, block)
        node.num_holders = 1
        self.num_registered += 1
        self.num_held += 1
        return node

    def hold(self, node: Node) -> None:
        """Count one more holder. Who holds a node holds its whole path."""
        self.num_held += node.num_holders == 0
        node.num_holders += 1
        self._idle.pop(node, None)

    def let_go(self, node: Node) -> None:
        """Count one holder less. Of a path the last node goes first."""
        assert node.num_holders > 0, f"block {node.block} was let go more often than it was held"
        node.num_holders -= 1
        self.num_held -= node.num_holders == 0
        self._rest(node)

    def evict(self) -> int:
        """Drop the idle block that was let go longest ago; return its number, which is free."""
        node, _ = self._idle.popitem(last=False)
        self.num_evictions += 1
        return self._remove(node)

    def discard(self, node: Node) -> int | None:
        """Drop a block that nobody is to find again; return its number, or None if it is needed still."""
        if node.num_holders or node.num_pins or node.children:
            return None
        del self._idle[node]
        return self._remove(node)

    def pin(self, namespace: Namespace, token_ids: Sequence[int], until_s: float) -> int:
        """Keep the registered blocks of a prefix until then; return how many tokens they hold.

        Less than asked for: what is not computed yet, a last block that is not full, what ``max_pinned_blocks`` does not
        leave room for. Pinning again extends; it never shortens.
        """
        path = self.match(namespace, lambda start, stop: token_ids[start:stop], len(token_ids) // self._block_size)
        num_new = 0
        for index, node in enumerate(path):
            num_new += node.num_pins == 0
            if self.num_pinned + num_new > self._max_pinned_blocks:
                del path[index:]
                break
        if path and until_s > self._pins.get(path[-1], float("-inf")):
            if path[-1] not in self._pins:
                for node in path:
                    self.num_pinned += node.num_pins == 0
                    node.num_pins += 1
                    self._idle.pop(node, None)
            self._pins[path[-1]] = until_s
            heapq.heappush(self._pin_ends, (until_s, next(self._serial), path[-1]))
        return len(path) * self._block_size

    def unpin(self, namespace: Namespace, token_ids: Sequence[int]) -> None:
        """End the pin of exactly this prefix before its time; one that is not there is ignored."""
        path = self.match(namespace, lambda start, stop: token_ids[start:stop], len(token_ids) // self._block_size)
        if path and path[-1] in self._pins:
            self._end_pin(path[-1])

    def expire_pins(self, now_s: float) -> None:
        """End the pins whose time is over."""
        while self._pin_ends and self._pin_ends[0][0] <= now_s:
            until_s, _, node = heapq.heappop(self._pin_ends)
            if self._pins.get(node) == until_s:
                self._end_pin(node)

    def break_pin(self) -> bool:
        """End the pin that would end next, before its time; return False if there is none."""
        while self._pin_ends:
            until_s, _, node = heapq.heappop(self._pin_ends)
            if self._pins.get(node) == until_s:
                self._end_pin(node)
                self.num_broken_pins += 1
                return True
        return False

    def nodes(self) -> Iterator[Node]:
        """Yield every registered node, parents first."""
        unseen = list(self._roots.values())
        while unseen:
            node = unseen.pop()
            if node.parent is not None:
                yield node
            unseen.extend(node.children.values())

    def check(self) -> None:
        """Assert what the module promises of holders, pins, the idle order and the tree."""
        nodes = list(self.nodes())
        assert len(nodes) == self.num_registered, "the tree and its count differ"
        assert len({node.block for node in nodes}) == len(nodes), "a block is registered twice"
        assert all(root.children for root in self._roots.values()), "an empty namespace is kept"
        order = {node: number for number, node in enumerate(self._idle)}
        num_pins = dict.fromkeys(nodes, 0)
        for last in self._pins:
            for node in last.path():
                num_pins[node] += 1
        for node in nodes:
            assert node.num_pins == num_pins[node], f"block {node.block} counts {node.num_pins} pins"
            is_idle = node.num_holders == 0 and node.num_pins == 0
            assert (node in order) == is_idle, f"block {node.block} is idle and not listed, or listed and not idle"
            parent = node.parent
            assert parent is not None, "a node without a parent is in the tree"
            if parent.parent is not None:
                assert parent.num_holders >= node.num_holders, f"block {node.block} is held without its parent"
                assert parent not in order or order[node] < order[parent], f"block {parent.block} goes before its child"
        assert len(order) == sum(node in order for node in nodes), "a block that was evicted is listed as idle"
        assert self.num_held == sum(node.num_holders > 0 for node in nodes)
        assert self.num_pinned == sum(node.num_pins > 0 for node in nodes) <= self._max_pinned_blocks

    def _end_pin(self, last: Node) -> None:
        del self._pins[last]
        for node in last.path():
            node.num_pins -= 1
            self.num_pinned -= node.num_pins == 0
            self._rest(node)

    def _rest(self, node: Node) -> None:
        if node.num_holders == 0 and node.num_pins == 0:
            self._idle[node] = None

    def _remove(self, node: Node) -> int:
        above = node.parent
        assert above is not None, f"block {node.block} is evicted twice"
        assert not node.children, f"block {node.block} is evicted before its children"
        del above.children[node.tokens]
        if above.parent is None and not above.children:
            del self._roots[node.namespace]
        node.parent = None
        self.num_registered -= 1
        return node.block
