"""The meter of a rendering: what it may still do.

jinja's sandbox keeps a template from reaching Python's internals; it does not keep one from making a string of a gigabyte
or looping for a day. So every pass of a loop and every value that an operator, filter or method makes is charged here,
before it is made wherever it could be much larger than what it is made from. The limits are counts, not seconds: a
template that renders once renders always.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentrt.declare.limits import MAX_INT_BITS, MAX_TEXT_CHARS, MAX_WORK

PART_WORK = 50
"""What one part of a list or mapping weighs, in characters."""
BUDGET = "_budget"
"""Name under which the meter stands in a rendering's context; templates cannot name it."""


class BudgetExceededError(Exception):
    """A template would make too much or work too long."""


class Budget:
    """What one rendering may still do."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_WORK

    def charge(self, work: int) -> None:
        self.left -= work
        if self.left < 0:
            raise BudgetExceededError(f"it does too much work (the limit is {MAX_WORK} characters and parts touched)")

    def charge_text(self, num_chars: int) -> None:
        """Charge for a text that is about to be made."""
        self.check_text(num_chars)
        self.charge(num_chars)

    @staticmethod
    def check_text(num_chars: int) -> None:
        if num_chars > MAX_TEXT_CHARS:
            raise BudgetExceededError(f"it makes a text of {num_chars} characters (the limit is {MAX_TEXT_CHARS})")

    def charge_value(self, value: Any) -> None:
        """Charge for going through ``value``, with everything in it."""
        if isinstance(value, str):
            self.charge(len(value))
            return
        stack = [value]
        while stack:
            node = stack.pop()
            if isinstance(node, str):
                self.charge(len(node))
            elif isinstance(node, Mapping):
                self.charge(PART_WORK * len(node))
                stack.extend(node.values())
            elif isinstance(node, (list, tuple)):
                self.charge(PART_WORK * len(node))
                stack.extend(node)
            elif isinstance(node, int) and node.bit_length() > MAX_INT_BITS:
                raise BudgetExceededError(f"it works with a number of more than {MAX_INT_BITS} bits")
