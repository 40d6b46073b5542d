"""What running an action does to the world, and whether running it again would give the same.

Only what certainly does nothing may be left out, and only what certainly gives the same may be shared; so what nothing is
known of counts as writing: a tool that is not registered, a function, a person who is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agentrt.declare.action import Action
from agentrt.declare.agent import Agent
from agentrt.declare.call import Call, DagCall, HumanCall, LlmCall, ToolCall
from agentrt.declare.dag import Dag
from agentrt.declare.policy import Effects
from agentrt.tools.registry import ToolRegistry

_BY_WEIGHT = (Effects.NONE, Effects.IDEMPOTENT, Effects.WRITE)


class ActionEffects:
    """Answers for the actions of one Dag; what it found out of Dags inside is kept."""

    def __init__(self, dag: Dag, tools: ToolRegistry | None) -> None:
        self._agents = dag.agents
        self._tools = tools
        self._of_dags: dict[int, Effects] = {}
        self._steady_dags: dict[int, bool] = {}

    def of(self, action: Action) -> Effects:
        """Return the worst it may do, its fallback and what it writes to the state included."""
        return Effects.WRITE if action.writes else self._of_work(action)

    def is_steady(self, action: Action) -> bool:
        """Whether a second run with the same values would give the same output."""
        return _reads_values_alone(action) and all(self._is_steady_call(c, self._agents) for c in _calls(action))

    def _of_work(self, action: Action) -> Effects:
        main = action.effects or self._of_call(action.call)
        fallback = action.fallback.call if action.fallback else None
        return main if fallback is None else _worst((main, self._of_call(fallback)))

    def _of_call(self, call: Call) -> Effects:
        match call:
            case LlmCall():
                return Effects.NONE
            case ToolCall() if self._tools is not None and call.tool in self._tools:
                return Effects(self._tools[call.tool].effects)
            case DagCall():
                key = id(call.dag)
                if key not in self._of_dags:
                    # Its state is its own: what its actions write there stays inside.
                    self._of_dags[key] = _worst(self._of_work(action) for action in call.dag.actions.values())
                return self._of_dags[key]
        return Effects.WRITE

    def _is_steady_call(self, call: Call, agents: Mapping[str, Agent]) -> bool:
        match call:
            case LlmCall():
                agent = agents.get(call.agent)
                parameters = {**(agent.parameters if agent else {}), **call.parameters}
                return bool(parameters.get("temperature", 0) == 0)
            case DagCall():
                key = id(call.dag)
                if key not in self._steady_dags:
                    self._steady_dags[key] = not call.dag.state and all(
                        _reads_values_alone(action) and self._is_steady_call(inner, call.dag.agents)
                        for action in call.dag.actions.values()
                        for inner in _calls(action)
                    )
                return self._steady_dags[key]
            case HumanCall():
                return False
        return True


def _calls(action: Action) -> Iterator[Call]:
    yield action.call
    if action.fallback is not None and action.fallback.call is not None:
        yield action.fallback.call


def _reads_values_alone(action: Action) -> bool:
    """Whether what it reads does not depend on the moment: no shared state, and no race among its sources."""
    return action.join.waits_for_all and all(reference.kind != "state" for reference in action.references)


def _worst(effects: Iterable[Effects]) -> Effects:
    return max(effects, key=_BY_WEIGHT.index, default=Effects.NONE)
