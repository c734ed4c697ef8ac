"""Waiting targets, and replays that give up on one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import options_of
from fleet_cases import POLICIES, QUEUES, fixed, random_jobs
from instances.errors import InputError
from instances.plan import Fleet
from planner.policies.policy import QueueRule
from planner.policies.wait_target import TargetMissed, WaitTarget
from planner.replay.replaying import Convention, replay
from replay_cases import CONVENTIONS


@pytest.mark.parametrize(
    ("n_jobs", "share", "late"),
    [
        (20, 0.95, 1),  # 19 of 20 are 95 %
        (19, 0.95, 0),  # 18 of 19 are less
        (100, 0.07, 93),  # 0.07 x 100 is 7.000000000000001 in floating point
        (200, 0.95, 10),
        (5, 1.0, 0),
        (0, 0.5, 0),
    ],
)
def test_how_many_may_be_late(n_jobs: int, share: float, late: int) -> None:
    assert WaitTarget(60.0, share).late_allowed(n_jobs) == late


@pytest.mark.parametrize(
    ("wait_s", "share", "message"),
    [
        (-1.0, 0.95, "Expected wait_s >= 0 of a waiting target, got -1"),
        (math.nan, 0.95, "Expected wait_s >= 0 .* got nan"),
        (math.inf, 0.95, "Expected wait_s >= 0 .* got inf"),
        (60.0, 0.0, "Expected share > 0 and <= 1 of a target, got 0"),
        (60.0, 1.1, "Expected share > 0 and <= 1 of a target, got 1.1"),
        (60.0, math.nan, "Expected share > 0 and <= 1 of a target, got nan"),
    ],
)
def test_what_is_no_target(wait_s: float, share: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        WaitTarget(wait_s, share)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(POLICIES),
    convention=st.sampled_from(CONVENTIONS),
    queue=st.sampled_from(QUEUES),
    fleet=st.tuples(st.integers(3, 7), st.integers(2, 5)),
    share=st.sampled_from([0.3, 0.5, 0.8, 0.95, 1.0]),
    rank=st.integers(0, 13),
    off_s=st.sampled_from([-1.0, 0.0, 1.0]),
)
def test_a_replay_gives_up_if_and_only_if_the_target_is_missed(
    seed: int,
    policy: str,
    convention: Convention,
    queue: QueueRule,
    fleet: tuple[int, int],
    share: float,
    rank: int,
    off_s: float,
) -> None:
    jobs = random_jobs(seed)
    whole = fixed(jobs, policy, fleet, convention=convention, queue=queue)
    # targets on, just above and just below a wait that occurs
    target = WaitTarget(max(sorted(whole.waits_s)[rank] + off_s, 0.0), share)
    options = options_of(fleet=Fleet(*fleet), queue=queue)
    if whole.wait_quantile(share) <= target.wait_s:
        found = replay(jobs, policy, options, convention=convention, target=target)
        assert found.records == whole.records
        return
    with pytest.raises(TargetMissed, match="missed at") as missed:
        replay(jobs, policy, options, convention=convention, target=target)
    # at the first event at which too many have waited too long, those still waiting included

    def late(at_s: float) -> int:
        there = [r for r in whole.records if r.job.arrival_s <= at_s]
        return sum(min(r.start_s, at_s) - r.job.arrival_s > target.wait_s for r in there)

    allowed = target.late_allowed(len(jobs))
    events_s = whole.timeline.time_s.tolist()
    assert missed.value.at_s == next(at_s for at_s in events_s if late(at_s) > allowed)


def test_without_a_fleet_nobody_is_late() -> None:
    result = replay(random_jobs(1), "weave", options_of(), target=WaitTarget(0.0, 1.0))
    assert result.waits_s.max() == 0
