"""What the whole command line asked for, kept where ``main`` finds it however the command ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(slots=True)
class Invocation:
    debug: bool = False


def _note_debug(context: typer.Context, value: bool) -> bool:
    if value:
        invocation = context.find_root().obj
        assert isinstance(invocation, Invocation)
        invocation.debug = True
    return value


DebugOption = Annotated[
    bool, typer.Option("--debug", callback=_note_debug, help="Show the traceback of an error.", is_eager=True)
]
