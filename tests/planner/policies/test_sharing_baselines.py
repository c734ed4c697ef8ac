"""``random`` and ``most-idle``: they share by room, never by time; all but SLOs still holds."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from builders import cluster_of, job_of, members, options_of, random_job, table_of, violations
from instances.checker import check_plan
from instances.errors import InfeasibleError
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import Limits
from instances.plan_file import plan_to_dict
from planner.placement.group_state import GroupState
from planner.plan.document import policy_document
from planner.policies.policy import Change
from planner.policies.registry import make_policy
from planner.policies.sharing_baselines import MostIdle, RandomGroup, idle_fraction
from planner.replay.replaying import Convention, ReplayResult, replay

BASELINES = ("random", "most-idle")
CONVENTIONS: tuple[Convention, ...] = ("work", "wallclock")
#: State that lets no second such job on a node of 2,000 GB, but any job without state.
FULL_GB = 1500.0


class Dealt:
    """A generator that deals what it is told (then 0), and counts the choices it had."""

    def __init__(self, *draws: int) -> None:
        self.draws = list(draws)
        self.choices: list[int] = []

    def integers(self, high: int) -> int:
        self.choices.append(high)
        return self.draws.pop(0) if self.draws else 0


def dealt(*draws: int, **options: Any) -> tuple[RandomGroup, Dealt]:
    """Return ``random`` with these draws for its first arrivals."""
    policy, rng = RandomGroup(options_of(**options)), Dealt(*draws)
    policy._rng = rng  # type: ignore[assignment]
    return policy, rng


def joining(name: str, **options: Any) -> RandomGroup | MostIdle:
    """Return a policy that joins the oldest (only) candidate, and opens a group without one."""
    return dealt(**options)[0] if name == "random" else MostIdle(options_of(**options))


def full(job_id: str, rollout_s: float, train_s: float, **more: Any) -> Job:
    """Return a job beside which no other such job fits, in either pool."""
    more = {"rollout_state_gb": FULL_GB, "train_state_gb": FULL_GB} | more
    return job_of(job_id, rollout_s, train_s, **more)


def group_of(change: Change) -> GroupState:
    """Return the one group that an arrival changed."""
    (group,) = change.groups
    assert change.ended == ()
    return group


both = pytest.mark.parametrize("name", BASELINES)
both_conventions = pytest.mark.parametrize("convention", CONVENTIONS)

# --- Room: DRAM, size, gang width, node limits --------------------------------------------------


@both
@pytest.mark.parametrize(
    ("rollout_gb", "train_gb", "kind"),
    [
        (800, 800, "direct"),  # 1,200 + 800 GB fill both nodes exactly
        (800.001, 800, "rollout_scaled"),  # DRAM demands one rollout node
        (800, 800.001, "train_scaled"),
        (800.001, 800.001, "isolated"),  # room in neither pool: nothing to share
    ],
)
def test_room_is_dram_to_the_last_byte(
    name: str, rollout_gb: float, train_gb: float, kind: str
) -> None:
    policy = joining(name)
    policy.arrive(job_of("a", 10, 10, rollout_state_gb=1200, train_state_gb=1200), 0.0)
    new = job_of("b", 10, 10, rollout_state_gb=rollout_gb, train_state_gb=train_gb)
    change = policy.arrive(new, 0.0)
    group = group_of(change)
    assert change.admission == kind
    if kind == "isolated":
        assert members([group]) == {2: ["b"]}
        return
    assert members([group]) == {1: ["a", "b"]}
    bought = int(kind == "rollout_scaled"), int(kind == "train_scaled")
    assert group.rollout_pins == ((0,), (bought[0],))  # the new node, or the shared one
    assert group.train_pins == ((0,), (bought[1],))
    assert {v.rule for v in violations(group)} <= {"slo"}


@both
def test_deadlines_are_not_looked_at(name: str) -> None:
    """Three jobs of 20 s without slack on one pair: a period of 30 s, no node bought."""
    policy = joining(name)
    for i, kind in zip("abc", ("isolated", "direct", "direct"), strict=True):
        assert policy.arrive(job_of(i, 10, 10, 1.0), 0.0).admission == kind
    (group,) = policy._groups.values()
    assert group.period_s == 30.0
    assert [v.rule for v in violations(group)] == ["slo"] * 3


@both
@pytest.mark.parametrize(("size", "groups"), [(1, 7), (2, 4), (5, 2), (0, 1)])
def test_room_is_group_size(name: str, size: int, groups: int) -> None:
    """Seven jobs that fit together by DRAM; 0 means no limit."""
    policy = joining(name, limits=Limits(max_group_size=size))
    for i in range(7):
        policy.arrive(job_of(f"j{i}", 10, 10), 0.0)
    assert len(policy._groups) == groups
    # A leaver makes room in its group for one more.
    left = policy.depart(job_of("j0", 10, 10), 1.0)
    change = policy.arrive(job_of("new", 10, 10), 1.0)
    assert change.admission == ("isolated" if size == 1 else "direct")
    assert ("new" in members(change.groups).get(1, [])) == bool(left.groups)


@both
@pytest.mark.parametrize(
    ("widths", "kind", "pins"),
    [
        ((1, 1), "direct", ((0,), (0,))),
        ((2, 2), "direct", ((0, 1), (0, 1))),
        ((3, 1), "rollout_scaled", ((0, 1, 2), (0,))),  # wider than the group's two nodes
        ((1, 3), "train_scaled", ((0,), (0, 1, 2))),
        ((3, 3), "isolated", ((0, 1, 2), (0, 1, 2))),  # fits in neither pool
    ],
)
def test_room_is_gang_width(
    name: str, widths: tuple[int, int], kind: str, pins: tuple[tuple[int, ...], ...]
) -> None:
    policy = joining(name)
    policy.arrive(job_of("a", 10, 10, rollout_nodes=2, train_nodes=2), 0.0)
    change = policy.arrive(job_of("b", 10, 10, rollout_nodes=widths[0], train_nodes=widths[1]), 0.0)
    group = group_of(change)
    assert change.admission == kind
    assert (group.rollout_pins[-1], group.train_pins[-1]) == pins
    assert {v.rule for v in violations(group)} <= {"slo"}


@both
def test_a_gang_takes_what_has_room_and_buys_the_rest(name: str) -> None:
    """Of three rollout nodes one is full: a gang of three keeps the other two, and buys one."""
    policy = joining(name)
    policy.arrive(job_of("a", 10, 10, rollout_nodes=3), 0.0)
    policy.arrive(job_of("b", 10, 10, rollout_state_gb=2000), 0.0)  # fills node 0
    change = policy.arrive(job_of("c", 10, 10, rollout_nodes=3, rollout_state_gb=1), 0.0)
    assert change.admission == "rollout_scaled"
    assert group_of(change).rollout_pins == ((0, 1, 2), (0,), (1, 2, 3))
    assert group_of(change).train_pins == ((0,), (0,), (0,))


@both
@pytest.mark.parametrize(
    ("limits", "kinds"),
    [
        (Limits(max_rollout_nodes=1), ("isolated", "train_scaled")),
        (Limits(max_rollout_nodes=2), ("rollout_scaled", "train_scaled")),
        (Limits(max_train_nodes=1), ("rollout_scaled", "isolated")),
        (Limits(max_train_nodes=2), ("rollout_scaled", "train_scaled")),
    ],
)
def test_no_node_beyond_the_limit_of_a_group(
    name: str, limits: Limits, kinds: tuple[str, str]
) -> None:
    for pool, kind in zip(("rollout", "train"), kinds, strict=True):
        policy = joining(name, limits=limits)
        state = {f"{pool}_state_gb": FULL_GB}
        policy.arrive(job_of("a", 10, 10, **state), 0.0)
        change = policy.arrive(job_of("b", 10, 10, **state), 0.0)
        assert change.admission == kind
        assert {v.rule for v in violations(group_of(change), limits=limits)} <= {"slo"}


@both
def test_what_fits_no_empty_node_is_refused(name: str) -> None:
    for more in ({"rollout_state_gb": 2001.0}, {"train_state_gb": 2001.0}):
        with pytest.raises(InfeasibleError, match="host DRAM"):
            joining(name).arrive(job_of("big", 10, 10, **more), 0.0)
    policy = joining(name, limits=Limits(max_rollout_nodes=2))
    policy.arrive(job_of("a", 10, 10), 0.0)
    with pytest.raises(InfeasibleError, match="max_rollout_nodes"):
        policy.arrive(job_of("wide", 10, 10, rollout_nodes=3), 0.0)


@both
def test_what_fits_no_empty_node_is_refused_beside_others_too(name: str) -> None:
    """The train pool has room, so the group is a candidate; the bought node is too small."""
    policy = joining(name)
    policy.arrive(job_of("a", 10, 10), 0.0)
    with pytest.raises(InfeasibleError, match="host DRAM"):
        policy.arrive(job_of("big", 10, 10, rollout_state_gb=2001), 0.0)


# --- Pins: the least loaded, ties by node id ----------------------------------------------------


@both
def test_the_least_loaded_nodes_and_ties_by_id(name: str) -> None:
    """A gang opens nodes 0, 1, 2 (load 1 each); the others fill them up."""
    policy = joining(name, limits=Limits(max_group_size=0))
    policy.arrive(job_of("gang", 1, 1, rollout_nodes=3, train_nodes=3), 0.0)
    for job, rollout, train in (
        (job_of("a", 10, 5), (0,), (0,)),  # 1 1 1 | 1 1 1: a tie, the lowest id
        (job_of("b", 5, 9), (1,), (1,)),  # 11 1 1 | 6 1 1
        (job_of("c", 20, 2), (2,), (2,)),  # 11 6 1 | 6 10 1
        (job_of("d", 4, 4), (1,), (2,)),  # 11 6 21 | 6 10 3: pools apart
        (job_of("e", 1, 1, rollout_nodes=2, train_nodes=2), (0, 1), (0, 2)),  # 11 10 21 | 6 10 7
    ):
        group = group_of(policy.arrive(job, 0.0))
        assert (group.rollout_pins[-1], group.train_pins[-1]) == (rollout, train), job.job_id


@both
def test_the_least_loaded_with_room(name: str) -> None:
    """Node 1 has the least load and no DRAM left: the next one is taken."""
    policy = joining(name)
    policy.arrive(job_of("gang", 1, 1, rollout_nodes=3), 0.0)
    policy.arrive(job_of("a", 10, 1), 0.0)  # node 0: load 11
    policy.arrive(job_of("b", 2, 1, rollout_state_gb=1900), 0.0)  # node 1: load 3, 1,900 GB
    policy.arrive(job_of("c", 5, 1), 0.0)  # node 2: load 6
    group = group_of(policy.arrive(job_of("d", 1, 1, rollout_state_gb=200), 0.0))
    assert group.rollout_pins[-1] == (2,)


@both
def test_loads_include_switches(name: str) -> None:
    """Node 0 carries 1 + (6 + 3 switch) = 10 s, node 1 carries 1 + 8 = 9 s."""
    policy = joining(name)
    policy.arrive(job_of("gang", 1, 1, rollout_nodes=2), 0.0)
    policy.arrive(job_of("a", 6, 1, rollout_switch_s=3), 0.0)
    assert group_of(policy.arrive(job_of("b", 8, 1), 0.0)).rollout_pins[-1] == (1,)
    assert group_of(policy.arrive(job_of("c", 1, 1), 0.0)).rollout_pins[-1] == (1,)


# --- Departures ---------------------------------------------------------------------------------


@both
def test_departures_release_nodes_and_pins_never_move(name: str) -> None:
    """b has rollout node 1 to itself; when b goes it goes, and its number is never used again."""
    policy = joining(name)
    a = job_of("a", 10, 10, rollout_state_gb=FULL_GB)
    b = job_of("b", 10, 10, rollout_state_gb=FULL_GB)
    c = job_of("c", 20, 5, rollout_state_gb=FULL_GB)
    policy.arrive(a, 0.0)
    assert group_of(policy.arrive(b, 0.0)).rollout_nodes == (0, 1)
    alone = policy.depart(b, 1.0)
    (group,) = alone.groups
    assert (alone.admission, alone.ended) == (None, ())
    assert (group.rollout_nodes, group.train_nodes) == ((0,), (0,))
    assert group.period_s == a.solo_s
    assert violations(group) == []
    group = group_of(policy.arrive(c, 2.0))
    assert group.rollout_pins == ((0,), (2,))
    left = policy.depart(a, 3.0).groups[0]
    assert (left.rollout_pins, left.train_pins) == (((2,),), ((0,),))
    assert policy.depart(c, 4.0) == Change((), (1,))
    assert group_of(policy.arrive(b, 5.0)).number == 2  # groups' numbers, too


# --- most-idle: who idles most ------------------------------------------------------------------


def test_idle_fraction_by_hand() -> None:
    def alone(job: Job) -> float:
        return idle_fraction(GroupState.alone(job, 1))

    assert alone(job_of("a", 10, 10)) == 0.5  # each node runs 10 of 20 s
    assert alone(job_of("a", 10, 10, sync_s=20)) == 0.75  # 20 of 2 x 40 s: sync is idle time
    # 30 s on one node, 10 s on three, in a period of 40 s of four nodes.
    assert alone(job_of("a", 30, 10, train_nodes=3)) == pytest.approx(1 - 60 / 160)
    # Two jobs, 10 + 2 s of switch each: a period of 24 s, switches are not run time.
    policy = joining("most-idle")
    twins = [job_of(i, 10, 10, rollout_switch_s=2, train_switch_s=2) for i in "ab"]
    group = [group_of(policy.arrive(job, 0.0)) for job in twins][-1]
    assert group.period_s == 24
    assert idle_fraction(group) == pytest.approx(1 - 40 / 48)


def test_most_idle_joins_the_largest_idle_fraction() -> None:
    """Idle 0.5, 0.75, 0.625; after joining, b's group runs 40 of 2 x 40 s: idle 0.5."""
    policy = joining("most-idle")
    for job in (full("a", 10, 10), full("b", 10, 10, sync_s=20), full("c", 30, 10, train_nodes=3)):
        assert policy.arrive(job, 0.0).admission == "isolated"
    first = group_of(policy.arrive(job_of("d", 10, 10), 0.0))
    assert members([first]) == {2: ["b", "d"]}
    assert idle_fraction(first) == 0.5
    assert members([group_of(policy.arrive(job_of("e", 10, 10), 0.0))]) == {3: ["c", "e"]}


def test_most_idle_takes_the_oldest_on_ties() -> None:
    """(10, 10), (25, 25) and (3, 3) alone all idle 0.5."""
    policy = joining("most-idle")
    for job in (full("a", 10, 10), full("b", 25, 25), full("c", 3, 3)):
        policy.arrive(job, 0.0)
    joined = group_of(policy.arrive(job_of("d", 10, 10), 0.0))
    assert members([joined]) == {1: ["a", "d"]}
    assert idle_fraction(joined) == 0.0
    # Now the first group never idles; b and c still tie.
    assert members([group_of(policy.arrive(job_of("e", 3, 3), 0.0))]) == {2: ["b", "e"]}


def test_most_idle_opens_a_group_only_without_candidate() -> None:
    policy = joining("most-idle", limits=Limits(max_group_size=3))
    kinds = [policy.arrive(job_of(f"j{i}", 10, 10, 1.0), 0.0).admission for i in range(7)]
    assert kinds == ["isolated", "direct", "direct"] * 2 + ["isolated"]


# --- random: uniform over candidates and "new" --------------------------------------------------


def test_random_draws_among_the_candidates_and_new() -> None:
    """Three groups, one of them full: the number of choices is candidates + 1, "new" is last."""
    policy, rng = dealt(0, 0, 0, 2, 1, 0, limits=Limits(max_group_size=2))
    for job in (full("a", 10, 10), full("b", 10, 10), full("c", 10, 10)):
        assert policy.arrive(job, 0.0).admission == "isolated"
    assert rng.choices == [1, 1, 1]  # nothing but "new"
    arrivals = [job_of(i, 10, 10) for i in "defg"]
    groups = [group_of(policy.arrive(job, 0.0)) for job in arrivals]
    # Third of three groups; second of (a, b); first of (a); then only "new" is left.
    assert [members([g]) for g in groups] == [
        {3: ["c", "d"]}, {2: ["b", "e"]}, {1: ["a", "f"]}, {4: ["g"]},
    ]  # fmt: skip
    assert rng.choices[3:] == [4, 3, 2, 1]


def test_random_opens_a_group_although_there_is_room() -> None:
    policy, rng = dealt(0, 1)
    policy.arrive(job_of("a", 10, 10), 0.0)
    change = policy.arrive(job_of("b", 10, 10), 0.0)
    assert (change.admission, group_of(change).number) == ("isolated", 2)
    assert rng.choices == [1, 2]


def test_random_is_uniform_over_seeds() -> None:
    """Two candidates and "new", each 1/3 of 1,500 seeds: 500 within 5 standard deviations."""
    seeds = 1500
    counts: Counter[int] = Counter()
    for seed in range(seeds):
        policy = RandomGroup(options_of(seed=seed))
        for job in (full("a", 10, 10), full("b", 10, 10)):
            policy.arrive(job, 0.0)
        counts[group_of(policy.arrive(job_of("c", 10, 10), 0.0)).number] += 1
    assert set(counts) == {1, 2, 3}
    spread = 5 * math.sqrt(seeds * (1 / 3) * (2 / 3))
    assert all(abs(n - seeds / 3) < spread for n in counts.values()), counts


# --- Replays ------------------------------------------------------------------------------------


def random_trace(seed: int, n: int = 30) -> JobTable:
    """Return gangs, ties, full nodes, async jobs and simultaneous events."""
    rng = random.Random(seed)
    return table_of(
        *(
            random_job(
                rng,
                f"j{i}",
                arrival_s=float(rng.randint(0, 20) * 50),
                duration_s=float(rng.randint(1, 1500)),
                mode=rng.choice(("sync", "sync", "sync", "async")),
            )
            for i in range(n)
        )
    )


TRACES = {
    "random-1": (random_trace(1), Limits()),
    "random-2": (random_trace(2), Limits(max_group_size=0)),
    "random-3": (random_trace(3), Limits(max_rollout_nodes=3, max_train_nodes=2)),
    "random-4": (random_trace(4), Limits(max_group_size=2, max_rollout_nodes=4)),
    "gangs": (production(n_jobs=40, seed=3, gangs=True), Limits()),
    "production": (production(n_jobs=40, seed=4), Limits()),
}
all_traces = pytest.mark.parametrize("trace", TRACES)


def replayed(trace: str, name: str, convention: Convention, seed: int = 0) -> ReplayResult:
    jobs, limits = TRACES[trace]
    return replay(jobs, name, options_of(limits=limits, seed=seed), convention=convention)


@all_traces
@both
@both_conventions
def test_only_slos_are_ever_broken(trace: str, name: str, convention: Convention) -> None:
    """The independent checker agrees on stays, pins, nodes, residency, overlap and price."""
    result = replayed(trace, name, convention)
    assert result.plan is not None
    report = check_plan(result.plan)
    assert set(report.counts) <= {"slo"}
    assert set(result.breaches) <= {"slo"}
    # Versions that several events of one moment replace are counted, and not in the plan.
    assert result.breaches.get("slo", 0) >= report.counts.get("slo", 0)
    moments = [*result.jobs.arrival_s.tolist(), *(r.departure_s for r in result.records)]
    if len(set(moments)) == len(moments):
        assert result.breaches == report.counts
    assert (result.promises_valid, result.checked, result.ratio) == (False, False, None)


@all_traces
@both
@both_conventions
def test_pins_never_move_and_nodes_live_while_pinned(
    trace: str, name: str, convention: Convention
) -> None:
    result = replayed(trace, name, convention)
    assert result.plan is not None
    homes = defaultdict(set)
    for version in result.plan.groups:
        for p in version.placements:
            homes[p.job_id].add((version.group_id, p.rollout_pins, p.train_pins))
        for nodes, pinned in (
            (version.rollout_nodes, [n for p in version.placements for n in p.rollout_pins]),
            (version.train_nodes, [n for p in version.placements for n in p.train_pins]),
        ):
            assert nodes == tuple(sorted(set(pinned)))
    assert all(len(home) == 1 for home in homes.values())
    line = result.timeline
    assert (line.rollout_nodes[-1], line.train_nodes[-1], line.jobs[-1]) == (0, 0, 0)


@all_traces
@both
def test_admissions_add_up(trace: str, name: str) -> None:
    """Every kind is listed; async jobs have nodes of their own and are not admitted."""
    result = replayed(trace, name, "work")
    sync = sum(job.mode == "sync" for job in result.jobs)
    assert result.admission is not None
    assert tuple(result.admission) == make_policy(name, options_of()).admission_kinds
    assert sum(result.admission.values()) == sync
    kinds = Counter(r.admission for r in result.records if r.admission)
    assert {k: n for k, n in result.admission.items() if n} == kinds


def test_breaches_are_counted_over_versions() -> None:
    """Three jobs of 20 s without slack, from 0, 10 and 20 s, 1,000 s each (wallclock).

    Alone and in two, T = 20 s holds; three have a period of 30 s from 20 to 1,000 s: three
    breaches in one version.
    """
    jobs = table_of(*(job_of(f"j{i}", 10, 10, 1.0, arrival_s=10.0 * i, duration_s=1000)
                      for i in range(3)))  # fmt: skip
    for check in (False, True):  # counted even where nothing is checked
        result = replay(jobs, "most-idle", options_of(), convention="wallclock", check=check)
        assert result.breaches == {"slo": 3}
        assert result.slo_attainment == result.slo_attainment_worst_period == 0.0
        assert result.admission == {
            "direct": 2, "rollout_scaled": 0, "train_scaled": 0, "isolated": 1,
        }  # fmt: skip
    # The first job: 20 s alone and in two, then 980 s at 30 s an iteration.
    assert result.records[0].iterations == pytest.approx(20 / 20 + 980 / 30)
    document = json.loads(json.dumps(policy_document(result), allow_nan=False))
    assert document["checked"] is False
    assert document["breaches"] == {"slo": 3}
    assert document["slo_attainment"] == 0.0
    assert document["ratio"] is None
    for key in ("bound_usd_per_hour_mean", "bound_method", "bound_options"):
        assert document[key] is None


@both
def test_work_has_no_ratio_and_no_bound_either(name: str) -> None:
    document = policy_document(replayed("production", name, "work"))
    assert document["trajectory_ratio"] is document["bound_usd_total"] is None
    assert "ratio" not in document
    assert document["admission"] is not None
    assert sum(document["admission"].values()) == pytest.approx(1)


def test_nothing_broken_is_an_empty_count() -> None:
    result = replay(table_of(job_of("a", 10, 10, 1.0)), "most-idle", options_of())
    assert (result.breaches, result.checked, result.slo_attainment) == ({}, False, 1.0)
    assert policy_document(result)["breaches"] == {}


# --- Seeds --------------------------------------------------------------------------------------


def plan_bytes(result: ReplayResult) -> str:
    assert result.plan is not None
    return json.dumps(plan_to_dict(result.plan))


@both_conventions
def test_the_same_seed_is_the_same_plan(convention: Convention) -> None:
    one = {seed: plan_bytes(replayed("production", "random", convention, seed)) for seed in (1, 2)}
    again = plan_bytes(replayed("production", "random", convention, 1))
    assert one[1] == again
    assert one[1] != one[2]


def test_most_idle_does_not_draw() -> None:
    plans = {plan_bytes(replayed("random-1", "most-idle", "work", seed)) for seed in (1, 2, 3)}
    assert len(plans) == 1


def test_two_policies_do_not_share_a_generator() -> None:
    """Interleaved or not, a seed gives the same groups."""

    def groups(interleave: bool) -> list[int]:
        one, other = (RandomGroup(options_of(seed=7)) for _ in range(2))
        out = []
        for i in range(12):
            out.append(group_of(one.arrive(job_of(f"j{i}", 10, 10), 0.0)).number)
            if interleave:
                other.arrive(job_of(f"j{i}", 10, 10), 0.0)
        return out

    assert groups(True) == groups(False)


def test_room_is_that_of_the_cluster_given() -> None:
    small = cluster_of(host_dram_gb=100)
    twins = [job_of(i, 10, 10, rollout_state_gb=60, train_state_gb=60) for i in "ab"]
    for cluster, kind in ((small, "isolated"), (DEFAULT_CLUSTER, "direct")):
        policy = joining("most-idle", cluster=cluster)
        assert [policy.arrive(job, 0.0).admission for job in twins] == ["isolated", kind]
