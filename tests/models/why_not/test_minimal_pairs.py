"""What each rule of the problem is worth: the least cost before and after it, by every method.

A pair is two snapshots that differ in one thing. In the first a rule costs nothing, in the
second it costs nodes. The MILP also leaves the rule out of the second, which gives the first
cost again. Below, by every method, the facts of FORMULATION section 4 on precedence and pins.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import pytest

from builders import PAIR_USD, ROLLOUT_USD, cluster_of
from instances.checker import check_group
from instances.plan import GroupVersion, JobPlacement
from models.backends.pyomo_highs import Ended, options_of
from models.backends.pyomo_highs import solve as run_highs
from models.exact.methods import METHODS, solve
from models.exact.milp import OMISSIBLE, build
from models.group.group_cost import GroupCost
from models.problem.options import SolveOptions
from models.problem.result import Result, Termination
from models.problem.snapshot import Snapshot
from small_snapshots import (
    FIVE_FRONT,
    PRECEDENCE,
    five_gangs,
    gangs_that_all_meet,
    jobs_of,
    snapshot_of,
)

OPTIONS: Final = SolveOptions()
Fleet = tuple[int, int]  # rollout nodes, train nodes


def fleet_of(result: Result) -> Fleet:
    assert result.plan is not None
    groups = result.plan.groups
    return sum(len(g.rollout_nodes) for g in groups), sum(len(g.train_nodes) for g in groups)


def sizes_of(result: Result) -> list[int]:
    assert result.plan is not None
    return sorted(len(group.placements) for group in result.plan.groups)


def assert_least(method: str, snapshot: Snapshot, fleet: Fleet) -> Result:
    """The method proves that this fleet is the cheapest."""
    result = solve(method, snapshot, OPTIONS)
    assert result.termination is Termination.OPTIMAL
    assert fleet_of(result) == fleet
    assert result.usd_per_hour == pytest.approx(snapshot.usd_per_hour(*fleet), rel=1e-9)
    return result


def assert_infeasible(method: str, snapshot: Snapshot) -> None:
    result = solve(method, snapshot, OPTIONS)
    assert (result.termination, result.plan) == (Termination.INFEASIBLE, None)


def relaxed_usd(snapshot: Snapshot, without: Collection[str]) -> Any:
    """Return the optimum of the MILP without some families of constraints, $/h."""
    return highs_usd(build(snapshot, without=without))


def highs_usd(model: Any) -> Any:
    found = run_highs(model, options_of(), OPTIONS.start())
    assert found.ended is Ended.OPTIMAL
    assert found.objective is not None
    return pytest.approx(found.objective)


# --- one pair for each rule -------------------------------------------------------------------

_LONG_ROLLOUTS: Final = jobs_of((4, 4), (1, 1), deadline_s=5)
_LONG_TRAINS: Final = jobs_of((1, 1), (4, 4), deadline_s=5)
_ALIKE: Final = jobs_of((1,) * 4, (1,) * 4, deadline_s=8)
_DEAR_ROLLOUTS: Final = cluster_of(rollout_usd=40.0, train_usd=1.0)


@dataclass(frozen=True)
class Pair:
    """``without``: the families of the MILP that are the rule."""

    rule: str
    why: str
    free: Snapshot
    free_fleet: Fleet
    bound: Snapshot
    bound_fleet: Fleet
    without: frozenset[str]

    def __str__(self) -> str:
        return self.rule


def _stateful(rollout_gb: tuple[int, int], train_gb: tuple[int, int], dram_gb: float) -> Snapshot:
    """Two jobs that have time to share everything."""
    jobs = jobs_of(
        (1, 1), (1, 1), deadline_s=4, rollout_state_gb=rollout_gb, train_state_gb=train_gb
    )
    return snapshot_of(jobs, cluster=cluster_of(host_dram_gb=dram_gb))


def _switching(rollout_s: float, train_s: float) -> Snapshot:
    """Two jobs (2, 2), slo 1, that fill one node of each kind by turns, with switches."""
    return snapshot_of(
        jobs_of((2, 2), (2, 2), rollout_switch_s=(rollout_s,) * 2, train_switch_s=(train_s,) * 2)
    )


def _late(deadline_s: float) -> Snapshot:
    """A job (2, 2) of this deadline beside one of T = 5 s and deadline 7 s."""
    return snapshot_of(jobs_of((2, 1), (2, 1), (0, 3), slo=(deadline_s / 4, 7 / 5)))


PAIRS: Final = (
    Pair(
        "group size",
        "Four jobs of 1 + 1 s within 8 s share one node of each kind; in twos they need two.",
        *(snapshot_of(_ALIKE, size=4), (1, 1)),
        *(snapshot_of(_ALIKE, size=2), (2, 2)),
        frozenset({"group_size"}),
    ),
    Pair(
        "gang",
        "Five rollouts of 1 s within 2.5 s, at most two to a node: three nodes. On two nodes each "
        "there are ten pins, so five nodes: a cycle of five, 2.5 s (below).",
        *(snapshot_of(jobs_of((1,) * 5, (0.25,) * 5, deadline_s=2.5)), (3, 1)),
        *(snapshot_of(five_gangs(2.5)), (5, 1)),
        frozenset({"gang"}),
    ),
    Pair(
        "residency of rollouts",
        "1200 + 800 GB are just the 2000 GB of a node; one GB more needs a second.",
        *(_stateful((1200, 800), (0, 0), 2000), (1, 1)),
        *(_stateful((1200, 801), (0, 0), 2000), (2, 1)),
        frozenset({"residency"}),
    ),
    Pair(
        "residency of trains",
        "The same states, and a GB less in a node.",
        *(_stateful((0, 0), (1200, 800), 2000), (1, 1)),
        *(_stateful((0, 0), (1200, 800), 1999), (1, 2)),
        frozenset({"residency"}),
    ),
    Pair(
        "load",
        "Rollouts of 2.5 + 2.5 s fill a node within 5 s, trains of 1 s are at 2.5 and 0 s. Half a "
        "second more needs a second node.",
        *(snapshot_of(jobs_of((2.5, 2.5), (1, 1), deadline_s=5)), (1, 1)),
        *(snapshot_of(jobs_of((2.5, 3), (1, 1), deadline_s=5)), (2, 1)),
        frozenset({"no_overlap", "node_load"}),
    ),
    Pair(
        "no overlap",
        "Gangs on three nodes of which any two meet: rollouts take 34 s by turns, though no node "
        "need hold more than 31 s. Within 33 s a fourth node lets two of them run at once.",
        *(snapshot_of(gangs_that_all_meet(34)), (3, 1)),
        *(snapshot_of(gangs_that_all_meet(33)), (4, 1)),
        frozenset({"no_overlap"}),
    ),
    Pair(
        "precedence",
        "Rollouts take 11 s and trains too, and the least period on one node of each is 11.5 s.",
        *(snapshot_of(jobs_of((5, 5, 1), (2, 3, 6), (2, 3, 0), deadline_s=11.5)), (1, 1)),
        *(snapshot_of(PRECEDENCE), (2, 1)),
        frozenset({"precedence"}),
    ),
    Pair(
        "SLO",
        "Two jobs (3, 1): rollouts of 6 s are within slo 1.5, 6 s, and not within slo 1, 4 s.",
        *(snapshot_of(jobs_of((3, 3), (1, 1), slo=(1.5, 1.5))), (1, 1)),
        *(snapshot_of(jobs_of((3, 3), (1, 1), slo=(1, 1))), (2, 1)),
        frozenset({"slo"}),
    ),
    Pair(
        "SLO of another member",
        "T = 5 s is within 5 s and not within 4 s, a job's deadline: then neither node is shared, "
        "though 3 s of rollouts and 3 s of trains would do.",
        *(_late(5), (1, 1)),
        *(_late(4), (2, 2)),
        frozenset({"slo"}),
    ),
    Pair(
        "rollout switches",
        "On a shared rollout node 4 s and two switches exceed 4 s; alone on one there are none.",
        *(_switching(0, 0), (1, 1)),
        *(_switching(0.5, 0), (2, 1)),
        frozenset({"switches"}),
    ),
    Pair(
        "train switches",
        "As of rollouts.",
        *(_switching(0, 0), (1, 1)),
        *(_switching(0, 0.5), (1, 2)),
        frozenset({"switches"}),
    ),
    Pair(
        "rollout node limit",
        "Rollouts of 4 s within 5 s take a node each, and trains share one. With one rollout node "
        "to a group there are two groups, each with a train node.",
        *(snapshot_of(_LONG_ROLLOUTS, nodes=(2, None)), (2, 1)),
        *(snapshot_of(_LONG_ROLLOUTS, nodes=(1, None)), (2, 2)),
        frozenset({"node_limits"}),
    ),
    Pair(
        "train node limit",
        "As of rollout nodes.",
        *(snapshot_of(_LONG_TRAINS, nodes=(None, 2)), (1, 2)),
        *(snapshot_of(_LONG_TRAINS, nodes=(None, 1)), (2, 2)),
        frozenset({"node_limits"}),
    ),
    Pair(
        "rollout cap",
        "(1, 2) and (2, 1) are possible, (1, 1) is not, and (2, 1) is the cheaper.",
        *(snapshot_of(PRECEDENCE, caps=(2, None)), (2, 1)),
        *(snapshot_of(PRECEDENCE, caps=(1, None)), (1, 2)),
        frozenset({"fleet_caps"}),
    ),
    Pair(
        "train cap",
        "The same at $40/h of a rollout node and $1/h of a train node: (1, 2) is the cheaper.",
        *(snapshot_of(PRECEDENCE, caps=(None, 2), cluster=_DEAR_ROLLOUTS), (1, 2)),
        *(snapshot_of(PRECEDENCE, caps=(None, 1), cluster=_DEAR_ROLLOUTS), (2, 1)),
        frozenset({"fleet_caps"}),
    ),
)
#: Families whose absence changes nothing: implied, or they break symmetry.
IDLE: Final = tuple(name for name, effect in OMISSIBLE.items() if effect.startswith("nothing"))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_rule_costs_nodes(pair: Pair, method: str) -> None:
    assert_least(method, pair.free, pair.free_fleet)
    assert_least(method, pair.bound, pair.bound_fleet)
    assert pair.bound.usd_per_hour(*pair.bound_fleet) > pair.free.usd_per_hour(*pair.free_fleet)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_milp_without_the_rule_costs_what_it_did_before(pair: Pair) -> None:
    before = pair.free.usd_per_hour(*pair.free_fleet)
    assert before == relaxed_usd(pair.bound, pair.without)
    assert before == relaxed_usd(pair.free, pair.without)
    assert before < pair.bound.usd_per_hour(*pair.bound_fleet)


def test_every_family_of_the_milp_has_a_pair_or_changes_nothing() -> None:
    assert set().union(*(pair.without for pair in PAIRS)) | set(IDLE) == set(OMISSIBLE)


@pytest.mark.parametrize("name", IDLE)
def test_families_that_strengthen_the_milp_change_no_optimum(name: str) -> None:
    for pair in PAIRS:
        if len(pair.bound) <= 3:
            assert pair.bound.usd_per_hour(*pair.bound_fleet) == relaxed_usd(pair.bound, {name})


@pytest.mark.parametrize("method", METHODS)
def test_assignment(method: str) -> None:
    """A job that nobody has to place costs nothing: here the second rollout of 4 s within 5 s."""
    assert_least(method, snapshot_of(_LONG_ROLLOUTS[:1]), (1, 1))
    assert_least(method, snapshot_of(_LONG_ROLLOUTS), (2, 1))


def test_the_milp_without_assignment_places_no_one() -> None:
    model = build(snapshot_of(_LONG_ROLLOUTS))
    model.assign[1].deactivate()
    assert highs_usd(model) == PAIR_USD
    model.assign.deactivate()
    assert highs_usd(model) == 0


# --- precedence: loads admit it, no schedule exists -------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_no_method_puts_the_precedence_group_on_one_node_of_each_kind(method: str) -> None:
    """Its front is (1, 2) and (2, 1). Two of its jobs fit a pair of nodes, so with one node of
    each kind to a group a pair more is needed for the third; in the fleet there is none."""
    assert_least(method, snapshot_of(PRECEDENCE), (2, 1))
    assert_least(method, snapshot_of(PRECEDENCE, caps=(1, None)), (1, 2))
    assert_least(method, snapshot_of(PRECEDENCE, caps=(None, 1)), (2, 1))
    assert_infeasible(method, snapshot_of(PRECEDENCE, caps=(1, 1)))
    split = assert_least(method, snapshot_of(PRECEDENCE, nodes=(1, 1)), (2, 2))
    assert sizes_of(split) == [1, 2]


@pytest.mark.parametrize("method", METHODS)
def test_half_a_second_more_lets_the_precedence_group_share(method: str) -> None:
    jobs = jobs_of((5, 5, 1), (2, 3, 6), (2, 3, 0), deadline_s=11.5)
    assert_least(method, snapshot_of(jobs, caps=(1, 1)), (1, 1))


def test_loads_admit_the_precedence_group() -> None:
    """11 s of rollouts, 11 s of trains, iterations of 9, 11 and 7 s."""
    snapshot = snapshot_of(PRECEDENCE)
    cost = GroupCost(snapshot)
    assert cost.rate_vectors((0, 1, 2)) == [(pytest.approx(11), (1, 1, 1))]
    assert cost.least_nodes((0, 1, 2)) == (1, 1)
    assert cost.decide((0, 1, 2), (1, 1)) is None


def test_precedence_is_the_only_rule_that_the_cheaper_plan_breaks() -> None:
    """One node of each kind, rollouts one after the other, trains too: a plan but for precedence,
    as job 1 trains while its rollout runs."""
    snapshot = snapshot_of(PRECEDENCE)
    starts = ((0.0, 6.0), (5.0, 8.0), (10.0, 0.0))
    group = GroupVersion(
        group_id="g",
        from_s=0.0,
        to_s=3600.0,
        period_s=11.0,
        rollout_nodes=(0,),
        train_nodes=(0,),
        placements=tuple(
            JobPlacement(
                job_id=job.job_id, rollout_pins=(0,), train_pins=(0,), starts_s=(pair,), rate=1
            )
            for job, pair in zip(snapshot.jobs, starts, strict=True)
        ),
    )
    found = check_group(group, snapshot.table, snapshot.cluster, snapshot.limits)
    assert {violation.rule for violation in found} == {"precedence"}


def test_what_precedence_is_worth() -> None:
    """A rollout node of $14.80/h on $57.04/h, 26 %; with one node of each kind to a group a whole
    pair, 100 %."""
    free, single = snapshot_of(PRECEDENCE), snapshot_of(PRECEDENCE, nodes=(1, 1))
    for snapshot, worth in ((free, ROLLOUT_USD), (single, PAIR_USD)):
        assert relaxed_usd(snapshot, {"precedence"}) == PAIR_USD
        assert relaxed_usd(snapshot, ()) == PAIR_USD + worth
    # in the fleet it decides whether there is a plan at all
    assert relaxed_usd(snapshot_of(PRECEDENCE, caps=(1, 1)), {"precedence"}) == PAIR_USD


# --- neither pool's least goes with the other's -----------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_five_jobs_have_two_fleets(method: str) -> None:
    """Loads admit (2, 2). (3, 2) is the cheaper of the two that are possible."""
    assert_least(method, snapshot_of(FIVE_FRONT), (3, 2))
    assert_least(method, snapshot_of(FIVE_FRONT, caps=(3, 2)), (3, 2))
    assert_least(method, snapshot_of(FIVE_FRONT, caps=(2, None)), (2, 3))
    assert_least(method, snapshot_of(FIVE_FRONT, caps=(2, 3)), (2, 3))
    assert_infeasible(method, snapshot_of(FIVE_FRONT, caps=(2, 2)))
    assert GroupCost(snapshot_of(FIVE_FRONT)).least_nodes((0, 1, 2, 3, 4)) == (2, 2)


# --- gangs choose their pins ------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("deadline_s", "most", "fleet", "sizes"),
    [(34, 3, (3, 1), [5]), (33, None, (4, 1), [5]), (33, 3, (5, 2), [1, 4])],
)
def test_gangs_that_all_meet(
    method: str, deadline_s: float, most: int | None, fleet: Fleet, sizes: list[int]
) -> None:
    """Widths 3, 2, 3, 2, 2 and rollouts of 5, 3, 11, 6 and 9 s. On three nodes any two meet,
    whatever the pins, so one group takes 34 s. Within 33 s a fourth node lets the gangs of 3 and
    9 s run at once. Three nodes to a group and 33 s: two groups, one of which has a gang of three
    nodes and the other at least two, so (5, 2)."""
    snapshot = snapshot_of(gangs_that_all_meet(deadline_s), nodes=(most, None))
    found = assert_least(method, snapshot, fleet)
    if sizes == [5]:
        assert sizes_of(found) == sizes
    else:
        assert len(sizes_of(found)) == 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("deadline_s", "most", "fleet"),
    [(2.5, 5, (5, 1)), (2.375, None, (6, 1)), (2.375, 5, (6, 2))],
)
def test_five_gangs(method: str, deadline_s: float, most: int | None, fleet: Fleet) -> None:
    """Rollouts of 1 s on two nodes each; below 3 s a node holds two of them, so ten pins take five
    nodes or more. On five, nodes and gangs form cycles: of two gangs (2 s), of three (they meet
    pairwise: 3 s), of four (2 s) and of five (2.5 s). Five gangs in cycles of two and four, in
    one group or more, are impossible, so below 2.5 s there are six nodes or more. A path of six
    nodes takes 2 s. Five nodes to a group: two groups, four gangs on four nodes and one on two,
    each with a train node."""
    assert_least(method, snapshot_of(five_gangs(deadline_s), nodes=(most, None)), fleet)
