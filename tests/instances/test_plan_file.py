"""plan.json: what is written is read back equal."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances.checker import check_plan, recost
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import OPTIONAL_FIELDS, Job, JobTable
from instances.plan import GroupVersion, JobPlacement, Limits, Plan
from instances.plan_file import (
    SCHEMA_VERSION,
    plan_from_dict,
    plan_to_dict,
    read_plan,
    write_plan_json,
)
from plan_cases import AWKWARD, PLAN, assert_same_plan


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        dataclasses.replace(PLAN, cluster=DEFAULT_CLUSTER, limits=Limits(), pins_fixed=True),
        dataclasses.replace(
            PLAN,
            jobs=JobTable.from_jobs([]),
            groups=(),
            dedicated=(),
            pauses=(),
            held=(),
            fleet=None,
            starts=(),
        ),
    ],
    ids=["every field", "defaults", "empty"],
)
def test_round_trip(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan_json(plan, path)
    assert_same_plan(read_plan(path), plan)
    assert_same_plan(plan_from_dict(plan_to_dict(plan)), plan)
    # Equal plans give equal bytes, and what was read writes the same again.
    again = tmp_path / "again.json"
    write_plan_json(read_plan(path), again)
    assert again.read_bytes() == path.read_bytes()


def test_a_round_trip_keeps_the_checkers_verdict(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_plan_json(PLAN, path)
    read = read_plan(path)
    assert recost(read) == recost(PLAN)
    assert check_plan(read) == check_plan(PLAN)
    assert not check_plan(read).ok


def test_the_layout_is_the_documented_one() -> None:
    data = plan_to_dict(PLAN)
    assert data["schema_version"] == SCHEMA_VERSION == 1
    assert data["jobs"]["estimated"] == {"sync_gb": ["a", "c"]}
    assert data["jobs"]["optional"]["model_b"] == [7.0, None, 32.0]
    assert json.loads(json.dumps(data, allow_nan=False))["groups"][0]["placements"][0] == {
        "job_id": "a",
        "rollout_pins": [5],
        "train_pins": [2],
        "starts_s": [[0.0, AWKWARD], [6.25, 13.0]],
        "rate": 2,
    }


def test_pauses_and_held_nodes_are_written_and_may_be_absent() -> None:
    data = plan_to_dict(PLAN)
    assert data["pauses"][0] == {"job_id": "a", "from_s": AWKWARD, "to_s": 7.0}
    assert data["held"] == [
        {"group_id": "g0", "from_s": AWKWARD, "to_s": 9.0, "rollout_nodes": 2, "train_nodes": 0}
    ]
    plain = dataclasses.replace(PLAN, pauses=(), held=())
    older = plan_to_dict(plain)
    assert (older["pauses"], older["held"]) == ([], [])
    for key in ("pauses", "held"):  # a file of before they existed
        del older[key]
        assert_same_plan(plan_from_dict(older), plain)


def test_a_fleet_and_starts_are_written_and_may_be_absent() -> None:
    data = plan_to_dict(PLAN)
    assert data["fleet"] == {"rollout_nodes": 2, "train_nodes": 0}
    assert data["starts"] == [{"job_id": "a", "at_s": AWKWARD}, {"job_id": "b é", "at_s": -1.0}]
    plain = dataclasses.replace(PLAN, fleet=None, starts=())
    older = plan_to_dict(plain)
    assert (older["fleet"], older["starts"]) == (None, [])
    for key in ("fleet", "starts"):  # a file of before they existed
        del older[key]
        assert_same_plan(plan_from_dict(older), plain)


def test_restarts_are_read_back() -> None:
    # a and c measured; b has no size, so the largest published.
    assert plan_from_dict(plan_to_dict(PLAN)).jobs.restart_s.tolist() == [0.0, 419.0, AWKWARD]


finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(1e-300, 1e300)


@given(
    st.lists(
        st.tuples(
            st.text(max_size=5), finite, positive, st.floats(1.0, 1e9), st.integers(1, 2**62)
        ),
        max_size=4,
        unique_by=lambda row: row[0],
    ),
    st.lists(st.tuples(finite, finite, finite), max_size=3),
    st.lists(st.floats(allow_infinity=False), min_size=4, max_size=4),
)
def test_any_finite_numbers_survive_json(
    rows: list[tuple[str, float, float, float, int]],
    versions: list[tuple[float, float, float]],
    column: list[float],
) -> None:
    jobs = JobTable.from_jobs(
        [
            Job(job_id=i, arrival_s=at, rollout_s=r, train_s=1.0, slo=slo, train_nodes=n)
            for i, at, r, slo, n in rows
        ]
    ).replace(optional={name: column[: len(rows)] for name in OPTIONAL_FIELDS[:2]})
    groups = tuple(
        GroupVersion(
            group_id="g",
            from_s=a,
            to_s=b,
            period_s=c,
            rollout_nodes=(),
            train_nodes=(1,),
            placements=(
                JobPlacement(job_id="?", rollout_pins=(), train_pins=(), starts_s=((a, b),)),
            ),
        )
        for a, b, c in versions
    )
    plan = dataclasses.replace(PLAN, jobs=jobs, groups=groups)
    text = json.dumps(plan_to_dict(plan), allow_nan=False)
    assert_same_plan(plan_from_dict(json.loads(text)), plan)


def test_numbers_that_json_cannot_hold_are_refused_when_writing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_plan_json(dataclasses.replace(PLAN, usd_total=float("nan")), tmp_path / "x.json")
