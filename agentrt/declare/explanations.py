"""What each diagnostic means, with an example that gives it and the same example mended.

One small Markdown file for each code, in ``explanations_text``, is the only source of ``agentrt check --explain``, of
``docs/diagnostics.md`` and of the rules in a SARIF log. A file is read when somebody asks for it, never by a check that
finds nothing. It holds a title, a text, and fenced blocks whose first line says what they are::

    ```yaml bad          the example that gives the diagnostic; the line of each is marked by  # <-- CODE
    ```yaml mended       the same without the mistake
    ```yaml other.yaml   a file that both need beside them

The language is ``yaml`` for a DAG file, ``python`` for a Dag declared in Python and ``sh`` for a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from textwrap import indent

from agentrt.declare.codes import Code
from agentrt.errors import Severity

_BLOCK = re.compile(r"^```(\w+) (\S+)(?: (\S+))?\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"  # <-- (DAG\d{3})$", re.MULTILINE)
_FILE_NAMES = {"yaml": "dag.yaml", "python": "dag.py", "sh": "commands.sh"}


@dataclass(frozen=True, slots=True)
class Example:
    """One fenced block: ``source`` is what it holds, marks included."""

    language: str
    source: str
    file_name: str

    @property
    def marks(self) -> tuple[tuple[str, int], ...]:
        """The codes that are marked, each with the number of its line."""
        return tuple((mark[1], self.source.count("\n", 0, mark.start()) + 1) for mark in _MARK.finditer(self.source))


@dataclass(frozen=True, slots=True)
class Explanation:
    """A title of a few words, what to know about the mistake, and an example of it."""

    code: Code
    title: str
    text: str
    """Paragraphs, each of one line, with empty lines between them."""
    bad: Example
    mended: Example
    files: tuple[Example, ...] = field(default=())
    """What both examples need beside them."""

    @property
    def examples(self) -> tuple[tuple[str, Example], ...]:
        """All examples in the order of reading, each with the words that introduce it."""
        beside = [(f"Beside it, {file.file_name}:", file) for file in self.files]
        return (*beside, ("Wrong:", self.bad), ("Right:", self.mended))

    @property
    def markdown(self) -> str:
        """The text and the examples in Markdown, without a heading."""
        severity = "*A warning.* " if self.code.severity is Severity.WARNING else ""
        examples = [f"{says}\n\n```{example.language}\n{example.source}```" for says, example in self.examples]
        return "\n\n".join([severity + self.text, *examples])

    @property
    def plain(self) -> str:
        """The same without Markdown's fences."""
        severity = "A warning. " if self.code.severity is Severity.WARNING else ""
        examples = [f"{says}\n\n{indent(example.source.rstrip(), '    ')}" for says, example in self.examples]
        return "\n\n".join([severity + self.text, *examples])


class _Explanations(Mapping[Code, Explanation]):
    """All explanations, each read when it is asked for."""

    def __getitem__(self, code: Code) -> Explanation:
        if not isinstance(code, Code):
            raise KeyError(code)
        return _read(code)

    def __iter__(self) -> Iterator[Code]:
        return iter(Code)

    def __len__(self) -> int:
        return len(Code)


EXPLANATIONS: Mapping[Code, Explanation] = _Explanations()


def parse_explanation(code: Code, text: str) -> Explanation:
    """Read an explanation from its Markdown.

    Raises:
        ValueError: it lacks a title, a text, or one of the two examples.
    """
    heading, _, rest = text.partition("\n")
    prose = re.sub(r"(?<!\n)\n(?!\n)", " ", rest.partition("```")[0].strip())
    blocks = {match[2]: match for match in _BLOCK.finditer(rest)}
    missing = [role for role in ("bad", "mended") if role not in blocks]
    if not heading.startswith("# ") or not prose or missing:
        raise ValueError(f"the explanation of {code} lacks {missing or 'its title or its text'}")
    examples = {
        role: Example(match[1], match[4], match[3] or (_FILE_NAMES[match[1]] if role in ("bad", "mended") else role))
        for role, match in blocks.items()
    }
    bad, mended = examples.pop("bad"), examples.pop("mended")
    return Explanation(code, heading.removeprefix("# ").strip(), prose, bad, mended, tuple(examples.values()))


def diagnostics_page() -> str:
    """Return ``docs/diagnostics.md``."""
    parts = [
        "# Diagnostics",
        "Every mistake in a DAG has a code that keeps its meaning, a place (`file:line:column`), the value seen, and\n"
        "where possible a hint with the nearest name. All mistakes of a file are told at once, up to 100. Those marked\n"
        "as a warning do not keep a DAG from running. `agentrt check --explain CODE` shows on a terminal what stands\n"
        "here. In the examples a comment marks the line that is told.",
        "A warning that does not matter is ignored with its reason, in one action or in the whole file:\n"
        '`ignore: {DAG051: "callers of version 1 still send it"}`. Errors cannot be ignored.',
    ]
    for code, explanation in EXPLANATIONS.items():
        parts += [f"## {code}: {explanation.title}", explanation.markdown]
    return "\n\n".join(parts) + "\n"


@cache
def _read(code: Code) -> Explanation:
    source = files("agentrt.declare") / "explanations_text" / f"{code}.md"
    return parse_explanation(code, source.read_text("utf-8"))
