"""Backfilling: a later job may pass the head of the queue, and never delays it."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import job_of, options_of, table_of
from fleet_cases import POLICIES, fixed, random_jobs, require_kept
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import Fleet, Limits
from models.bounds.volume import VolumeSums
from planner.placement.placer import Placer, PlacerParams
from planner.policies.registry import make_policy
from planner.replay.admission_queue import AdmissionQueue
from planner.replay.loop import ReplayLoop
from planner.replay.replaying import Convention, replay
from replay_cases import CONVENTIONS, both_conventions


def lone(job_id: str, arrival_s: float, duration_s: float, nodes: int = 1, **more: Any) -> Job:
    """Return a job with an SLO of 1 that fills its nodes: nobody can join it."""
    own = {"rollout_nodes": nodes, "train_nodes": nodes}
    state = {"slo": 1.0, "rollout_state_gb": 1500.0, "train_state_gb": 1500.0}
    more = {**own, **state, **more}
    return job_of(job_id, 10, 10, arrival_s=arrival_s, duration_s=duration_s, **more)


def starts(result: Any) -> dict[str, float]:
    return {record.job.job_id: record.start_s for record in result.records}


# --- By hand --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration_s", "start_s"), [(50.0, 20.0), (80.0, 20.0), (80.5, 110.0), (500.0, 110.0)]
)
@pytest.mark.parametrize("mode", ["sync", "async"])
@both_conventions
def test_who_is_gone_by_the_heads_start_may_pass_it(
    convention: Convention, mode: str, duration_s: float, start_s: float
) -> None:
    # 2 + 2 nodes, a on one of each until 100. b needs both: its promise is 100. c arrives at 20
    # and needs one: for 80 s it is no hindrance, for longer it would be; then it follows b.
    jobs = table_of(
        lone("a", 0.0, 100.0), lone("b", 10.0, 10.0, 2), lone("c", 20.0, duration_s, mode=mode)
    )
    result = fixed(jobs, "weave", (2, 2), convention=convention, queue="backfill")
    assert starts(result) == {"a": 0.0, "b": 100.0, "c": start_s}
    require_kept(result)


@both_conventions
def test_who_takes_nodes_the_head_will_not_need_may_stay(convention: Convention) -> None:
    # 3 + 3 nodes: b waits for two, and will have a's two at 100; c takes the third for ever.
    jobs = table_of(lone("a", 0.0, 100.0, 2), lone("b", 10.0, 10.0, 2), lone("c", 20.0, 1000.0))
    result = fixed(jobs, "solo", (3, 3), convention=convention, queue="backfill")
    assert starts(result) == {"a": 0.0, "b": 100.0, "c": 20.0}


def test_one_more_that_passes_must_not_delay_either() -> None:
    # 4 + 4 nodes: a holds 2 until 100, b waits for 3 (promise 100), so one node may be taken for
    # long: by c, not by d as well; e, short, may take the other.
    jobs = table_of(
        lone("a", 0.0, 100.0, 2),
        lone("b", 10.0, 10.0, 3),
        lone("c", 20.0, 1000.0),
        lone("d", 20.0, 1000.0),
        lone("e", 20.0, 80.0),
    )
    result = fixed(jobs, "solo", (4, 4), convention="wallclock", queue="backfill")
    assert starts(result) == {"a": 0.0, "b": 100.0, "c": 20.0, "d": 110.0, "e": 20.0}


@pytest.mark.parametrize(
    ("convention", "duration_s", "start_s"),
    [("wallclock", 80.0, 20.0), ("wallclock", 81.0, 110.0), ("work", 80.0, 110.0)],
)
def test_who_takes_no_node_may_delay_the_head_by_stretching_a_period(
    convention: Convention, duration_s: float, start_s: float
) -> None:
    # One node of each kind. a (10 + 10 s) is alone until 100; b has no DRAM beside it: promise
    # 100. c (30 + 5 s) fits beside a, in a period of 40 s. wallclock: it may, if it is gone at
    # 100. work: a's iterations would take 40 s instead of 20 s from 20 s on: it left later.
    a = job_of("a", 10, 10, 4.0, duration_s=100, train_state_gb=600.0)
    c = job_of("c", 30, 5, 4.0, arrival_s=20, duration_s=duration_s)
    jobs = table_of(a, lone("b", 10.0, 10.0), c)
    result = fixed(jobs, "weave", (1, 1), convention=convention, queue="backfill")
    assert starts(result) == {"a": 0.0, "b": 100.0, "c": start_s}
    assert fixed(jobs, "weave", (1, 1), convention=convention).records[2].start_s == 110.0


@both_conventions
def test_nobody_behind_changes_nothing(convention: Convention) -> None:
    jobs = table_of(lone("a", 0.0, 100.0), lone("b", 10.0, 50.0, 2))
    for queue in ("fifo", "backfill"):
        result = fixed(jobs, "solo", (2, 2), convention=convention, queue=queue)
        assert starts(result) == {"a": 0.0, "b": 100.0}


# --- The promise ----------------------------------------------------------------------------------


class Watched(AdmissionQueue):
    """Notes after how many starts each job became the head; backfills no more after ``until``."""

    __slots__ = ("heads", "n_starts", "until")

    def __init__(self, jobs: JobTable, fleet: tuple[int, int], until: float = inf) -> None:
        super().__init__(Fleet(*fleet), "backfill", jobs.arrival_s.tolist())
        self.heads: dict[int, int] = {}
        self.n_starts = 0
        self.until = until
        self._settle()

    def _settle(self) -> None:
        self.rule = "backfill" if self.n_starts < self.until else "fifo"

    def start(self, at: int, now_s: float) -> None:
        self.heads.setdefault(self.waiting[0], self.n_starts)
        super().start(at, now_s)
        self.n_starts += 1
        self._settle()


def run(
    jobs: JobTable, policy: str, convention: Convention, queue: AdmissionQueue, **options: Any
) -> ReplayLoop:
    """Replay with a queue of one's own."""
    made = options_of(fleet=queue.fleet, convention=convention, **options)
    sums = VolumeSums(made.cluster, made.limits)
    loop = ReplayLoop(jobs, make_policy(policy, made), made, convention, False, sums, queue)
    while loop.heap:
        loop.step()
    return loop


VARIANTS: list[dict[str, Any]] = [
    {},
    {"placer": PlacerParams(objective="per-iteration", train_scaling=True)},
    {"limits": Limits(max_rate=3)},
]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(POLICIES),
    convention=st.sampled_from(CONVENTIONS),
    fleet=st.tuples(st.integers(3, 7), st.integers(2, 5)),
    variant=st.sampled_from(VARIANTS),
)
def test_a_head_starts_no_later_than_if_nobody_passed_it(
    seed: int, policy: str, convention: Convention, fleet: tuple[int, int], variant: dict[str, Any]
) -> None:
    """The promise, by replays of their own: backfilling ends the moment a job is the head."""
    jobs = random_jobs(seed, n=12, spread_s=120)
    watched = Watched(jobs, fleet)
    records = run(jobs, policy, convention, watched, **variant).records
    for head, n_starts in watched.heads.items():
        if records[head].wait_s > 0:
            frozen = run(jobs, policy, convention, Watched(jobs, fleet, n_starts), **variant)
            assert records[head].start_s <= frozen.records[head].start_s


def test_jobs_do_pass_heads_in_such_traces() -> None:
    """The property above is about something: in random traces many jobs pass the head."""
    passed = 0
    for seed in range(10):
        jobs = random_jobs(seed, n=12, spread_s=120)
        for policy in ("weave", "solo"):
            made = run(jobs, policy, "wallclock", Watched(jobs, (4, 3))).records
            order = [record.start_s for record in made]
            passed += sum(start < max(order[:i], default=0.0) for i, start in enumerate(order))
    assert passed >= 10


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    policy=st.sampled_from(POLICIES),
    convention=st.sampled_from(CONVENTIONS),
    fleet=st.tuples(st.integers(3, 7), st.integers(2, 5)),
    variant=st.sampled_from(VARIANTS),
)
def test_a_forecast_is_what_happens_to_the_last_bit(
    seed: int, policy: str, convention: Convention, fleet: tuple[int, int], variant: dict[str, Any]
) -> None:
    """Under fifo nobody passes, so a head starts exactly when every earlier forecast says."""
    jobs = random_jobs(seed, n=12)
    queue = AdmissionQueue(Fleet(*fleet), "fifo", jobs.arrival_s.tolist())
    made = options_of(fleet=queue.fleet, convention=convention, **variant)
    sums = VolumeSums(made.cluster, made.limits)
    loop = ReplayLoop(jobs, make_policy(policy, made), made, convention, False, sums, queue)
    said: list[tuple[int, float]] = []
    while loop.heap:
        loop.step()
        if queue.waiting and not queue.called:
            head = queue.waiting[0]
            forecast = loop.forecast().fork(loop.now_s)
            said.append((head, forecast.first_start(loop.records[head].job)))
    for head, start_s in said:
        assert loop.records[head].start_s == start_s


# --- What it is built on --------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS, ids=["plain", "scaling", "rates"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_fork_goes_its_own_way(policy: str, variant: dict[str, Any]) -> None:
    """What a fork does leaves the original alone, and both answer alike from the same state."""
    jobs = [job for job in random_jobs(7, n=40) if job.mode == "sync"]
    one = make_policy(policy, options_of(**variant))
    for job in jobs[:12]:
        one.arrive(job, 0.0)
    two, three = one.fork(), one.fork()
    for job in jobs[:6]:
        two.depart(job, 1.0)
    for job in jobs[12:20]:
        two.arrive(job, 2.0)
    for job in jobs[20:30]:
        assert one.arrive(job, 3.0) == three.arrive(job, 3.0)
    for job in jobs[3:12]:
        assert one.depart(job, 4.0) == three.depart(job, 4.0)


@pytest.mark.parametrize("variant", VARIANTS, ids=["plain", "scaling", "rates"])
@pytest.mark.parametrize("policy", POLICIES)
def test_who_does_not_fit_leaves_no_trace(policy: str, variant: dict[str, Any]) -> None:
    jobs = [job for job in random_jobs(11, n=60) if job.mode == "sync"]
    one, two = (make_policy(policy, options_of(**variant)) for _ in "12")
    rng = random.Random(1)
    refused = 0
    for i, job in enumerate(jobs):
        # refused by one for lack of room, or taken by both alike
        room = (rng.randint(0, 1), rng.randint(0, 1))
        if one.fork().arrive(job, 0.0, room) is None:
            refused += 1
            assert one.arrive(job, 0.0, room) is None
        assert one.arrive(job, 0.0) == two.arrive(job, 0.0)
        if i % 3 == 2:
            assert one.depart(jobs[i - 1], 0.0) == two.depart(jobs[i - 1], 0.0)
    assert refused >= 3


def test_place_is_try_place_without_limits() -> None:
    one, two = Placer(), Placer()
    for job in random_jobs(5, n=30):
        if job.mode == "sync":
            assert one.place(job) == two.try_place(job, None)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), variant=st.sampled_from(VARIANTS))
def test_a_placer_never_buys_more_than_there_is_room_for(
    seed: int, variant: dict[str, Any]
) -> None:
    made = options_of(**variant)
    placer = Placer(made.cluster, made.limits, made.placer)
    rng = random.Random(seed)

    def nodes() -> tuple[int, int]:
        groups = placer.groups()
        return (
            sum(len(g.rollout_nodes) for g in groups),
            sum(len(g.train_nodes) for g in groups),
        )

    for job in random_jobs(seed, n=20):
        if job.mode != "sync":
            continue
        room = (rng.randint(0, 3), rng.randint(0, 2))
        before = nodes()
        decision = placer.try_place(job, room)
        after = nodes()
        if decision is None:
            assert after == before
            assert job.rollout_nodes > room[0] or job.train_nodes > room[1]
        else:
            bought = (after[0] - before[0], after[1] - before[1])
            assert bought[0] <= room[0]
            assert bought[1] <= room[1]
            usd = DEFAULT_CLUSTER.usd_per_hour(*bought)
            assert decision.usd_per_hour == pytest.approx(usd)


def test_backfilling_serves_a_crowded_fleet_sooner() -> None:
    """Not proved, but what it is for: on this trace nobody counts more hours of waiting."""
    jobs = production(n_jobs=60, seed=1)
    fleet = (8, 5)
    waits = {
        queue: fixed(jobs, "weave", fleet, convention="wallclock", queue=queue).waits_s.mean()
        for queue in ("fifo", "backfill")
    }
    assert 0 < waits["backfill"] < waits["fifo"]
    assert replay(jobs, "weave", options_of(), convention="wallclock").admitted_at_once == 1
