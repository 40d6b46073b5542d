"""What is left out of a Dag, what stays, and why."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentrt.compile.graph import children_of, edges_of
from agentrt.compile.plan import plan
from agentrt.compile.prune import PruneCause, Pruned, fuse, prune_dag
from agentrt.declare.dag import Dag
from agentrt.declare.dag_file import load_dag_file, parse_dag
from agentrt.run.events import RunStatus
from agentrt.tools.registry import ToolRegistry
from agentrt.tools.tool import Tool
from tests.support.prunable_dags import ScriptedModels, run_plan
from tests.support.virtual_time import run_in_virtual_time

REFERENCE = Path(__file__).parent / "fixtures" / "reference_27_41.yaml"
TOOLS = ToolRegistry(
    [
        Tool("look", print, effects="none"),
        Tool("put", print, effects="idempotent"),
        Tool("act", print),
        Tool("fill", print, effects="none", action_type="format"),
        Tool("fetch", print, effects="none", action_type="http"),
    ]
)
HEAD = """
name: t
inputs: {tier: {enum: [basic, gold]}, n: integer}
agents: {clerk: {model: smollm2-135m}}
"""


def dag_with(
    actions: str, *, outputs: str = "{x: '{{ actions.last.output }}'}", head: str = HEAD, base_dir: Path | None = None
) -> Dag:
    return parse_dag(f"{head}\noutputs: {outputs}\nactions:\n{actions}", base_dir=base_dir)


def pruned_of(dag: Dag, known: dict[str, Any] | None = None) -> dict[str, Pruned]:
    return {each.action: each for each in prune_dag(dag, TOOLS, known or {})[1]}


def edges_left(dag: Dag, known: dict[str, Any] | None = None) -> set[str]:
    kept, _ = prune_dag(dag, TOOLS, known or {})
    return {f"{edge.source}>{edge.target}" for edges in edges_of(kept).values() for edge in edges}


# -- the reference's example


def support_tools(log: list[str]) -> ToolRegistry:
    """Return the tools of the reference's example; those that write put what they were given into ``log``."""

    def makes(name: str, result: Any = None, *, writes: bool = False) -> Tool:
        async def function(**arguments: Any) -> Any:
            if writes:
                log.append(f"{name} {sorted(arguments.items())}")
            return result if result is not None else f"{name} of {sorted(arguments.items())}"

        return Tool(name, function, effects="write" if writes else "none")

    reading = ["clean_text", "detect_language", "search_faq", "search_policies", "rank", "customer_record", "shipments"]
    reading += ["list_facts", "best_offer", "offer_text", "keywords", "trend", "join_texts", "check_tone"]
    writing = ["pay_back", "send", "log"]
    return ToolRegistry(
        [
            *(makes(name) for name in [*reading, "check_claims", "order_history"]),
            makes("refund_due", 12),
            *(makes(name, writes=True) for name in writing),
        ]
    )


def test_the_reference_example_loses_what_the_reference_says() -> None:
    """27 actions and 41 edges become 19 and 26: by name, cause and reason."""
    planned = plan(load_dag_file(REFERENCE), support_tools([]), known_inputs={"tier": "basic"})
    assert (len(planned.declared.actions), planned.num_declared_edges) == (27, 41)
    assert (len(planned.dag.actions), len(planned.edges)) == (19, 26)
    unread = "reads it, and it writes nothing"
    assert planned.pruned == (
        Pruned("clean_again", PruneCause.DUPLICATE, "it does the same as 'clean'", "clean"),
        Pruned("refund_orders", PruneCause.DUPLICATE, "it does the same as 'orders'", "orders"),
        Pruned("gold_offer", PruneCause.NEVER_RUNS, "its condition never holds: inputs.tier == 'gold'"),
        Pruned("gold_text", PruneCause.NEVER_RUNS, "it waits for 'gold_offer', which never runs"),
        Pruned("warm_cache", PruneCause.UNUSED, f"nothing {unread}"),
        Pruned("keywords", PruneCause.UNUSED, f"nothing that is left {unread}"),
        Pruned("trend", PruneCause.UNUSED, f"nothing {unread}"),
        Pruned("facts_to_check", PruneCause.DUPLICATE, "it does the same as 'facts'", "facts"),
    )


def test_the_reference_example_gives_the_same_pruned() -> None:
    """Its outputs and what it sends, logs and pays back are the same with 19 actions as with 27."""
    results = []
    for prune in (False, True):
        log: list[str] = []
        tools = support_tools(log)
        planned = plan(load_dag_file(REFERENCE), tools, known_inputs={"tier": "basic"}, prune=prune)
        models = ScriptedModels(lambda prompt: "refund" if prompt.startswith("What is") else prompt)
        inputs = {"ticket": "Where is my money?", "customer_id": 7, "tier": "basic"}
        result = run_in_virtual_time(partial(run_plan, planned, tools, inputs, models))
        assert (result.status, result.error) == (RunStatus.SUCCEEDED, None)
        results.append((result.outputs, sorted(log), models.num_requests))
    assert results[0][:2] == results[1][:2]
    assert len(results[0][1]) == 3
    assert results[0][2] == results[1][2] == 3


# -- what never runs


def test_a_branch_whose_condition_cannot_hold_goes_with_what_waits_for_it() -> None:
    """
    a -x-> b --> c      b's condition is false for the known input; c waits for b; last does not need c.
    `----------> last
    """
    dag = dag_with("""
      a: {uses: tool/act}
      b: {uses: tool/act, needs: a, if: "inputs.tier == 'gold'"}
      c: {uses: tool/act, with: {b: '{{ actions.b.output }}'}}
      last: {uses: tool/look, with: {a: '{{ actions.a.output }}'}}
    """)
    assert pruned_of(dag) == {}
    gone = pruned_of(dag, {"tier": "basic"})
    assert [(each.action, each.cause) for each in gone.values()] == [("b", "never_runs"), ("c", "never_runs")]
    assert edges_left(dag, {"tier": "basic"}) == {"a>last"}


@pytest.mark.parametrize("condition", ["false", "inputs.tier == 'silver'", "inputs.n > 3 && inputs.tier == 'gold'"])
def test_constants_schemas_and_parts_settle_conditions(condition: str) -> None:
    """A condition goes by what it says, by the values that the schema allows, and by one part that decides it."""
    dag = dag_with(f'  off: {{uses: tool/act, if: "{condition}"}}\n  last: {{uses: tool/look}}')
    assert pruned_of(dag, {"tier": "basic"})["off"].reason == f"its condition never holds: {condition}"


def test_a_condition_that_always_holds_is_dropped_and_its_order_stays() -> None:
    """Who was waited for because a condition read it is still waited for: it may be skipped, or fail."""
    dag = dag_with("""
      a: {uses: tool/look, if: inputs.n > 3}
      last: {uses: tool/look, if: "inputs.tier == 'basic' || actions.a.output == 1"}
    """)
    kept, pruned = prune_dag(dag, TOOLS, {"tier": "basic"})
    assert kept.actions["last"].guard is None
    assert (kept.actions["last"].needs, pruned) == (frozenset({"a"}), ())


def test_the_guard_of_an_edge_decides_as_well() -> None:
    """One edge that is dead is enough for an action that waits for all; a guard that always holds is taken off."""
    dag = dag_with("""
      a: {uses: tool/look}
      off: {uses: tool/act}
      last: {uses: tool/act}
      """ + """
edges:
  - {from: a, to: off, guard: "inputs.tier == 'gold'"}
  - {from: a, to: last, guard: "inputs.tier == 'basic'"}
""")  # fmt: skip
    kept, pruned = prune_dag(dag, TOOLS, {"tier": "basic"})
    assert [each.reason for each in pruned] == ["the guard of its edge from 'a' never holds: inputs.tier == 'gold'"]
    assert [(edge.source, edge.target, edge.guard) for edge in kept.edges] == [("a", "last", None)]


def test_a_join_of_any_does_without_a_dead_branch() -> None:
    """An action that takes what comes loses the edge from what never runs, and nothing else."""
    dag = dag_with("""
      a: {uses: tool/look}
      b: {uses: tool/look, if: "inputs.tier == 'gold'"}
      last: {join: any, uses: tool/look, with: {all: ['{{ actions.a.output }}', '{{ actions.b.output }}']}}
    """)
    assert pruned_of(dag, {"tier": "basic"}).keys() == {"b"}
    assert edges_left(dag, {"tier": "basic"}) == {"a>last"}


def test_a_condition_on_what_never_runs_is_settled() -> None:
    """Of an action that never runs it is known that it is skipped and that its output is null."""
    dag = dag_with("""
      off: {uses: tool/look, if: "inputs.tier == 'gold'", optional: true}
      instead: {uses: tool/look, if: actions.off.status == 'skipped'}
      also: {uses: tool/act, if: actions.off.output != null}
      last: {uses: tool/look, with: {x: '{{ actions.instead.output }}'}}
    """)
    kept, pruned = prune_dag(dag, TOOLS, {"tier": "basic"})
    assert [each.action for each in pruned] == ["off", "also"]
    assert kept.actions["instead"].guard is None


def test_an_optional_action_that_never_runs_stays_where_it_keeps_an_order() -> None:
    """
    charge -> off (optional, never runs) -> last      last must not begin before charge has succeeded
    """
    actions = """
      charge: {uses: tool/act}
      off: {uses: tool/look, needs: charge, optional: true, if: "inputs.tier == 'gold'"}
      last: {uses: tool/act, needs: off}
    """
    assert pruned_of(dag_with(actions), {"tier": "basic"}) == {}
    assert edges_left(dag_with(actions), {"tier": "basic"}) == {"charge>off", "off>last"}
    other_way = dag_with(actions.replace("needs: off", "needs: [off, charge]"))
    assert pruned_of(other_way, {"tier": "basic"}).keys() == {"off"}
    assert edges_left(other_way, {"tier": "basic"}) == {"charge>last"}


def test_an_optional_action_that_never_runs_stays_where_it_is_counted() -> None:
    """For ``n_of`` the edge from a skipped optional action is a live one: the join would want another without it."""
    dag = dag_with("""
      off: {uses: tool/look, optional: true, if: "inputs.tier == 'gold'"}
      a: {uses: tool/look}
      b: {uses: tool/look, with: {q: 1}}
      last: {uses: tool/look, join: {n_of: 2}, needs: [off, a, b]}
    """)
    kept, pruned = prune_dag(dag, TOOLS, {"tier": "basic"})
    assert (pruned, kept.actions["last"]) == ((), dag.actions["last"])


def test_an_action_kept_for_order_never_runs_though_what_stopped_it_is_gone() -> None:
    """
    a --> off (optional) --> last       off waits for dead, which goes; without it off would run
    dead -´
    """
    dag = dag_with("""
      a: {uses: tool/act}
      dead: {uses: tool/act, if: "false"}
      off: {uses: tool/act, optional: true, needs: [a, dead]}
      last: {uses: tool/act, needs: off}
    """)
    kept, pruned = prune_dag(dag, TOOLS, {})
    assert [each.action for each in pruned] == ["dead"]
    guard = kept.actions["off"].guard
    assert guard is not None
    assert not guard.holds({"inputs": {}, "actions": {}, "state": {}})


# -- what nobody uses


def test_what_nobody_reads_goes_link_by_link() -> None:
    """An isolated action and a branch that ends in nothing go; what is an output, or written to the world, stays."""
    dag = dag_with("""
      alone: {uses: tool/look}
      first: {uses: tool/look, with: {q: 1}}
      second: {prompt: "{{ actions.first.output }}"}
      kept: {uses: tool/look, with: {q: 2}}
      sent: {uses: tool/act, with: {x: '{{ actions.kept.output }}'}}
      stored: {uses: tool/put}
      unknown: {uses: tool/look, effects: write}
      last: {uses: tool/look, with: {q: 3}}
    """)
    gone = pruned_of(dag)
    assert gone.keys() == {"alone", "first", "second"}
    assert gone["first"].reason == "nothing that is left reads it, and it writes nothing"
    assert gone["second"].reason == "nothing reads it, and it writes nothing"


def test_without_tools_every_tool_is_taken_to_write() -> None:
    """What nothing is known of stays; an llm action acts on nothing and goes."""
    dag = dag_with("  a: {uses: tool/look}\n  b: {prompt: hello}\n  last: {uses: tool/look}")
    assert [each.action for each in prune_dag(dag, None, {})[1]] == ["b"]


@pytest.mark.parametrize(
    "what",
    ["fallback: {uses: tool/act}", "writes: {seen: '{{ actions.a.output }}'}", "effects: idempotent"],
)
def test_everything_an_action_may_do_counts(what: str) -> None:
    """A fallback that writes, a change of the state, and what is harmless to repeat are all something done."""
    dag = dag_with(
        f"  a: {{uses: tool/look, {what}}}\n  last: {{uses: tool/look, with: {{q: 1}}}}",
        head=HEAD + "state: {seen: {}}\n",
    )
    assert pruned_of(dag) == {}


def test_a_dag_inside_counts_as_the_worst_of_its_actions(tmp_path: Path) -> None:
    """A Dag that only looks may go; one in which anything writes stays."""
    for name, tool in (("looks", "look"), ("acts", "act")):
        inner = f"name: {name}\noutputs: {{o: '{{{{ actions.b.output }}}}'}}\n"
        inner += f"actions:\n  a: {{uses: tool/{tool}}}\n  b: {{uses: tool/look}}\n"
        (tmp_path / f"{name}.yaml").write_text(inner)
    dag = dag_with(
        "  a: {uses: dag/looks.yaml}\n  b: {uses: dag/acts.yaml}\n  last: {uses: tool/look}", base_dir=tmp_path
    )
    assert pruned_of(dag).keys() == {"a"}


# -- what does the same


def test_equal_actions_are_shared_and_so_are_those_that_read_either() -> None:
    """
    a  -> b  -> last      a2 is a's equal, and b2, which reads a2 where b reads a, is b's
    a2 -> b2 ---^
    """
    dag = dag_with("""
      a: {uses: tool/look, with: {q: '{{ inputs.n }}'}}
      a2: {uses: tool/look, with: {q: '{{inputs.n}}'}}
      b: {prompt: "Say {{ actions.a.output }}"}
      b2: {prompt: "Say {{ actions.a2.output }}"}
      last: {uses: tool/look, with: {b: '{{ actions.b.output }}', b2: '{{ actions.b2.output }}'}}
    """)
    assert {name: each.into for name, each in pruned_of(dag).items()} == {"a2": "a", "b2": "b"}
    assert edges_left(dag) == {"a>b", "b>last"}


def test_an_action_right_after_its_equal_is_shared() -> None:
    """a -> b -> c, all the same, each after the one before for order alone: one is left, and last waits for it."""
    dag = dag_with("""
      before: {uses: tool/act}
      a: {uses: tool/look, needs: before}
      b: {uses: tool/look, needs: a}
      c: {uses: tool/look, needs: b}
      last: {uses: tool/act, with: {c: '{{ actions.c.output }}'}}
    """)
    assert {name: each.into for name, each in pruned_of(dag).items()} == {"b": "a", "c": "a"}
    assert edges_left(dag) == {"before>a", "a>last"}


@pytest.mark.parametrize(
    "second",
    [
        "{uses: tool/look, with: {q: 2}}",
        "{uses: tool/look, with: {q: 1.0}}",
        "{uses: tool/look, with: {q: true}}",
        "{uses: tool/look, with: {q: 1}, needs: x}",
        "{uses: tool/look, with: {q: 1}, if: inputs.n > 1}",
        "{uses: tool/look, with: {q: 1}, timeout: 1s}",
        "{uses: tool/look, with: {q: 1}, retry: 2}",
        "{uses: tool/look, with: {q: 1}, optional: true}",
        "{uses: tool/look, with: {q: 1}, fallback: {value: 3}}",
        "{uses: tool/look, with: {q: 1}, for_each: [1, 2]}",
        "{uses: tool/look, with: {q: 1}, type: rerank}",
        "{uses: tool/fill, with: {q: 1}}",
    ],
)
def test_actions_that_differ_in_anything_are_not_shared(second: str) -> None:
    """A value, its type, an order, a condition, a policy or the tool makes them different."""
    dag = dag_with(f"""
      x: {{uses: tool/act}}
      a: {{uses: tool/look, with: {{q: 1}}}}
      b: {second}
      last: {{uses: tool/act, with: {{a: '{{{{ actions.a.output }}}}', b: '{{{{ actions.b.output }}}}'}}}}
    """)
    assert pruned_of(dag) == {}


@pytest.mark.parametrize(
    ("action", "is_shared"),
    [
        ("{uses: tool/act}", False),
        ("{uses: tool/put}", False),
        ("{uses: tool/look, with: {q: '{{ state.seen }}'}}", False),
        ("{prompt: hi}", True),
        ("{prompt: hi, with: {temperature: 0}}", True),
        ("{prompt: hi, with: {temperature: 0.7}}", False),
        ("{human: Shall I?}", False),
    ],
)
def test_only_what_gives_the_same_each_time_is_shared(action: str, is_shared: bool) -> None:
    """Nothing that writes, draws its tokens, asks a person, or reads a state that may change in between."""
    dag = dag_with(
        f"  a: {action}\n  b: {action}\n"
        "  last: {uses: tool/act, with: {a: '{{ actions.a.output }}', b: '{{ actions.b.output }}'}}",
        head=HEAD + "state: {seen: {}}\n",
    )
    assert pruned_of(dag).keys() == ({"b"} if is_shared else set())


def test_an_agents_own_temperature_counts() -> None:
    """What the agent says holds where the action says nothing."""
    head = HEAD.replace("smollm2-135m}", "smollm2-135m, with: {temperature: 1}}")
    actions = "  a: {prompt: hi}\n  b: {prompt: hi}\n  last: {uses: tool/act, needs: [a, b]}"
    assert pruned_of(dag_with(actions, head=head)) == {}


@pytest.mark.parametrize("join", ["first_success", "{n_of: 2}"])
def test_a_race_keeps_both_of_its_sources(join: str) -> None:
    """Two of the same are two that may win."""
    dag = dag_with(f"""
      a: {{uses: tool/look}}
      b: {{uses: tool/look}}
      last: {{uses: tool/act, join: {join}, needs: [a, b]}}
    """)
    assert pruned_of(dag) == {}


def test_edges_with_different_guards_keep_both_of_their_sources() -> None:
    """One edge cannot carry the guards of two."""
    dag = dag_with(
        "  a: {uses: tool/look}\n  b: {uses: tool/look}\n  last: {uses: tool/act, needs: a}\n"
        + """
edges: [{from: b, to: last, guard: inputs.n > 1}]
"""
    )
    assert pruned_of(dag) == {}


def test_the_edge_of_a_duplicate_goes_over_with_its_guard() -> None:
    """Its target counts on the one that stands in under the same condition."""
    dag = dag_with("  a: {uses: tool/look}\n  b: {uses: tool/look}\n  x: {uses: tool/act, needs: a}\n"
        "  last: {uses: tool/act}\nedges: [{from: b, to: last, guard: inputs.n > 1}]\n")  # fmt: skip
    kept, _ = prune_dag(dag, TOOLS, {})
    assert [(edge.source, edge.target, str(edge.guard and edge.guard.source)) for edge in kept.edges] == [
        ("a", "last", "inputs.n > 1")
    ]


def test_a_dag_with_nothing_to_prune_is_left_as_it_is() -> None:
    """The very same Dag comes back."""
    dag = dag_with("  a: {uses: tool/act}\n  last: {prompt: '{{ actions.a.output }}'}")
    assert prune_dag(dag, TOOLS, {})[0] is dag


# -- chains that are scheduled as one


def units_of(actions: str) -> tuple[tuple[str, ...], ...]:
    dag = dag_with(actions)
    incoming = edges_of(dag)
    return fuse(dag, incoming, children_of(incoming), TOOLS)


def test_chains_of_cheap_actions_are_fused_as_far_as_they_go() -> None:
    """
    a -> b -> c -> ask -> d -> e     cheap by type, by the tool's own type, or by the declared p99; ask is a model
    """
    units = units_of("""
      a: {uses: tool/fill}
      b: {uses: tool/look, type: validate, needs: a}
      c: {uses: tool/look, latency: {p50: 1ms, p99: 5ms}, needs: b}
      ask: {prompt: hi, needs: c}
      d: {uses: tool/fill, needs: ask}
      last: {uses: tool/fill, needs: d}
    """)
    assert units == (("a", "b", "c"), ("d", "last"))


@pytest.mark.parametrize(
    "second",
    [
        "{uses: tool/look, needs: a}",
        "{uses: tool/fill, needs: [a, x]}",
        "{uses: tool/fill, needs: a, for_each: [1]}",
        "{uses: tool/fill, needs: a, join: any}",
        "{uses: tool/fill, needs: a, retry: 2}",
        "{uses: tool/fill, needs: a, latency: {p50: 1ms, p99: 6ms}}",
        "{uses: tool/fetch, needs: a, latency: {p50: 1ms, p99: 2ms}}",
        "{uses: tool/fill, needs: a, fallback: {prompt: hi}}",
        "{human: ok?, needs: a}",
    ],
)
def test_what_may_wait_is_scheduled_by_itself(second: str) -> None:
    """Nothing with a second source, another join, several items, retries, or work that is far away or long."""
    assert units_of(f"  x: {{uses: tool/look}}\n  a: {{uses: tool/fill}}\n  last: {second}") == ()


def test_a_chain_ends_where_it_forks() -> None:
    """Two that wait for the same action could run at the same time."""
    assert (
        units_of("  a: {uses: tool/fill}\n  b: {uses: tool/fill, needs: a}\n  last: {uses: tool/fill, needs: a}") == ()
    )
