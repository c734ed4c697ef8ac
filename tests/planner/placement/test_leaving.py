"""What is left of a group when a member leaves: the same pins, and never a longer period."""

from __future__ import annotations

import random

import pytest

import planner.placement.leaving
from builders import job_of, random_job, violations
from instances.plan import Limits
from moving_cases import group_of
from planner.placement.group_state import GroupState
from planner.placement.leaving import left_of, retimed


def test_the_last_one_leaves_nothing() -> None:
    assert left_of(GroupState.alone(job_of("a", 10, 10), 1), "a", 1) is None


def test_the_period_is_the_least_of_those_left() -> None:
    """Rollouts of 30, 20 and 10 s fill a node for 60 s; without the first 30 s do: b's T = 30."""
    jobs = [job_of("a", 30, 10, 4), job_of("b", 20, 10, 4), job_of("c", 10, 10, 4)]
    group = group_of(jobs, 3)
    assert group is not None
    assert group.period_s == 60
    left = left_of(group, "a", 1)
    assert left is not None
    assert (left.number, left.period_s) == (3, 30)
    assert [job.job_id for job in left.jobs] == ["b", "c"]
    assert violations(left) == []


@pytest.mark.parametrize("seed", range(30))
def test_pins_stay_and_the_period_is_never_longer(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [random_job(rng, name) for name in "abc"]
    group = next(
        g for n in (3, 2, 1) if (g := group_of(jobs[:n], 1)) is not None and not violations(g)
    )
    gone = rng.choice(group.jobs).job_id
    left = left_of(group, gone, 1)
    if len(group.jobs) == 1:
        assert left is None
        return
    assert left is not None
    assert left.period_s <= group.period_s
    assert violations(left) == []
    at = [i for i, job in enumerate(group.jobs) if job.job_id != gone]
    assert left.jobs == tuple(group.jobs[i] for i in at)
    assert left.rollout_pins == tuple(group.rollout_pins[i] for i in at)
    assert left.train_pins == tuple(group.train_pins[i] for i in at)


def test_with_rates_nobody_gets_slower() -> None:
    """a runs four times in b's period of 40; alone it need not wait: T = 10."""
    a, b = job_of("a", 5, 5, 1.5), job_of("b", 10, 30, 2.0)
    starts = (
        ((0.0, 5.0), (10.0, 15.0), (20.0, 25.0)),
        ((5.0, 30.0),),
    )
    # train of b at 30..60 of a period of 45: a's trains at 5, 15, 25 end before
    group = GroupState(1, (a, b), ((0,), (1,)), ((0,), (0,)), (3, 1), 60.0, starts)
    loose = Limits(max_rate=4)
    assert [v.rule for v in violations(group, limits=loose)] == ["slo"]  # a: 60 / 3 > 15
    left = left_of(group, "b", 4)
    assert left is not None
    assert left.period_s / left.rates[0] == pytest.approx(10)
    assert violations(left, limits=loose) == []
    assert retimed(group, 4).period_s / 3 <= 60 / 3


def test_where_no_schedule_is_constructed_the_running_one_is_tightened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As above, a's 30 s close up to the right and left of b and c: nobody else has to wait."""
    jobs = [job_of("a", 30, 10, 4), job_of("b", 20, 10, 4), job_of("c", 10, 10, 4)]
    group = group_of(jobs, 3)
    assert group is not None
    monkeypatch.setattr(planner.placement.leaving, "construct", lambda *_, **__: None)
    left = left_of(group, "a", 1)
    assert left is not None
    assert 30 <= left.period_s < group.period_s
    assert violations(left) == []
