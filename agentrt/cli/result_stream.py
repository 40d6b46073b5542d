"""Standard output kept for the result.

A tool may print, and so may a library or a program it starts. While a run goes on, whatever they write to standard output
goes to standard error, so that what a pipe receives is the outputs of the run, or one JSON object, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO


@contextlib.contextmanager
def stdout_for_results() -> Iterator[TextIO]:
    """Give the real standard output; inside the block everybody else's is standard error."""
    stream = sys.stdout
    stream.flush()
    with contextlib.ExitStack() as stack:
        descriptors = _descriptor(stream), _descriptor(sys.stderr)
        if descriptors[0] is not None and descriptors[1] is not None:
            kept: TextIO = os.fdopen(
                os.dup(descriptors[0]), "w", encoding=stream.encoding, errors="backslashreplace", newline="\n"
            )
            stack.callback(_close, kept)
            os.dup2(descriptors[1], descriptors[0])
            stack.callback(os.dup2, kept.fileno(), descriptors[0])
        else:
            kept = stream
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield kept
        kept.flush()


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None


def _close(stream: TextIO) -> None:
    # A reader that went away was noticed when the result was written.
    with contextlib.suppress(BrokenPipeError):
        stream.close()
