"""Prompts that every server gets alike, and none gets twice."""

from __future__ import annotations

import pytest

from benchmarks.peers.prompts import NUM_DISTINCT, PromptSource, docstrings, make_corpus

CORPUS = list(range(5_000))


def test_a_prompt_has_exactly_the_length_asked_for() -> None:
    """W1 to W3 state token counts; a prompt is never shorter or longer."""
    source = PromptSource(CORPUS, "W1 0 0")
    assert [len(source.take(num_tokens)) for num_tokens in (1, 64, 128, 4_096, 5_000)] == [1, 64, 128, 4_096, 5_000]


def test_every_server_gets_the_same_prompts_in_a_turn_and_others_in_the_next() -> None:
    """A source is made by its seed alone."""
    first, again, other = (PromptSource(CORPUS, seed) for seed in ("W1 0 0", "W1 0 0", "W1 1 0"))
    taken = [first.take(128) for _ in range(8)]
    assert taken == [again.take(128) for _ in range(8)]
    assert taken != [other.take(128) for _ in range(8)]


def test_no_two_prompts_of_a_source_begin_alike() -> None:
    """A server's prefix cache finds nothing it was not meant to find."""
    source = PromptSource(CORPUS, "W2 at 32 0 0")
    beginnings = [tuple(source.take(64)[:NUM_DISTINCT]) for _ in range(200)]
    assert len(set(beginnings)) == len(beginnings)


def test_a_corpus_that_has_no_more_to_give_is_an_error() -> None:
    """A source rather fails than gives a prompt twice, or a short one."""
    source = PromptSource(CORPUS[:10], "small")
    with pytest.raises(ValueError, match="holds no prompt of 11"):
        source.take(11)
    source.take(10)
    with pytest.raises(ValueError, match="no new beginning"):
        source.take(10)


def test_the_corpus_is_made_of_docstrings_in_one_order() -> None:
    """Two calls in one Python make the same corpus, large enough for the longest prompts."""
    texts = docstrings()
    assert texts == docstrings()
    assert make_corpus(lambda text: list(text.encode()), texts) == make_corpus(lambda text: list(text.encode()), texts)
    assert sum(map(len, texts)) > 100_000
