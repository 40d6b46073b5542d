"""Where templates run: jinja's immutable sandbox, with our way to look parts up and a meter on its operators."""

from __future__ import annotations

from typing import Any

from jinja2.runtime import Context, StrictUndefined, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentrt.declare.limits import MAX_INT_BITS
from agentrt.declare.template_budget import BUDGET, PART_WORK, Budget, BudgetExceededError
from agentrt.declare.template_filters import FILTERS, INTERNAL_FILTERS, TESTS
from agentrt.declare.values import MissingPartError, part_of, text_of


class Environment(ImmutableSandboxedEnvironment):
    """jinja's sandbox with this module's look-up of parts, metered operators, and nothing else in it."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined,
            finalize=text_of,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            optimized=False,
            cache_size=0,
        )
        self.globals.clear()
        self.filters.clear()
        self.filters.update(FILTERS)
        self.filters.update(INTERNAL_FILTERS)
        self.tests = {name: test for name, test in self.tests.items() if name in TESTS}

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Undefined):
            str(obj)  # raises, with the message of the part that is missing
        if not isinstance(argument, (str, int)):
            return self.undefined(hint=f"a part is named by a text or a number, not by {argument!r:.80}")
        try:
            return part_of(obj, argument)
        except MissingPartError as error:
            return self.undefined(hint=str(error))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget: Budget = context[BUDGET]
        if operator == "*":
            _check_product(budget, left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            raise BudgetExceededError("'%' formats no texts here; write the parts one after another with '~'")
        elif operator == "+" and isinstance(left, (str, list, tuple)):
            budget.charge_value(left)
            budget.charge_value(right)
            if isinstance(left, str) and isinstance(right, str):
                budget.charge_text(len(left) + len(right))
        result = self.binop_table[operator](left, right)
        budget.charge(1)
        if isinstance(result, int) and result.bit_length() > MAX_INT_BITS:
            raise BudgetExceededError(f"it makes a number of more than {MAX_INT_BITS} bits")
        return result


def _check_product(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, int):
        left, right = right, left
    if isinstance(left, str) and isinstance(right, int):
        budget.charge_text(len(left) * max(right, 0))
    elif isinstance(left, (list, tuple)) and isinstance(right, int):
        budget.charge(PART_WORK * len(left) * max(right, 0))


def _check_power(left: Any, right: Any) -> None:
    are_whole = isinstance(left, int) and isinstance(right, int)
    if are_whole and abs(left) > 1 and left.bit_length() * abs(right) > 2 * MAX_INT_BITS:
        raise BudgetExceededError(f"it makes a number of more than {MAX_INT_BITS} bits")
