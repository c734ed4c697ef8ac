"""What holds after every event while jobs and nodes fail at random moments."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import options_of, random_job, table_of
from instances.checker import check_group, check_plan
from instances.plan import Fleet, Limits
from planner.replay.failing_replay import FAILING_POLICIES, FailingLoop, failing_loop
from planner.replay.failures import FAILURE_KINDS, FailureEvent, FailureParams
from planner.replay.loop import DEPARTURE
from planner.replay.replaying import run_to_end

#: Most nodes of each pool that a job of ``random_job`` takes: a fleet of these runs any job.
WIDEST = (3, 2)
#: Longest stay alone here, iterations of 1-43 s: failures strike at every stage of some job.
STAY_S = 400.0


def random_loop(seed: int) -> FailingLoop:
    """Return a replay of a few jobs of all modes, about to begin."""
    rng = random.Random(seed)
    jobs = [
        random_job(
            rng,
            f"j{i}",
            arrival_s=float(rng.randint(0, 30) * 10),
            duration_s=rng.uniform(1.0, STAY_S),
            restart_s=rng.choice((0.0, 5.0, 40.0)),
            mode=rng.choice(("sync",) * 5 + ("one-step", "async")),
        )
        for i in range(rng.randint(1, 8))
    ]
    fleet = rng.choice((None, Fleet(*WIDEST), Fleet(5, 4), Fleet(9, 8)))
    failures = FailureParams(
        checkpoint_iterations=rng.choice((1, 3, 20)),
        repair_h=rng.choice((0.0, 20.0, 300.0)) / 3600,
        **rng.choice(({}, {"job_mtbf_h": 0.2}, {"node_mtbf_h": 0.5})),
        seed=seed,
    )
    return failing_loop(
        table_of(*jobs),
        rng.choice(FAILING_POLICIES),
        options_of(fleet=fleet, limits=Limits(max_rate=rng.choice((1, 1, 3)))),
        failures,
        convention=rng.choice(("work", "wallclock")),
    )


def done_so_far(loop: FailingLoop) -> dict[str, float]:
    """Return the iterations of each job from versions and pauses alone.

    Running versions count as far as the loop has accounted for them.
    """
    pauses = defaultdict(list)
    for pause in loop.pauses:
        pauses[pause.job_id].append((pause.from_s, pause.to_s))
    versions = list(loop.versions)
    for group in loop.running.values():
        if group.accounted_s > group.since_s:
            versions.append(group.state.version(group.since_s, group.accounted_s))
    done: Counter[str] = Counter()
    for version in versions:
        for p in version.placements:
            paused_s = sum(
                max(min(to_s, version.to_s) - max(from_s, version.from_s), 0.0)
                for from_s, to_s in pauses[p.job_id]
            )
            run_s = version.to_s - version.from_s - paused_s
            done[p.job_id] += run_s / version.period_s * p.rate
    return done


class Failing(RuleBasedStateMachine):
    """Failures at any moment, listed or by the clock, under both policies and conventions."""

    @initialize(seed=st.integers(0, 2**32 - 1))
    def begin(self, seed: int) -> None:
        self.loop = random_loop(seed)
        self.over: set[int] = set()

    def step(self) -> None:
        """Take one event; the jobs that leave by it are noted by their records."""
        if self.loop.heap:
            self.loop.step()
        for i, record in enumerate(self.loop.records):
            if record.departure_s > 0 and i not in self.loop.home and i not in self.loop.away:
                self.over.add(i)

    @rule(steps=st.integers(1, 6))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    @rule(
        kind=st.sampled_from(FAILURE_KINDS),
        number=st.integers(0, 7),
        part=st.sampled_from((0.3, 1.0)),
        at_once=st.booleans(),
    )
    def fail(self, kind: str, number: int, part: float, at_once: bool) -> None:
        """Something fails before the next event, or with it, maybe with something else."""
        loop = self.loop
        if not loop.heap:
            return
        at_s = loop.now_s + part * (loop.heap[0][0] - loop.now_s)
        if at_s <= loop.now_s:
            return
        if kind == "job":
            i = number % len(loop.jobs)
            if loop.jobs.mode[i] == "async":
                return
            event = FailureEvent(at_s, "job", job_id=loop.jobs.job_id[i])
        else:
            event = FailureEvent(at_s, kind, node=number)  # type: ignore[arg-type]
        loop.await_failure(event)
        if at_once:
            self.step()

    @invariant()
    def every_job_is_in_one_place(self) -> None:
        loop = self.loop
        grouped = Counter(
            loop.index[job.job_id] for g in loop.running.values() for job in g.state.jobs
        )
        assert max(grouped.values(), default=1) == 1
        assert set(grouped) == set(loop.home)
        assert all(
            loop.home[loop.index[job.job_id]] == number
            for number, g in loop.running.items()
            for job in g.state.jobs
        )
        waiting = loop.queue.waiting if loop.queue is not None else []
        assert len(waiting) == len(set(waiting))
        assert set(loop.away) <= set(waiting)
        asynchronous = set(loop.jobs.where_mode("async").tolist())
        for i, record in enumerate(loop.records):
            places = (i in loop.home) + (i in waiting) + (i in self.over)
            begun = record.group_id != ""
            if i in asynchronous:
                continue
            assert places == 1 if begun or i in waiting else places == 0, record

    @invariant()
    def every_group_is_valid(self) -> None:
        loop = self.loop
        for group in loop.running.values():
            version = group.state.version(loop.now_s, loop.now_s + 1)
            found = check_group(version, loop.jobs, loop.options.cluster, loop.options.limits)
            assert not found

    @invariant()
    def the_fleet_is_never_exceeded(self) -> None:
        loop = self.loop
        held = [
            sum(len(g.state.rollout_nodes) for g in loop.running.values()),
            sum(len(g.state.train_nodes) for g in loop.running.values()),
        ]
        used = (held[0] + loop.dedicated_nodes[0], held[1] + loop.dedicated_nodes[1])
        assert used == (loop.rollout_nodes, loop.train_nodes)
        if loop.options.fleet is None:
            return
        owned = (loop.options.fleet.rollout_nodes, loop.options.fleet.train_nodes)
        down = Counter(o.pool for o in loop.outages if o.from_s <= loop.now_s < o.to_s)
        for p, pool in enumerate(("rollout", "train")):
            # a repair of this very moment may still be to come
            assert down[pool] <= loop.down[p]
            assert used[p] + loop.down[p] <= owned[p]

    @invariant()
    def iterations_are_conserved(self) -> None:
        loop = self.loop
        done = done_so_far(loop)
        lost: Counter[str] = Counter()
        for loss in loop.losses:
            lost[loss.job_id] += loss.iterations
        for record in loop.records:
            job = record.job
            if job.mode == "async":
                continue
            kept = done[job.job_id] - lost[job.job_id]
            assert kept == pytest.approx(record.iterations, rel=1e-6, abs=1e-6)
            assert record.lost_iterations == pytest.approx(lost[job.job_id])

    def teardown(self) -> None:
        """Every job ends, with all its iterations, and the whole plan is valid."""
        if not hasattr(self, "loop"):
            return
        loop = self.loop
        while loop.heap and loop.departed < len(loop.records):
            self.step()
        result = run_to_end(loop)
        report = check_plan(result.plan)  # type: ignore[arg-type]
        assert report.ok, report.violations[:3]
        assert loop.departed == len(loop.records)
        for record in result.records:
            assert record.departure_s >= record.start_s >= record.job.arrival_s
            if loop.convention == "work" and record.job.mode != "async":
                assert record.iterations == record.job.iterations


Failing.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
test_failing_stateful = Failing.TestCase


def test_departures_are_events() -> None:
    """The machine counts departures by the loop's own count: some are events of that kind."""
    loop = random_loop(0)
    kinds = []
    while loop.heap:
        kinds.append(loop.step())
    assert kinds.count(DEPARTURE) == loop.departed == len(loop.records)
