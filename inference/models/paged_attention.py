"""Attention over the paged cache in plain torch: the reference, and what runs where there is no faster path.

A step mixes sequences that decode (one new row) with pieces of prompts (many rows). Decoding sequences are computed
together, padded to the longest of their group; lengths within a group differ by less than two, so that one long context
does not make every short one pay for it. Pieces of prompts are computed one sequence at a time, in tiles of at most 256
rows, so that a mask never grows with the square of a prompt.

Keys and values are gathered by slot, not by block: a slot that nobody wrote for a sequence is never read, whatever is in
it. Padding points at the sequence's own first slot and is masked. They are gathered into buffers that all layers of the
step share: fresh ones cost more in page faults (10 ms a layer at 32 sequences of 577 tokens) than all of the attention
(4 ms). The heads that share a key head are folded into the query length: torch's own `enable_gqa` with one query row is
four to seven times slower.

What a layer needs to know is worked out once a step, by `plan_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from agentrt.inference.forward import KVTensors, SequenceSlice

MAX_TILE_ROWS = 256


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Sequences with one new row each.

    rows: [n]; slots: [n * longest], row by row; mask: [n, 1, 1, longest], 0 or -inf, None when all have one length.
    """

    rows: torch.Tensor
    slots: torch.Tensor
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class PromptTile:
    """Rows of one sequence; they see its first ``num_seen`` tokens. mask: [num_rows * group, num_seen], 0 or -inf."""

    first_row: int
    num_rows: int
    num_seen: int
    mask: torch.Tensor


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """All new rows of one sequence. slots: [num_computed + num_rows]."""

    slots: torch.Tensor
    tiles: tuple[PromptTile, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Which rows are computed together and which slots they read; buffers: [most slots, num_kv_heads, head_dim]."""

    parts: tuple[DecodeGroup | PromptPiece, ...]
    key_buffer: torch.Tensor
    value_buffer: torch.Tensor


def plan_attention(sequences: Sequence[SequenceSlice], kv: KVTensors, num_heads: int) -> AttentionPlan:
    """Work out what every layer of a step will do."""
    num_kv_heads, head_dim = kv.keys.shape[3:]
    decoding = sorted(
        (sequence for sequence in sequences if sequence.num_rows == 1), key=lambda sequence: -sequence.num_computed
    )
    parts: list[DecodeGroup | PromptPiece] = []
    first = 0
    for index, sequence in enumerate(decoding):
        if 2 * (sequence.num_computed + 1) <= decoding[first].num_computed + 1:
            parts.append(_decode_group(decoding[first:index], kv))
            first = index
    if decoding:
        parts.append(_decode_group(decoding[first:], kv))
    parts += [_prompt_piece(sequence, kv, num_heads // num_kv_heads) for sequence in sequences if sequence.num_rows > 1]
    most = max((part.slots.shape[0] for part in parts), default=0)
    buffers = torch.empty(2, most, num_kv_heads, head_dim, dtype=kv.keys.dtype)
    return AttentionPlan(tuple(parts), buffers[0], buffers[1])


def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, plan: AttentionPlan) -> torch.Tensor:
    """Compute attention of one layer.

    queries: [num_rows, num_heads, head_dim], rotated; keys, values: [num_slots, num_kv_heads, head_dim], one layer of the
    cache with this step's rows written. Returns [num_rows, num_heads * head_dim].
    """
    num_rows, num_heads, head_dim = queries.shape
    num_kv_heads = keys.shape[1]
    grouped = queries.view(num_rows, num_kv_heads, num_heads // num_kv_heads, head_dim)
    out = torch.empty_like(grouped)
    for part in plan.parts:
        num_slots = part.slots.shape[0]
        part_keys = torch.index_select(keys, 0, part.slots, out=plan.key_buffer[:num_slots])
        part_values = torch.index_select(values, 0, part.slots, out=plan.value_buffer[:num_slots])
        if isinstance(part, DecodeGroup):
            shape = (part.rows.shape[0], -1, num_kv_heads, head_dim)
            out[part.rows] = scaled_dot_product_attention(
                grouped[part.rows],
                part_keys.view(shape).transpose(1, 2),
                part_values.view(shape).transpose(1, 2),
                attn_mask=part.mask,
            )
            continue
        for tile in part.tiles:
            rows = slice(tile.first_row, tile.first_row + tile.num_rows)
            answer = scaled_dot_product_attention(
                grouped[rows].transpose(0, 1).reshape(1, num_kv_heads, -1, head_dim),
                part_keys[: tile.num_seen].transpose(0, 1).unsqueeze(0),
                part_values[: tile.num_seen].transpose(0, 1).unsqueeze(0),
                attn_mask=tile.mask,
            )
            out[rows] = answer.view(num_kv_heads, tile.num_rows, -1, head_dim).transpose(0, 1)
    return out.view(num_rows, num_heads * head_dim)


def _decode_group(sequences: Sequence[SequenceSlice], kv: KVTensors) -> DecodeGroup:
    """Put sequences together, the longest first."""
    lengths = [sequence.num_computed + 1 for sequence in sequences]
    longest = lengths[0]
    slots = torch.stack([_slots(sequence, longest, kv.block_size) for sequence in sequences])
    mask = None
    if lengths[-1] != longest:
        beyond = torch.arange(longest) >= torch.tensor(lengths).unsqueeze(1)
        mask = torch.zeros(beyond.shape, dtype=kv.keys.dtype).masked_fill_(beyond, -torch.inf)[:, None, None, :]
    rows = torch.tensor([sequence.first_row for sequence in sequences])
    return DecodeGroup(rows, slots.view(-1), mask)


def _prompt_piece(sequence: SequenceSlice, kv: KVTensors, group: int) -> PromptPiece:
    tiles = []
    for first in range(0, sequence.num_rows, MAX_TILE_ROWS):
        num_rows = min(MAX_TILE_ROWS, sequence.num_rows - first)
        num_seen = sequence.num_computed + first + num_rows
        mask = torch.full((num_rows, num_seen), -torch.inf, dtype=kv.keys.dtype).triu_(num_seen - num_rows + 1)
        tiles.append(PromptTile(sequence.first_row + first, num_rows, num_seen, mask.repeat_interleave(group, dim=0)))
    return PromptPiece(_slots(sequence, sequence.num_computed + sequence.num_rows, kv.block_size), tuple(tiles))


def _slots(sequence: SequenceSlice, length: int, block_size: int) -> torch.Tensor:
    """Return the slots of positions 0 ... length-1, those past the sequence's own replaced by its first."""
    own = sequence.num_computed + sequence.num_rows
    table = sequence.block_table[: -(-own // block_size)]
    slots = (table.unsqueeze(1) * block_size + torch.arange(block_size)).view(-1)[:own]
    return slots if own == length else torch.cat((slots, slots[:1].expand(length - own)))
