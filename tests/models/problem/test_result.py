"""Results: why a method stopped, apart from what it holds; gap, proof and first incumbent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD, cluster_of
from instances.errors import CheckError, FleetPlannerError, InputError
from models.problem.options import SolveOptions
from models.problem.result import (
    OPTIMALITY_REL,
    Conflict,
    SolverInfo,
    StoppedBy,
    Termination,
    first_incumbent,
    proved,
    ratio_of,
    result_of,
    usd_of,
)
from models.problem.snapshot import PlacedGroup, plan_of, solo_group
from small_snapshots import jobs_of, snapshot_of

#: (5, 1) and (1, 5) share one node of each kind in 6 s.
SNAPSHOT = snapshot_of(jobs_of((5, 1), (1, 5)))
SOLO = (solo_group(SNAPSHOT, 0), solo_group(SNAPSHOT, 1))
SHARED = PlacedGroup((0, 1), ((0,), (0,)), ((0,), (0,)), 6.0, (((0.0, 5.0),), ((5.0, 6.0),)))
OPTIONS = SolveOptions(seed=7)
SOLO_USD = 2 * PAIR_USD


# --- the gap ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usd", "bound", "ratio"),
    [
        (None, None, None),
        (None, 5.0, None),
        (5.0, None, None),
        (5.0, 0.0, None),
        (5.0, -1.0, None),
        (0.0, 0.0, 1.0),
        (0.0, -1.0, 1.0),
        (5.3, 5.0, 1.06),
        (5.0, 5.0, 1.0),
    ],
)
def test_the_ratio_is_cost_over_bound_and_unknown_where_that_says_nothing(
    usd: float | None, bound: float | None, ratio: float | None
) -> None:
    assert ratio_of(usd, bound) == (ratio and pytest.approx(ratio))


@pytest.mark.parametrize("usd", [1e-3, 1.0, 500.0])
def test_a_bound_above_the_cost_is_round_off_or_an_error(usd: float) -> None:
    """Relative at any scale: an answer must not depend on the unit of money."""
    slack = OPTIMALITY_REL * usd
    assert ratio_of(usd, usd + 0.9 * slack) == 1.0
    with pytest.raises(FleetPlannerError, match="exceeds the cost"):
        ratio_of(usd, usd + 1.1 * slack)


@pytest.mark.parametrize(
    ("usd", "bound", "is_proved"),
    [
        (None, None, False),
        (None, 5.0, False),
        (5.0, None, False),
        (500.0, 500.0, True),
        (500.0, 500.0 * (1 - 0.9 * OPTIMALITY_REL), True),
        (500.0, 500.0 * (1 - 1.1 * OPTIMALITY_REL), False),
        (0.0, 0.0, True),
    ],
)
def test_a_cost_is_proved_by_a_bound_as_high_up_to_round_off(
    usd: float | None, bound: float | None, is_proved: bool
) -> None:
    assert proved(usd, bound) is is_proved


def test_the_price_of_groups_is_that_of_all_their_nodes() -> None:
    wide = replace(SHARED, rollout_pins=((0,), (1,)))
    assert usd_of(SNAPSHOT, [wide]) == pytest.approx(2 * ROLLOUT_USD + TRAIN_USD)
    assert usd_of(SNAPSHOT, [wide, *SOLO]) == pytest.approx(4 * ROLLOUT_USD + 3 * TRAIN_USD)
    assert usd_of(SNAPSHOT, ()) == 0


# --- why it stopped ---------------------------------------------------------------------------

OPTIMAL, FEASIBLE = Termination.OPTIMAL, Termination.FEASIBLE_LIMIT
INFEASIBLE, NO_PLAN, ERROR = (
    Termination.INFEASIBLE,
    Termination.NO_PLAN_LIMIT,
    Termination.ERROR,
)
TIME, NODES = StoppedBy.TIME, StoppedBy.NODES
NEAR = SOLO_USD * (1 - 0.9 * OPTIMALITY_REL)
BELOW = SOLO_USD * (1 - 2 * OPTIMALITY_REL)


@pytest.mark.parametrize(
    ("groups", "bound", "said", "termination", "stopped_by", "reported_bound"),
    [
        # a plan held, and a bound
        (SOLO, SOLO_USD, {}, OPTIMAL, None, SOLO_USD),
        (SOLO, NEAR, {"stopped_by": TIME}, OPTIMAL, None, SOLO_USD),
        (SOLO, SOLO_USD, {"failed": True}, OPTIMAL, None, SOLO_USD),
        (SOLO, BELOW, {"stopped_by": TIME}, FEASIBLE, TIME, BELOW),
        (SOLO, PAIR_USD, {"stopped_by": NODES}, FEASIBLE, NODES, PAIR_USD),
        (SOLO, None, {"stopped_by": StoppedBy.INTERRUPT}, FEASIBLE, StoppedBy.INTERRUPT, None),
        (SOLO, PAIR_USD, {"failed": True}, ERROR, None, PAIR_USD),
        # no plan held
        (None, None, {"stopped_by": TIME}, NO_PLAN, TIME, None),
        (None, PAIR_USD, {"stopped_by": StoppedBy.WORK}, NO_PLAN, StoppedBy.WORK, PAIR_USD),
        (None, None, {"infeasible": True}, INFEASIBLE, None, None),
        (None, None, {"infeasible": True, "stopped_by": TIME}, INFEASIBLE, None, None),
        (None, 0.0, {"infeasible": True}, INFEASIBLE, None, None),
        (None, None, {"failed": True}, ERROR, None, None),
        (None, None, {"failed": True, "stopped_by": TIME}, ERROR, TIME, None),
    ],
)
def test_termination_follows_from_plan_bound_and_what_the_method_says(
    groups: tuple[PlacedGroup, ...] | None,
    bound: float | None,
    said: dict[str, Any],
    termination: Termination,
    stopped_by: StoppedBy | None,
    reported_bound: float | None,
) -> None:
    result = result_of(SNAPSHOT, OPTIONS, "mine", groups=groups, bound_usd=bound, **said)
    assert (result.termination, result.stopped_by) == (termination, stopped_by)
    assert result.bound_usd_per_hour == (reported_bound and pytest.approx(reported_bound))
    assert (result.plan is None) == (groups is None)
    assert result.usd_per_hour == (groups and pytest.approx(SOLO_USD))
    if termination is OPTIMAL:
        assert result.bound_usd_per_hour == result.usd_per_hour
        assert result.ratio == 1.0


def test_a_result_carries_what_it_holds_for_and_how_it_was_made() -> None:
    snapshot = snapshot_of(jobs_of((5, 1), (1, 5)), size=2, caps=(3, 3))
    solver = SolverInfo(name="s", version="1", status="done")
    conflict = Conflict(job_ids=("j0",), rule="slo", message="words")
    counts = {"groups": 3}
    result = result_of(
        snapshot,
        OPTIONS,
        "mine",
        groups=[SHARED],
        bound_usd=50.0,
        stopped_by=TIME,
        claimed_usd=PAIR_USD,
        solver=solver,
        counts=counts,
        seconds={"solve": 0.5},
        conflict=conflict,
    )
    counts["groups"] = 4
    assert (result.method, result.limits, result.caps) == ("mine", snapshot.limits, snapshot.caps)
    assert (result.options, result.seed, result.solver) == (OPTIONS, 7, solver)
    assert (result.counts, result.seconds) == ({"groups": 3}, {"solve": 0.5})
    assert result.conflict == conflict
    assert result.ratio == pytest.approx(PAIR_USD / 50)
    assert result.plan is not None
    assert result.plan.policy == "mine"


def test_no_jobs_are_served_optimally_by_no_groups() -> None:
    result = result_of(snapshot_of([]), OPTIONS, "mine", groups=(), bound_usd=0.0)
    assert (result.termination, result.usd_per_hour, result.ratio) == (OPTIMAL, 0.0, 1.0)


def test_a_method_that_proves_nothing_names_the_limit_that_stopped_it() -> None:
    for groups in (SOLO, None):
        with pytest.raises(CheckError, match="Method mine ended at no limit and proved nothing"):
            result_of(SNAPSHOT, OPTIONS, "mine", groups=groups, bound_usd=None)


def test_a_claimed_price_is_compared_with_the_derived_one() -> None:
    result_of(
        SNAPSHOT,
        OPTIONS,
        "mine",
        groups=SOLO,
        bound_usd=None,
        stopped_by=TIME,
        claimed_usd=SOLO_USD + 1e-5,
    )
    for claimed in (SOLO_USD + 2e-4, SOLO_USD - 2e-4, 0.0):
        with pytest.raises(CheckError, match="Method mine claims"):
            result_of(SNAPSHOT, OPTIONS, "mine", groups=SOLO, bound_usd=None, claimed_usd=claimed)


def test_a_plan_of_an_infeasible_problem_is_a_fault_of_the_program() -> None:
    with pytest.raises(CheckError, match="proved infeasible what it holds a plan of"):
        result_of(SNAPSHOT, OPTIONS, "mine", groups=SOLO, bound_usd=None, infeasible=True)


def test_a_bound_above_the_plan_is_a_fault_of_the_program() -> None:
    with pytest.raises(FleetPlannerError, match="exceeds the cost"):
        result_of(SNAPSHOT, OPTIONS, "mine", groups=[SHARED], bound_usd=SOLO_USD)


def test_a_broken_plan_is_never_returned() -> None:
    with pytest.raises(CheckError, match="coverage"):
        result_of(SNAPSHOT, OPTIONS, "mine", groups=SOLO[:1], bound_usd=None)


# --- what is held before a method begins ------------------------------------------------------


def test_without_a_warm_start_each_job_alone_is_held() -> None:
    assert first_incumbent(SNAPSHOT, OPTIONS) == SOLO


def test_each_job_alone_is_held_up_to_the_very_caps_limits_and_dram() -> None:
    """Two jobs of widths (2, 1) and (1, 1), 2000 GB each: three rollout and two train nodes."""
    jobs = jobs_of((5, 1), (1, 5), rollout_nodes=(2, 1), train_state_gb=(2000, 0))
    fits = snapshot_of(jobs, caps=(3, 2), nodes=(2, 1), size=1)
    held = first_incumbent(fits, OPTIONS)
    assert held is not None
    assert [group.nodes for group in held] == [(2, 1), (1, 1)]
    for tight in (
        snapshot_of(jobs, caps=(2, 2)),
        snapshot_of(jobs, caps=(3, 1)),
        snapshot_of(jobs, nodes=(1, 1)),
        snapshot_of(jobs, cluster=cluster_of(host_dram_gb=1999.9)),
    ):
        assert first_incumbent(tight, OPTIONS) is None


def test_a_warm_start_is_held_also_where_jobs_alone_are_not_a_plan() -> None:
    capped = snapshot_of(SNAPSHOT.jobs, caps=(1, 1))
    assert first_incumbent(capped, OPTIONS) is None
    warm = SolveOptions(warm_start=plan_of(capped, [SHARED], "mine"))
    held = first_incumbent(capped, warm)
    assert held is not None
    assert usd_of(capped, held) == pytest.approx(PAIR_USD)
    assert held == (replace(SHARED, rates=(1, 1)),)


def test_a_warm_start_that_is_no_plan_of_the_snapshot_is_refused() -> None:
    warm = SolveOptions(warm_start=plan_of(SNAPSHOT, SOLO, "mine"))
    with pytest.raises(InputError, match="beyond the fleet caps"):
        first_incumbent(snapshot_of(SNAPSHOT.jobs, caps=(1, 1)), warm)
    with pytest.raises(InputError, match="not of this snapshot"):
        first_incumbent(snapshot_of(SNAPSHOT.jobs[:1]), warm)
