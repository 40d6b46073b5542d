"""Asking the person at the terminal, where a Dag wants an approval."""

from __future__ import annotations

import sys

import anyio
import anyio.to_thread

from agentrt.cli.printable import one_line
from agentrt.run.attempt import Approval, ApprovalRequest, Approver


def approver(*, approve_all: bool) -> Approver | None:
    """Return who answers: everything approved, the person at the terminal, or None when there is nobody."""
    if approve_all:
        return _approve
    return _Terminal().ask if sys.stdin.isatty() and sys.stderr.isatty() else None


async def _approve(request: ApprovalRequest) -> Approval:
    return Approval(True, "approved by --yes")


class _Terminal:
    """Asks one question after another, however many actions ask at the same time."""

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def ask(self, request: ApprovalRequest) -> Approval:
        question = f"\n{request.action}: {one_line(request.question)}\napprove? [y/N, or a reason to refuse] "
        async with self._turn:
            sys.stderr.write(question)
            sys.stderr.flush()
            # The thread is left behind when the run is cancelled: reading a terminal cannot be stopped from outside.
            answer = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
        text = answer.strip()
        if text.lower() in ("y", "yes"):
            return Approval(True)
        return Approval(False, "" if text.lower() in ("", "n", "no") else text)
