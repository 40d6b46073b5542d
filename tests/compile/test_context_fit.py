"""Prompts that cannot fit, told before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrt.compile.context_fit import MIN_BYTES, context_problems, fixed_texts
from agentrt.declare.action import Action
from agentrt.declare.agent import Agent, ModelRef
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import parse_dag
from agentrt.declare.template import Template


class WordFacts:
    """A model whose tokens are words, and that remembers what it was asked."""

    def __init__(self, window: int | None, *, counts: bool = True) -> None:
        self.window = window
        self.counts = counts
        self.asked: list[tuple[ModelRef | None, Path | None]] = []
        self.num_counted = 0

    def context_tokens(self, ref: ModelRef | None, base_dir: Path | None) -> int | None:
        self.asked.append((ref, base_dir))
        return self.window

    def count_tokens(self, ref: ModelRef | None, base_dir: Path | None, text: str) -> int | None:
        self.num_counted += 1
        return len(text.split()) if self.counts else None


def words(count: int) -> str:
    return " ".join(["word"] * count)


def a_dag(prompt: str, instructions: str = "", *, choices: tuple[str, ...] = (), model: ModelRef | None = None) -> Dag:
    action = Action.llm("ask", prompt, choices=choices, agent="clerk")
    return Dag("d", {"ask": action}, {}, agents={"clerk": Agent("clerk", instructions, model)}, base_dir=Path("/here"))


def test_a_fixed_part_as_long_as_the_window_is_told_at_the_prompt() -> None:
    """Instructions and prompt count together, and one token must be left for the answer."""
    facts = WordFacts(1000)
    # Each of the two texts is counted as one token less, for tokenizers that put a space before it.
    assert not list(context_problems(a_dag(words(500), words(501)), facts))
    (found,) = context_problems(a_dag(words(500), words(502)), facts)
    assert found.code == "DAG058"
    assert found.message == (
        "the prompt of action 'ask' has at least 1000 tokens before anything is put into it; the context of the default "
        "model holds 1000, answer included"
    )
    assert found.hint == (
        "shorten the instructions of agent 'clerk' (2509 characters) or the prompt, or take a model that reads more"
    )
    assert found.place is not None
    assert found.place.file == __file__


def test_in_a_file_the_prompt_is_pointed_at() -> None:
    """An action of a DAG file is told with the line of its prompt; a fallback's prompt is an action's too."""
    text = f"""\
name: d
agents:
  clerk: {{model: small}}
actions:
  ask:
    prompt: {words(1200)}
  other:
    prompt: hello
    fallback:
      prompt: {words(1200)}
outputs: {{a: "{{{{ actions.ask.output }}}}"}}
"""
    found = list(context_problems(parse_dag(text, file="d.yaml"), WordFacts(1000)))
    assert [(d.code, d.place and d.place.line) for d in found] == [("DAG058", 6), ("DAG058", 8)]
    assert "model 'small'" in found[0].message


def test_choices_need_room_whole() -> None:
    """An answer may be cut short, but not one that is one of the choices: the longest must fit."""
    facts = WordFacts(1000)
    prompt = words(980)
    assert not list(context_problems(a_dag(prompt, choices=("yes", "no")), facts))
    (found,) = context_problems(a_dag(prompt, choices=("yes", "n" * 30)), facts)
    assert "at least 979 tokens" in found.message
    assert "its longest choice may take 31" in found.message


def test_the_model_is_asked_only_about_what_could_be_too_long() -> None:
    """A short prompt opens no file; one with fewer bytes than the window has tokens needs no tokenizer."""
    facts = WordFacts(100_000)
    short = a_dag("x" * (MIN_BYTES - 1))
    assert not list(context_problems(short, facts))
    assert facts.asked == []
    ref = ModelRef("small")
    assert not list(context_problems(a_dag(words(1000), model=ref), facts))
    assert facts.asked == [(ref, Path("/here"))]
    assert facts.num_counted == 0


@pytest.mark.parametrize("facts", [WordFacts(None), WordFacts(1000, counts=False)])
def test_of_an_unknown_model_nothing_is_said(facts: WordFacts) -> None:
    """A window or a tokenizer that is not known leaves the prompt to the model."""
    assert not list(context_problems(a_dag(words(5000)), facts))
    assert facts.asked


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("all of it \n", ["all of it"]),
        ("  all of it", [" of it"]),
        ("one two three {{ inputs.x }} four five six", ["one two", " five six"]),
        ("one{{ inputs.x }}two", []),
        ("{{ inputs.x }}", []),
        ("alpha beta{{ inputs.x }} gamma delta epsilon{{ inputs.y }}zeta", ["alpha", " delta"]),
        ("one two three {% if inputs.x %}left out of it{% endif %} four five six", ["one two", " five six"]),
        ("one two three {{ inputs.x | upper }} four five six", ["one two", " five six"]),
        ("{# a remark #}one two three", ["one two three"]),
        ("one two.\n\n{{ inputs.x }}\n\nthree, four", ["one"]),
    ],
)
def test_the_fixed_part_is_what_every_rendering_holds(source: str, texts: list[str]) -> None:
    """Without the words at its seams, and without what stands under a condition."""
    assert fixed_texts(Template.parse(source)) == texts
