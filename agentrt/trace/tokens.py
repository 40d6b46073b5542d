"""The tokens of one model call: noted as they come, turned into spans when nobody waits any more.

A span made through the SDK costs some ten microseconds, several tokens of a fast engine. So a token is noted
by three appends, and its ``llm.token.generate`` span is built later, in the thread that stores or sends it.
The n-th token's span reaches from the token before it to its own delivery; the first one's from the start of
the call, so that its length is the TTFT and the length of every other one is an ITL.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from agentrt.trace import names
from agentrt.trace.record import SpanRecord
from agentrt.trace.token_timing import TokenTiming

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_SPAN_ID_MASK = 2**64 - 1


class TokenLog:
    """What is known of each token, in three lists of the same length.

    Whoever notes a token appends to the lists directly: a method in between would double the cost.
    """

    __slots__ = ("_first_span_id", "logprobs", "times_ns", "token_ids")

    def __init__(self) -> None:
        self.times_ns: list[int] = []
        self.token_ids: list[int | None] = []
        self.logprobs: list[float | None] = []
        # Ids count up from a random one: unique within a trace, the same for the store and for OTLP, and
        # free.
        self._first_span_id = secrets.randbits(64)

    def __len__(self) -> int:
        return len(self.times_ns)

    def timing(self, began_ns: int) -> TokenTiming:
        """Take TTFT and ITL; tokens stamped out of order by a clock that was set back count as zero gaps."""
        ascending = accumulate(self.times_ns, max, initial=began_ns)
        return TokenTiming.from_times(next(ascending), list(ascending))

    def records(self, call: SpanRecord) -> Iterator[SpanRecord]:
        """Build the tokens' spans, children of ``call``, for the store."""
        for span_id, start_ns, end_ns, attributes in self._rows(call.start_ns):
            yield SpanRecord(f"{span_id:016x}", call.span_id, names.TOKEN_SPAN, start_ns, end_ns, attributes)

    def readable_spans(self, call: ReadableSpan) -> Iterator[ReadableSpan]:
        """Build the tokens' spans, children of ``call``, as the SDK's exporters take them."""
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext

        parent = call.get_span_context()
        assert parent is not None
        assert call.start_time is not None
        for span_id, start_ns, end_ns, attributes in self._rows(call.start_time):
            yield ReadableSpan(
                names.TOKEN_SPAN,
                SpanContext(parent.trace_id, span_id, is_remote=False, trace_flags=parent.trace_flags),
                parent,
                call.resource,
                attributes,
                start_time=start_ns,
                end_time=end_ns,
                instrumentation_scope=call.instrumentation_scope,
            )

    def _rows(self, began_ns: int) -> Iterator[tuple[int, int, int, dict[str, Any]]]:
        previous_ns = began_ns
        for step, (time_ns, token_id, logprob) in enumerate(
            zip(self.times_ns, self.token_ids, self.logprobs, strict=True)
        ):
            attributes: dict[str, Any] = {names.TOKEN_STEP: step}
            if token_id is not None:
                attributes[names.TOKEN_ID] = token_id
            if logprob is not None:
                attributes[names.TOKEN_LOGPROB] = logprob
            end_ns = max(previous_ns, time_ns)
            yield (
                (self._first_span_id + step) & _SPAN_ID_MASK or _SPAN_ID_MASK,
                previous_ns,
                end_ns,
                attributes,
            )
            previous_ns = end_ns
