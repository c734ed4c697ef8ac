"""Departures from the placer, what others ask of it, and what it refuses."""

from __future__ import annotations

import random
from typing import Any

import pytest

from builders import job_of, random_job, violations
from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.plan import Limits
from models.group.period import GroupShape
from placer_cases import LONG, SLACK, placer_of
from planner.placement.placer import Placer, PlacerParams

# --- Departures ------------------------------------------------------------------------------


def test_nodes_without_pins_are_released_and_their_numbers_not_used_again() -> None:
    placer = placer_of(job_of("a", 200, 100, 1), job_of("b", 200, 100, 1))
    left = placer.remove("b")
    assert left is not None
    assert (left.rollout_nodes, left.train_nodes) == ((0,), (0,))
    assert "b" not in placer
    again = placer.place(job_of("c", 200, 100, 1))
    assert again.group.rollout_pins == ((0,), (2,))  # node 1 was another machine


def test_the_last_departure_ends_the_group() -> None:
    placer = placer_of(job_of("a", 200, 100))
    assert placer.remove("a") is None
    assert (len(placer), placer.groups()) == (0, [])
    assert placer.place(job_of("a", 200, 100)).group.number == 2  # numbers are never reused


def test_the_pins_of_those_who_stay_do_not_move() -> None:
    placer = placer_of(job_of("a", 200, 100, 1), job_of("b", 200, 100, 1))
    left = placer.remove("a")
    assert left is not None
    assert (left.rollout_pins, left.train_pins) == (((1,),), ((0,),))
    assert left.period_s == 300


def test_old_starts_are_kept_when_construction_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rare, so forced here: the running orders without the one that left are still valid, in a
    period that is no longer; construction is asked for nothing longer either.
    """
    asked: list[float | None] = []

    def nothing(shape: GroupShape, *, limit_s: float | None = None) -> None:
        asked.append(limit_s)

    removed = 0
    for seed in range(40):
        rng = random.Random(seed)
        placer = placer_of(*(random_job(rng, f"j{i}") for i in range(8)), skip_saturated=False)
        for group in placer.groups():
            for job in group.jobs[:-1]:
                old = placer.group_of(job.job_id)
                with monkeypatch.context() as patch:
                    patch.setattr("planner.placement.leaving.construct", nothing)
                    left = placer.remove(job.job_id)
                assert left is not None
                assert asked[-1] == old.period_s
                assert left.period_s <= old.period_s * (1 + 1e-9)
                assert violations(left) == []
                removed += 1
    assert removed > 40


# --- What others ask, and what is refused ----------------------------------------------------


def test_len_contains_groups_and_group_of_agree() -> None:
    placer = placer_of(SLACK, LONG)
    assert len(placer) == 2
    assert "slack" in placer
    assert "nobody" not in placer
    assert 3 not in placer
    assert placer.group_of("long") is placer.groups()[1]
    assert placer.nbytes() > 0


@pytest.mark.parametrize("ask", ["remove", "group_of"])
def test_unknown_job(ask: str) -> None:
    with pytest.raises(InputError, match="'nobody'"):
        getattr(placer_of(SLACK), ask)("nobody")


def test_duplicate_job() -> None:
    placer = placer_of(SLACK)
    with pytest.raises(InputError, match="'slack' is already placed"):
        placer.place(SLACK)
    assert len(placer) == 1


def test_async_jobs_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="'a' has mode 'async'"):
        Placer().place(job_of("a", 1, 1, mode="async"))


@pytest.mark.parametrize("pool", ["rollout", "train"])
def test_state_above_dram(pool: str) -> None:
    with pytest.raises(InfeasibleError, match=rf"{pool}_state_gb <= 2000 .*2000\.5 .*'a'"):
        Placer().place(job_of("a", 1, 1, **{f"{pool}_state_gb": 2000.5}))


@pytest.mark.parametrize("pool", ["rollout", "train"])
def test_gang_above_the_limit(pool: str) -> None:
    limits = Limits(**{f"max_{pool}_nodes": 2})
    with pytest.raises(InfeasibleError, match=rf"{pool}_nodes <= 2 .*got 3 .*'a'"):
        Placer(limits=limits).place(job_of("a", 1, 1, **{f"{pool}_nodes": 3}))


def test_a_refused_job_leaves_no_trace() -> None:
    placer = placer_of(SLACK)
    before = placer.groups()
    with pytest.raises(InfeasibleError):
        placer.place(job_of("a", 1, 1, train_state_gb=1e4))
    assert placer.groups() == before
    assert "a" not in placer


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"objective": "per-hours"}, "Did you mean 'per-hour'?"),
        ({"tie_rule": "tightes"}, "Did you mean 'tightest'?"),
        ({"tie_rule": "?"}, "Expected tie_rule in least-shrink, tightest"),
        ({"max_attempts": 0}, "max_attempts >= 1, got 0"),
    ],
)
def test_bad_params(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        PlacerParams(**params)
    assert message in str(caught.value)
