"""The placer's promises on random jobs: against a slow search, and over random lives."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import cluster_of, random_job, violations
from instances.jobs import Job
from instances.plan import Limits
from models.group.period import GroupShape, construct
from placer_cases import placer_of
from planner.placement.group_state import GroupState
from planner.placement.placer import OBJECTIVES, TIE_RULES, Placer, PlacerParams

# --- Against a slow, independent answer to "who can take this job?" --------------------------


def usable_nodes(group: GroupState, job: Job, pool: str, limit: float, gb: float) -> list[int]:
    """Return the nodes of one pool that can take the job, fullest first, ties by number.

    Node by node: with the job and every switch the load is within the limit, the states fit,
    and every member there bears its switch (its train switch too in the rollout pool when the
    group has a single train node, which the newcomer shares).
    """
    shape = group.shape()
    one_train = len(group.train_nodes) == 1
    pins = group.rollout_pins if pool == "rollout" else group.train_pins
    found: list[tuple[float, int]] = []
    for node in group.rollout_nodes if pool == "rollout" else group.train_nodes:
        load, state, bears = 0.0, 0.0, True
        for i, member in enumerate(group.jobs):
            if node not in pins[i]:
                continue
            rollout_s, train_s = shape.rollout_s[i], shape.train_s[i]
            if pool == "rollout":
                rollout_s = member.rollout_s + member.rollout_switch_s
                if one_train:
                    train_s = member.train_s + member.train_switch_s
            else:
                train_s = member.train_s + member.train_switch_s
            load += rollout_s if pool == "rollout" else train_s
            state += getattr(member, f"{pool}_state_gb")
            bears = bears and paid_s(member, rollout_s, train_s) <= limit + 1e-9
        load += getattr(job, f"{pool}_s") + getattr(job, f"{pool}_switch_s")
        state += getattr(job, f"{pool}_state_gb")
        if bears and load <= limit + 1e-9 and state <= gb + 1e-9:
            found.append((-load, node))
    return [node for _, node in sorted(found)]


def paid_s(job: Job, rollout_s: float, train_s: float) -> float:
    """Return the seconds of an iteration alone, of phases with the switches they pay."""
    around_s = rollout_s + train_s + job.sync_s
    return max(rollout_s, train_s, around_s / 2) if job.mode == "one-step" else around_s


def saturated(group: GroupState) -> bool:
    """The busiest node is as busy as the longest iteration; with a one-step job, in both pools."""
    shape = group.shape()
    loads = [
        max(
            sum(s for s, nodes in zip(seconds, pins, strict=True) if node in nodes) for node in pool
        )
        for seconds, pins, pool in (
            (shape.rollout_s, shape.rollout_pins, group.rollout_nodes),
            (shape.train_s, shape.train_pins, group.train_nodes),
        )
    ]
    busy = min if any(job.mode == "one-step" for job in group.jobs) else max
    return busy(loads) >= max(job.solo_s for job in group.jobs)


def ways(
    placer: Placer, group: GroupState, job: Job, kind: str
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the pins by which one group takes a job by loads, DRAM and deadlines."""
    size = placer.limits.max_group_size
    if (size and len(group.jobs) >= size) or (placer.params.skip_saturated and saturated(group)):
        return []
    limit = min([job.deadline_s, *(member.deadline_s for member in group.jobs)])
    train = usable_nodes(group, job, "train", limit, placer.cluster.train.host_dram_gb)
    rollout = usable_nodes(group, job, "rollout", limit, placer.cluster.rollout.host_dram_gb)
    train_s = job.train_s + job.train_switch_s
    cycle = paid_s(job, job.rollout_s, train_s)
    longest = max(member.solo_s for member in group.jobs)
    if max(cycle, longest) > limit + 1e-9 or len(train) < job.train_nodes:
        return []
    if paid_s(job, job.rollout_s + job.rollout_switch_s, train_s) > limit + 1e-9:
        rollout = []
    new = 0
    if kind == "direct" and len(rollout) < job.rollout_nodes:
        return []
    if kind == "rollout_scaled":
        new = max(job.rollout_nodes - len(rollout), 1)
        most = placer.limits.max_rollout_nodes
        if most is not None and len(group.rollout_nodes) + new > most:
            return []
    fresh = tuple(range(1000, 1000 + new))
    keep = job.rollout_nodes - new
    ends = [(rollout[:keep], train[: job.train_nodes])]
    ends.append((rollout[len(rollout) - keep :], train[-job.train_nodes :]))
    return [(tuple(r) + fresh, tuple(t)) for r, t in ends]


def scheduled(group: GroupState, job: Job, pins: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether the constructive scheduler, as the placer calls it, finds offsets there."""
    jobs = (*group.jobs, job)
    shape = GroupShape.of(jobs, (*group.rollout_pins, pins[0]), (*group.train_pins, pins[1]))
    limit = min(member.deadline_s for member in jobs)
    return construct(shape, limit_s=limit, orders=2, refine=0) is not None


@pytest.mark.parametrize("tie_rule", ["tightest", "most-room"])
@pytest.mark.parametrize("skip_saturated", [True, False])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("modes", [("sync",), ("sync", "one-step")])
def test_kind_agrees_with_a_slow_search(
    seed: int, skip_saturated: bool, tie_rule: str, modes: tuple[str, ...]
) -> None:
    """A kind is passed over only when no group offers it with offsets, and chosen only where
    loads, DRAM and deadlines allow.
    """
    rng = random.Random(seed)
    limits = Limits(
        max_group_size=rng.choice((0, 3, 5)), max_rollout_nodes=rng.choice((None, None, 4))
    )
    placer = placer_of(
        limits=limits, skip_saturated=skip_saturated, tie_rule=tie_rule, max_attempts=10**6
    )
    here: list[str] = []
    kinds: set[str] = set()
    for i in range(40):
        job = random_job(rng, f"j{i}", mode=modes[i % len(modes)])
        before = placer.groups()
        options = {
            kind: [(g, pins) for g in before for pins in ways(placer, g, job, kind)]
            for kind in ("direct", "rollout_scaled")
        }
        decision = placer.place(job)
        kinds.add(decision.kind)
        for kind in ("direct", "rollout_scaled"):
            if decision.kind == kind:
                assert decision.group.number in {g.number for g, _ in options[kind]}
                break
            assert not any(scheduled(g, job, pins) for g, pins in options[kind])
        here.append(job.job_id)
        if rng.random() < 0.35:
            placer.remove(here.pop(rng.randrange(len(here))))
    assert kinds >= {"direct", "isolated"}


# --- Random lives ----------------------------------------------------------------------------


def usd_of(placer: Placer, groups: list[GroupState]) -> float:
    return sum(
        placer.cluster.usd_per_hour(len(g.rollout_nodes), len(g.train_nodes)) for g in groups
    )


def mean_s(group: GroupState) -> list[float]:
    return [group.period_s / rate for rate in group.rates]


class RandomLife(RuleBasedStateMachine):
    """Jobs come and go; after every step everything the placer promises is looked at."""

    max_rate = 1

    def __init__(self) -> None:
        super().__init__()
        self.here: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {}
        self.count = 0

    @initialize(
        size=st.integers(0, 5),
        most_rollout=st.sampled_from([None, None, 3, 5]),
        most_train=st.sampled_from([None, None, 2, 3]),
        objective=st.sampled_from(OBJECTIVES),
        tie_rule=st.sampled_from(sorted(TIE_RULES)),
        train_scaling=st.booleans(),
        skip_saturated=st.booleans(),
        max_attempts=st.sampled_from([1, 2, 8]),
        dram=st.sampled_from([1000.0, 1800.0, 1e6]),
    )
    def start(
        self,
        size: int,
        most_rollout: int | None,
        most_train: int | None,
        objective: str,
        tie_rule: str,
        train_scaling: bool,
        skip_saturated: bool,
        max_attempts: int,
        dram: float,
    ) -> None:
        self.placer = Placer(
            cluster=cluster_of(host_dram_gb=dram),
            limits=Limits(
                max_group_size=size,
                max_rollout_nodes=most_rollout,
                max_train_nodes=most_train,
                max_rate=self.max_rate,
            ),
            params=PlacerParams(
                objective=objective,
                tie_rule=tie_rule,
                train_scaling=train_scaling and self.max_rate == 1,
                skip_saturated=skip_saturated,
                max_attempts=max_attempts,
            ),
        )

    @rule(seed=st.integers(0, 2**32))
    def arrive(self, seed: int) -> None:
        mode = ("sync", "sync", "one-step")[seed % 3]
        placer = self.placer
        job = random_job(random.Random(seed), f"j{self.count}", mode=mode)
        self.count += 1
        before = {g.number: g for g in placer.groups()}
        decision = placer.place(job)
        old = before.get(decision.group.number)
        assert (old is None) == (decision.kind == "isolated")
        # what is bought is what the group's nodes cost more than before, at most a group alone
        bought = usd_of(placer, [decision.group]) - (usd_of(placer, [old]) if old else 0.0)
        assert decision.usd_per_hour == pytest.approx(bought, abs=1e-9)
        alone = placer.cluster.usd_per_hour(job.rollout_nodes, job.train_nodes)
        assert 0 <= decision.usd_per_hour <= alone + 1e-9
        if decision.kind == "direct":
            assert decision.usd_per_hour == pytest.approx(0, abs=1e-9)
        if placer.params.objective == "per-iteration":
            stretch = usd_of(placer, [decision.group]) * decision.group.iteration_s
            stretch -= usd_of(placer, [old]) * old.iteration_s if old else 0.0
            assert stretch <= alone * job.solo_s + 1e-6
        assert {g.number: g for g in placer.groups()} == {
            **before,
            decision.group.number: decision.group,
        }
        assert decision.group.jobs == (*(old.jobs if old else ()), job)
        self.here[job.job_id] = (
            decision.group.group_id,
            decision.group.rollout_pins[-1],
            decision.group.train_pins[-1],
        )

    @rule(which=st.integers(0, 10**6))
    def depart(self, which: int) -> None:
        if not self.here:
            return
        job_id = sorted(self.here)[which % len(self.here)]
        before = {g.number: g for g in self.placer.groups()}
        old = self.placer.group_of(job_id)
        left = self.placer.remove(job_id)
        del self.here[job_id]
        after = {g.number: g for g in self.placer.groups()}
        del before[old.number]
        if left is None:
            assert len(old.jobs) == 1
        else:
            before_s = {j.job_id: s for j, s in zip(old.jobs, mean_s(old), strict=True)}
            for job, seconds in zip(left.jobs, mean_s(left), strict=True):
                assert seconds <= before_s[job.job_id] * (1 + 1e-9)
            assert after.pop(left.number) == left
        assert after == before

    @invariant()
    def every_group_is_valid(self) -> None:
        if not hasattr(self, "placer"):
            return
        for group in self.placer.groups():
            assert violations(group, self.placer.cluster, self.placer.limits) == []

    @invariant()
    def nobody_moved_and_nobody_is_lost(self) -> None:
        if not hasattr(self, "placer"):
            return
        groups = self.placer.groups()
        found = {
            job.job_id: (group.group_id, r_pins, t_pins)
            for group in groups
            for job, r_pins, t_pins in zip(
                group.jobs, group.rollout_pins, group.train_pins, strict=True
            )
        }
        assert found == self.here
        assert len(self.placer) == len(self.here) == sum(len(g.jobs) for g in groups)
        assert all(job_id in self.placer for job_id in self.here)
        assert [g.number for g in groups] == sorted({g.number for g in groups})

    @invariant()
    def sharing_never_costs_more_than_alone(self) -> None:
        """Per hour: every job bought at most its own nodes, and departures release the rest."""
        if not hasattr(self, "placer"):
            return
        groups = self.placer.groups()
        jobs = list(itertools.chain.from_iterable(g.jobs for g in groups))
        alone = sum(self.placer.cluster.usd_per_hour(j.rollout_nodes, j.train_nodes) for j in jobs)
        assert usd_of(self.placer, groups) <= alone + 1e-6

    @invariant()
    def hot_arrays_equal_a_fresh_build(self) -> None:
        if hasattr(self, "placer"):
            assert_rebuilds(self.placer)


def assert_rebuilds(placer: Placer) -> None:
    """Assert that every array row equals that of a placer built from the group states alone."""
    fleet = placer._fleet
    fresh = Placer(cluster=placer.cluster, limits=placer.limits, params=placer.params)._fleet
    used = [i for i in range(fleet.top) if fleet.slots[i] is not None]
    assert len(fleet) == len(used)
    for i in used:
        state = fleet.slot(i).state
        assert fleet.slot(i).shape == state.shape()
        j = fresh.add(state, state.shape())
        np.testing.assert_array_equal(fleet.limits[:, i], fresh.limits[:, j])
        for name in (
            "deadline_s",
            "iteration_s",
            "solo_s",
            "size",
            "usd_per_hour",
            "last_end_s",
            "number",
        ):
            assert getattr(fleet, name)[i] == getattr(fresh, name)[j], name
        if fleet.rates is not None and fresh.rates is not None:
            for name in ("period_s", "busy_s", "deadline_s", "chain_s"):
                rows = getattr(fleet.rates, name)[i], getattr(fresh.rates, name)[j]
                width = min(map(len, rows))
                np.testing.assert_array_equal(rows[0][:width], rows[1][:width])
        for ours, theirs in ((fleet.rollout, fresh.rollout), (fleet.train, fresh.train)):
            width = min(ours.width, theirs.width)
            np.testing.assert_array_equal(ours.rows[:, i, :width], theirs.rows[:, j, :width])
            assert (ours.rows[0, i, width:] >= 1e300).all()  # no node there
        assert fleet.slot(i).rollout_ids == state.rollout_nodes
        assert fleet.slot(i).train_ids == state.train_nodes
        assert fleet.slot(i).next_rollout > max(state.rollout_nodes)
        assert fleet.slot(i).next_train > max(state.train_nodes)
    wide_open = np.full((len(fleet.limits), 1), math.inf)
    wide_open[-1] = 0.0  # closed groups and free slots stay out
    assert set(fleet.open_to(wide_open).tolist()) <= set(used)
    assert fleet.slot_of.keys() == {j.job_id for i in used for j in fleet.slot(i).state.jobs}
    for job_id, i in fleet.slot_of.items():
        assert job_id in {job.job_id for job in fleet.slot(i).state.jobs}


class RatedLife(RandomLife):
    """The same promises with up to three iterations a period."""

    max_rate = 3


for life, examples in ((RandomLife, 60), (RatedLife, 30)):
    life.TestCase.settings = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
test_random_lives = RandomLife.TestCase
test_random_rated_lives = RatedLife.TestCase
