"""The checker on fixed fleets: jobs that start after they arrive, and nodes that exist at once."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker_cases import GROUP, JOB_A, JOB_B, alone_b, facts, only, plan_of
from instances.checker import RULES, check_plan
from instances.errors import InputError
from instances.plan import DedicatedNodes, Fleet, HeldNodes, Plan, Start

both_conventions = pytest.mark.parametrize("durations", ["work", "wallclock"])
ASYNC = dataclasses.replace(JOB_B, job_id="c", mode="async")  # 1 + 1 nodes for 60 s


def waited(*starts: Start, arrival_s: float = 5.0, from_s: float = 20.0, **changes: Any) -> Plan:
    """Return job b alone, 60 s from ``from_s`` on: its 10 iterations and its duration."""
    job = dataclasses.replace(JOB_B, arrival_s=arrival_s)
    group = alone_b("g", from_s, from_s + 60.0)
    return plan_of(group, **{"jobs": (job,), "starts": starts or (Start("b", 20.0),), **changes})


@both_conventions
def test_a_job_that_waited_starts_late_and_stays_as_long(durations: str) -> None:
    assert check_plan(waited(durations=durations)).violations == ()


@both_conventions
def test_without_its_start_the_job_is_late(durations: str) -> None:
    plan = dataclasses.replace(waited(durations=durations), starts=())
    broken = only(check_plan(plan))
    assert (broken.rule, broken.job_id, broken.amount) == ("coverage", "b", 15.0)
    assert broken.message == "Expected start of job 'b' = 5 s, got 20 (15 s too late)."


@both_conventions
def test_the_stay_begins_at_the_start_within_a_microsecond(durations: str) -> None:
    for off in (0.5e-6, -0.5e-6):
        assert check_plan(waited(Start("b", 20.0 + off), durations=durations)).ok
    for off, word in ((2e-6, "early"), (-2e-6, "late")):
        broken = only(check_plan(waited(Start("b", 20.0 + off), durations=durations)))
        assert broken.rule == "coverage"
        assert word in broken.message


@both_conventions
def test_nobody_starts_before_he_arrives(durations: str) -> None:
    assert check_plan(waited(arrival_s=20.0 + 0.5e-6, durations=durations)).ok
    broken = only(check_plan(waited(arrival_s=21.5, durations=durations)))
    assert (broken.rule, broken.job_id, broken.amount, broken.unit) == ("start", "b", 1.5, "s")
    assert broken.message == (
        "Expected start of job 'b' >= its arrival, 21.5 s, got 20 (1.5 s too early)."
    )


@pytest.mark.parametrize(
    ("starts", "job_id", "amount"),
    [
        ((Start("b", 20.0), Start("b", 20.0)), "b", 1),
        ((Start("b", 20.0), Start("z", 20.0)), "z", 1),
        ((Start("b", 20.0), Start("b", 90.0), Start("b", 1.0)), "b", 1),
    ],
    ids=["twice", "unknown", "three times"],
)
def test_each_start_is_of_a_known_job_and_the_only_one(
    starts: tuple[Start, ...], job_id: str, amount: float
) -> None:
    report = check_plan(waited(*starts))
    assert facts(report.violations) == [("start", job_id, None, amount)] * (len(starts) - 1)


@pytest.mark.parametrize("at_s", [math.nan, math.inf, -math.inf])
def test_a_start_is_a_moment(at_s: float) -> None:
    report = check_plan(waited(Start("b", at_s)))
    # without a moment it counts for none, so the job is late, too
    assert facts(report.violations) == [("start", "b", None, None), ("coverage", "b", None, 15.0)]


def test_nobody_waits_in_a_snapshot() -> None:
    plan = plan_of(
        alone_b("g", 0.0, 3600.0), jobs=(JOB_B,), durations="snapshot", starts=(Start("b", 0.0),)
    )
    broken = only(check_plan(plan))
    assert (broken.rule, broken.amount, broken.unit) == ("start", 1, "starts")


def test_async_jobs_wait_too() -> None:
    nodes = DedicatedNodes(job_id="c", from_s=7.0, to_s=67.0, rollout_nodes=1, train_nodes=1)
    plan = plan_of(jobs=(JOB_A, JOB_B, ASYNC), dedicated=(nodes,), starts=(Start("c", 7.0),))
    assert check_plan(plan).ok
    broken = only(check_plan(dataclasses.replace(plan, starts=())))
    assert (broken.rule, broken.job_id, broken.amount) == ("coverage", "c", 7.0)


def test_a_fleet_as_large_as_the_peak_is_enough() -> None:
    # GROUP holds 1 rollout and 2 train nodes.
    assert check_plan(plan_of(fleet=Fleet(1, 2))).ok
    for fleet, pool, most, got in ((Fleet(0, 2), "rollout", 0, 1), (Fleet(1, 1), "train", 1, 2)):
        broken = only(check_plan(plan_of(fleet=fleet)))
        assert (broken.rule, broken.amount, broken.unit) == ("fleet", 1, "nodes")
        assert broken.message == (
            f"Expected {pool} nodes at once (over the fleet from 0 s on) <= {most} nodes, got "
            f"{got} (1 nodes too many)."
        )
    assert check_plan(plan_of(fleet=Fleet(0, 0))).counts == {"fleet": 2}


def test_dedicated_and_held_nodes_are_the_fleets() -> None:
    nodes = DedicatedNodes(job_id="c", from_s=0.0, to_s=60.0, rollout_nodes=1, train_nodes=1)
    plan = plan_of(jobs=(JOB_A, JOB_B, ASYNC), dedicated=(nodes,), fleet=Fleet(2, 3))
    assert check_plan(plan).ok
    assert check_plan(dataclasses.replace(plan, fleet=Fleet(1, 3))).counts == {"fleet": 1}
    # g ends at 30 s and is held, 1 + 1 nodes, until 45 s, beside h
    held = HeldNodes(group_id="g", from_s=100.0, to_s=110.0, rollout_nodes=1, train_nodes=2)
    job = dataclasses.replace(JOB_B, job_id="d", arrival_s=100.0)
    place = dataclasses.replace(alone_b("h", 100.0, 160.0).placements[0], job_id="d")
    later = alone_b("h", 100.0, 160.0, placements=(place,))
    plan = plan_of(GROUP, later, jobs=(JOB_A, JOB_B, job), held=(held,), fleet=Fleet(2, 3))
    assert check_plan(plan).ok
    assert check_plan(dataclasses.replace(plan, fleet=Fleet(2, 2))).counts == {"fleet": 1}


def test_nodes_that_go_make_room_for_those_that_come() -> None:
    # b for 60 s, then d for 60 s, on one node of each kind; a microsecond sooner still passes.
    job = dataclasses.replace(JOB_B, job_id="d")
    place = dataclasses.replace(alone_b("h", 0.0, 1.0).placements[0], job_id="d")

    def plan(at_s: float) -> Plan:
        later = alone_b("h", at_s, at_s + 60.0, placements=(place,))
        first = alone_b("g", 0.0, 60.0)
        return plan_of(
            first, later, jobs=(JOB_B, job), fleet=Fleet(1, 1), starts=(Start("d", at_s),)
        )

    assert check_plan(plan(60.0)).ok
    assert check_plan(plan(60.0 - 0.5e-6)).ok
    assert check_plan(plan(60.0 - 2e-6)).counts == {"fleet": 2}


@pytest.mark.parametrize("counts", [(-1, 0), (0, -1), (1.0, 1), (True, 1)])
def test_a_fleet_is_whole_nodes(counts: tuple[Any, Any]) -> None:
    with pytest.raises(InputError, match=r"of a fleet a whole number >= 0, got"):
        Fleet(*counts)


wild = st.floats() | st.sampled_from([0.0, -1.0, 20.0, 1e300])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.builds(Start, st.sampled_from(["b", "z"]), wild), max_size=4).map(tuple),
    wild,
    wild,
    st.sampled_from(["work", "wallclock", "snapshot"]),
    st.builds(Fleet, st.integers(0, 10**30), st.integers(0, 2)) | st.none(),
)
def test_wild_starts_never_raise(
    starts: tuple[Start, ...], arrival_s: float, from_s: float, durations: str, fleet: Fleet | None
) -> None:
    plan = waited(arrival_s=arrival_s, from_s=from_s, durations=durations, fleet=fleet)
    for v in check_plan(dataclasses.replace(plan, starts=starts)).violations:
        assert v.rule in RULES
        assert v.amount is None or math.isfinite(v.amount)
        assert v.message.startswith("Expected ")
