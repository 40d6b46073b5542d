"""Who goes first under each policy, and that nobody can be overtaken for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrt.errors import ConfigError
from agentrt.inference.config import EngineConfig, PolicyName
from agentrt.inference.ranking import MAX_KNOWN_RUNS, MAX_PRIORITY, PROMPT_TOKEN_S, Ranking
from agentrt.inference.request import Request, SchedulingParams
from agentrt.inference.sampling_params import SamplingParams

POLICIES: tuple[PolicyName, ...] = ("fcfs", "priority", "slack")


def make_ranking(policy: PolicyName, **config: float) -> Ranking:
    return Ranking(EngineConfig(policy=policy, prompt_token_wait_s=0.0, **config))  # type: ignore[arg-type]


def enter(
    ranking: Ranking,
    request_id: int,
    *,
    arrival_s: float = 0.0,
    num_prompt: int = 10,
    max_tokens: int = 10,
    **scheduling: object,
) -> Request:
    request = Request(
        request_id,
        tuple(range(num_prompt)),
        SamplingParams(max_tokens=max_tokens),
        arrival_s,
        SchedulingParams(**scheduling),  # type: ignore[arg-type]
    )
    ranking.enter(request)
    return request


def order(ranking: Ranking, requests: list[Request]) -> list[int]:
    return [request.request_id for request in sorted(requests, key=ranking.queue_order)]


def test_first_come_first_served_heeds_nothing_else() -> None:
    """Priorities, deadlines and runs do not matter; of those that came at once, the smaller id goes first."""
    ranking = make_ranking("fcfs")
    requests = [
        enter(ranking, 3, arrival_s=2.0, priority=9, deadline_s=2.1),
        enter(ranking, 2, arrival_s=1.0),
        enter(ranking, 1, arrival_s=1.0, run_id="a"),
    ]
    assert order(ranking, requests) == [1, 2, 3]


def test_a_priority_is_a_head_start() -> None:
    """One priority more is worth ``priority_step_s``: it passes those that came up to that much earlier, no others."""
    ranking = make_ranking("priority", priority_step_s=10.0)
    requests = [
        enter(ranking, 0, arrival_s=0.0),
        enter(ranking, 1, arrival_s=3.0),
        enter(ranking, 2, arrival_s=11.0, priority=1),
        enter(ranking, 3, arrival_s=3.0, priority=-1),
    ]
    assert order(ranking, requests) == [0, 2, 1, 3]


def test_the_least_slack_goes_first() -> None:
    """Slack is the time to the deadline less the time for what is asked: a long answer must begin earlier."""
    ranking = make_ranking("slack", itl_target_s=0.04, patience_s=30.0)
    requests = [
        enter(ranking, 0, deadline_s=10.0, max_tokens=100),
        enter(ranking, 1, deadline_s=11.0, max_tokens=200),
        enter(ranking, 2, deadline_s=4.0, max_tokens=10),
        enter(ranking, 3),
        enter(ranking, 4, arrival_s=-10.0),
    ]
    assert requests[0].rank_s == pytest.approx(10.0 - 100 * 0.04 - 10 * PROMPT_TOKEN_S)
    assert order(ranking, requests) == [1, 2, 0, 4, 3]


def test_requests_of_a_run_stand_together() -> None:
    """A request joins the most urgent one of its run in the engine; when that run has none left, it stands alone."""
    ranking = make_ranking("slack")
    urgent = enter(ranking, 0, deadline_s=5.0, run_id="a")
    other = enter(ranking, 1, deadline_s=8.0, run_id="b")
    sibling = enter(ranking, 2, deadline_s=20.0, run_id="a")
    assert order(ranking, [urgent, other, sibling]) == [0, 2, 1]
    ranking.leave(urgent)
    ranking.leave(sibling)
    assert order(ranking, [other, enter(ranking, 3, deadline_s=20.0, run_id="a")]) == [1, 3]


def test_a_run_keeps_its_age_while_it_is_elsewhere() -> None:
    """A request of a run that began earlier goes before one that came first itself: a run ages, not its single calls."""
    ranking = make_ranking("slack", patience_s=30.0)
    ranking.leave(enter(ranking, 0, run_id="old"))
    new = enter(ranking, 1, arrival_s=5.0, run_id="new")
    assert order(ranking, [new, enter(ranking, 2, arrival_s=20.0, run_id="old")]) == [2, 1]


def test_a_run_that_never_ends_gets_no_ever_larger_head_start() -> None:
    """The age of a run counts up to ``patience_s``, so one run id for everything does not shut out the others."""
    ranking = make_ranking("slack", patience_s=30.0)
    first = enter(ranking, 0, run_id="for ever")
    waiting = enter(ranking, 1, arrival_s=1000.0)
    late = [enter(ranking, 2 + n, arrival_s=1000.0 + 10 * n, run_id="for ever") for n in range(8)]
    assert order(ranking, [first, waiting, *late]) == [0, 2, 3, 4, 1, 5, 6, 7, 8, 9]


def test_runs_that_are_gone_are_forgotten() -> None:
    """What is remembered of runs is bounded."""
    ranking = make_ranking("slack")
    for number in range(MAX_KNOWN_RUNS + 50):
        ranking.leave(enter(ranking, number, run_id=str(number)))
    assert len(ranking._runs) == MAX_KNOWN_RUNS


def test_short_prompts_pass_but_deadlines_do_not_wait_for_them() -> None:
    """A token more to compute is ``prompt_token_wait_s`` more of a wait, but not under slack for one with a deadline."""
    for policy, deadline_s, expected in (("fcfs", None, [1, 0]), ("slack", None, [1, 0]), ("slack", 9.0, [0, 1])):
        ranking = Ranking(EngineConfig(policy=policy, prompt_token_wait_s=0.001))  # type: ignore[arg-type]
        long = enter(ranking, 0, num_prompt=3000, deadline_s=deadline_s)
        short = enter(ranking, 1, arrival_s=0.5, num_prompt=10, deadline_s=deadline_s)
        assert order(ranking, [long, short]) == expected
        assert sorted([1, 0], key=lambda number: ranking.prompt_order([long, short][number])) == expected


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=200, deadline=None)
@given(
    mine=st.fixed_dictionaries({}, optional={"priority": st.integers(-200, 200), "run_id": st.just("mine")}),
    others=st.lists(
        st.tuples(
            st.floats(0, 1e5),
            st.integers(1, 4000),
            st.fixed_dictionaries(
                {},
                optional={
                    "priority": st.integers(-(10**9), 10**9),
                    "deadline_s": st.floats(-1e9, 1e9),
                    "run_id": st.sampled_from(["a", "mine"]),
                },
            ),
        )
    ),
)
def test_nobody_is_overtaken_for_ever(
    policy: PolicyName, mine: dict[str, object], others: list[tuple[float, int, dict[str, object]]]
) -> None:
    """Whatever others ask for, those who come a bounded time after a request stand behind it."""
    config = EngineConfig(policy=policy)
    ranking = Ranking(config)
    request = enter(ranking, 0, num_prompt=4000, max_tokens=4000, **mine)
    own_s = 4000 * (config.itl_target_s + config.prompt_token_wait_s + PROMPT_TOKEN_S)
    bound_s = own_s + 2 * MAX_PRIORITY * config.priority_step_s + 2 * config.patience_s
    for number, (arrival_s, length, scheduling) in enumerate(sorted(others, key=lambda other: other[0]), start=1):
        other = enter(ranking, number, arrival_s=arrival_s, num_prompt=length, max_tokens=length, **scheduling)
        if arrival_s > bound_s:
            assert ranking.queue_order(request) < ranking.queue_order(other)


def test_a_policy_that_is_unknown_is_refused() -> None:
    """A malformed setting names itself and what is possible."""
    with pytest.raises(ConfigError, match="policy is 'edf'; expected one of fcfs, priority, slack"):
        EngineConfig(policy="edf")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"itl_target_s is 0; expected a number from 0\.001 to 60"):
        EngineConfig(itl_target_s=0)
