"""Who goes first: every policy is one number, a time at which the request stands in a queue.

``rank_s`` is set when a request is submitted and never changes. The smallest is admitted first, the largest gives up its
blocks first, so the request that is first stays first until it is done: two requests cannot take turns in throwing each
other out, which a rank that moves with the service received (least attained service, least slack *now*) allows.

Ageing is built in: a rank is at most a bounded amount before the arrival, so whoever arrives that much later than a
request's own rank stands behind it, whatever the policy says. A request is overtaken by those of a bounded time only, and
nobody starves. Every policy below is written to keep that bound, and the tests hold it to it.

- **fcfs**: the arrival.
- **priority**: the arrival, ``priority_step_s`` earlier for each priority. A request waits for others of one priority more
  if they came up to that much later: priorities are a head start, not classes.
- **slack**: the latest time at which it can be begun and still be done in time: its deadline less the time for its own
  tokens, at worst ``itl_target_s`` each and ``PROMPT_TOKEN_S`` for one of the prompt. Comparing these is comparing slack,
  as now is the same for all. Without a deadline it is to be begun ``patience_s`` after the first request of its run came:
  its ``max_tokens`` does not count, or asking for more would be a way to the front.
  A request of a run that has others in the engine stands with the most urgent of them: a run ends when its last part
  does, so half of two runs is worth less than all of one (gang scheduling; Luo et al. 2025, "Autellix", for agents).
  Service that a run had does not count against it, as there: with deadlines known it would take from the runs that are
  nearly done. What its age may give a run is bounded by ``patience_s``, so one that goes on for ever gets no ever larger
  head start.

Among prompts, short ones are let through: to the rank is added ``prompt_token_wait_s`` for each token that is still to be
computed. This is shortest-remaining-first with linear ageing: a prompt of 4,096 tokens lets pass those shorter ones that
came within 4 s after it, and then none. Requests that have a deadline under **slack** get no such addition: their length
is in their slack already, and it makes a long one *more* urgent.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from agentrt.inference.config import EngineConfig
from agentrt.inference.request import Request

PROMPT_TOKEN_S = 0.0005
"""Time to compute a token of a prompt, on the slow side: 0.2 ms were measured on two cores."""
MAX_PRIORITY = 100
MAX_KNOWN_RUNS = 4096
"""Runs remembered while they have no request here: they are at a tool, and come back with their age."""


@dataclass(slots=True)
class _Run:
    first_arrival_s: float
    rank_s: float
    num_live: int = 0


class Ranking:
    """Sets the rank of requests, and remembers the runs they are of."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._runs: OrderedDict[str, _Run] = OrderedDict()

    def enter(self, request: Request) -> None:
        """Set the rank of a request that was submitted; ``leave`` must follow when it is over."""
        match self._config.policy:
            case "fcfs":
                request.rank_s = request.arrival_s
            case "priority":
                priority = max(-MAX_PRIORITY, min(MAX_PRIORITY, request.scheduling.priority))
                request.rank_s = request.arrival_s - priority * self._config.priority_step_s
            case "slack":
                self._enter_run(request)

    def leave(self, request: Request) -> None:
        """Forget a request; its run is remembered for a while."""
        run = None if request.scheduling.run_id is None else self._runs.get(request.scheduling.run_id)
        if run is not None:
            run.num_live -= 1
        while len(self._runs) > MAX_KNOWN_RUNS and next(iter(self._runs.values())).num_live == 0:
            self._runs.popitem(last=False)

    def prompt_order(self, request: Request) -> tuple[float, int]:
        """Return the place of a request among those whose prompts are computed: by rank, and short ones first."""
        return request.rank_s + self._wait_s(request) * request.num_pending_tokens, request.request_id

    def queue_order(self, request: Request) -> tuple[float, int]:
        """Return the place of a request among those that wait. It does not change."""
        return request.rank_s + self._wait_s(request) * len(request.prompt_token_ids), request.request_id

    def _wait_s(self, request: Request) -> float:
        if self._config.policy == "slack" and request.deadline_s is not None:
            return 0.0
        return self._config.prompt_token_wait_s

    def _enter_run(self, request: Request) -> None:
        run_id, arrival_s, patience_s = request.scheduling.run_id, request.arrival_s, self._config.patience_s
        run = _Run(arrival_s, arrival_s)
        if run_id is not None:
            run = self._runs.setdefault(run_id, run)
            self._runs.move_to_end(run_id)
        if request.deadline_s is None:
            request.rank_s = max(run.first_arrival_s, arrival_s - patience_s) + patience_s
        else:
            own_s = PROMPT_TOKEN_S * len(request.prompt_token_ids) + self._config.itl_target_s * request.max_new_tokens
            request.rank_s = max(arrival_s, request.deadline_s) - own_s
        if run.num_live:
            request.rank_s = min(request.rank_s, max(run.rank_s, arrival_s))
        run.num_live += 1
        run.rank_s = request.rank_s if run.num_live == 1 else min(run.rank_s, request.rank_s)
