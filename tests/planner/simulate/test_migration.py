"""Long-tail migration: by hand, by simpy, against the run without it, by properties."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import simpy

from builders import job_of, table_of
from instances.errors import InputError, UnsupportedError
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion
from models.group.period import construct
from models.problem.compiled import plain
from period_cases import Case, random_cases
from planner.simulate.lengths import PhaseSampler
from planner.simulate.migration import Migration, MigrationRun, run_with_migration
from planner.simulate.migration_draws import RolloutDraws, on_slots
from planner.simulate.runtime import simulate_group
from runtime_cases import version_of_case

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Known:
    """The same responses and train seconds in each iteration; ``slots_per_gpu`` 10."""

    jobs: JobTable
    responses: tuple[tuple[float, ...], ...]
    slots_per_gpu: int = 10
    seed: int = 0

    @property
    def slots(self) -> tuple[int, ...]:
        return tuple(int(nodes) * 8 * self.slots_per_gpu for nodes in self.jobs.rollout_nodes)

    def phases(self, job: int, iteration_from: int, count: int) -> tuple[FloatArray, FloatArray]:
        """Return rollout and train seconds."""
        return (
            np.full(count, max(self.responses[job])),
            np.full(count, self.jobs.train_s[job]),
        )

    def finish_s(self, job: int, iteration_from: int, count: int) -> FloatArray:
        """Return the ends of all responses."""
        return np.tile(np.sort(np.array(self.responses[job])), (count, 1))


def group(
    jobs: Sequence[Job], rollout_pins: Sequence[tuple[int, ...]], train_pins: Sequence[int]
) -> tuple[GroupVersion, JobTable]:
    """Return a group in the order of its construction at worst-case seconds."""
    case = Case(tuple(jobs), tuple(rollout_pins), tuple((x,) for x in train_pins), (1,) * len(jobs))
    schedule = construct(case.shape())
    assert schedule is not None
    return version_of_case(case, schedule), table_of(*jobs)


def asking(version: GroupVersion, *at_s: float) -> GroupVersion:
    """Return the group with first rollouts that ask at these seconds, as no plan would."""
    return replace(
        version,
        period_s=200.0,
        placements=tuple(
            replace(p, starts_s=((at, at + 150.0),))
            for p, at in zip(version.placements, at_s, strict=True)
        ),
    )


#: Ten responses: eight end at 40, one at 70, the last at 100.
TAIL = (40.0,) * 8 + (70.0, 100.0)


def twins(train_s: float, responses: tuple[float, ...] = TAIL) -> tuple[GroupVersion, Known]:
    """Two jobs of one rollout node, each on a train node of its own."""
    jobs = [job_of(name, 100.0, train_s, slo=9.0) for name in "ab"]
    version, table = group(jobs, [(0,), (0,)], [0, 1])
    return version, Known(table, (responses, responses))


def run(
    version: GroupVersion, source: Any, migration: Migration | None, **more: Any
) -> MigrationRun:
    draws = RolloutDraws(source)
    return run_with_migration(version, source.jobs, draws, migration, **more)


def period_s(got: MigrationRun) -> float:
    """Seconds of one iteration of the first job."""
    return 3600.0 / got.iterations_per_hour[0]


# --- by hand --------------------------------------------------------------------------------------


def test_two_jobs_whose_tails_move_share_a_node_by_the_part_before() -> None:
    """r = 100 of which 40 until 80 % have finished; t = 10; one rollout node.

    Without: the node's load, 2 x 100. With a free move: a job alone takes 100 + 10, the node
    2 x 40: 110. A move of 5 s: rollouts end at 40 + 5 + 60, so 105 + 10 = 115, above 2 x 45.
    Where b moves only when a asks, 115 after its start, a waits for the 5 s: 120.
    Twice as slow a tail: 40 + 5 + 120 + 10 = 175 (b ends by itself, before a's rest).
    """
    version, source = twins(10.0)
    assert period_s(run(version, source, None)) == pytest.approx(200.0)
    assert period_s(run(version, source, Migration(migration_s=0.0))) == pytest.approx(110.0)
    always = Migration(migration_s=5.0, when="always")
    assert period_s(run(version, source, always)) == pytest.approx(115.0)
    assert period_s(run(version, source, Migration(migration_s=5.0))) == pytest.approx(120.0)
    slow = Migration(migration_s=5.0, tail_slowdown=2.0)
    assert period_s(run(version, source, slow)) == pytest.approx(175.0)


def test_starts_of_the_first_turn() -> None:
    """a 0, its rest moves at 40, b from 45 on; a ends at 105, trains to 115, starts again then.

    b's rest may move at 85, but a's is on those GPUs until 105: it does not wait then, as nobody
    asks before 115, when b (end 145) moves: its rest ends at 115 + 5 + 30 = 150, a runs from 120.
    """
    version, source = twins(10.0)
    version = asking(version, 0.0, 1.0)
    got = run(version, source, Migration(migration_s=5.0), periods=2, warmup=0)
    phases = {(p.job, p.pool, p.iteration): p for p in got.phases}
    assert phases[0, 0, 0].moved_s == pytest.approx(40.0)
    assert phases[0, 0, 0].end_s == pytest.approx(105.0)
    assert phases[1, 0, 0].start_s == pytest.approx(45.0)
    assert phases[1, 0, 0].moved_s == pytest.approx(115.0)
    assert phases[1, 0, 0].end_s == pytest.approx(150.0)
    assert phases[0, 0, 1].start_s == pytest.approx(120.0)


def test_the_rest_is_slower_where_its_kv_cache_counts() -> None:
    """Two responses left at 40, from 8 GPUs to one, each cache as large as the weights: a step
    reads 3 instead of 1 + 2 / 8 times the weights, 2.4 times as long: 40 + 2.4 x 60 = 184. On
    two GPUs 2 / 1.25 = 1.6 times: 40 + 96.
    """
    version, source = twins(10.0)
    for gpus, end_s in ((1, 184.0), (2, 136.0)):
        move = Migration(migration_s=0.0, kv_share=1.0, gpus=gpus)
        got = run(asking(version, 0.0, 1.0), source, move, periods=2, warmup=0)
        first = next(p for p in got.phases if (p.job, p.pool, p.iteration) == (0, 0, 0))
        assert first.end_s == pytest.approx(end_s)


def test_the_next_rollout_is_slower_while_the_rest_keeps_gpus() -> None:
    """As above, k = 4: the rest takes (1 + 2 / 4) / (1 + 2 / 8) = 1.2 times as long, to 40 + 72.
    b's ten responses start on 4 GPUs at 40 and take (1 + 10 / 4) / (1 + 10 / 8) = 14 / 9 times as
    long until 112: by then 72 x 9 / 14 of their seconds are done, so b's 100 would end 72 x 5 / 14
    later. At 122 a asks again: b's own two move, 1.2 times as long from there. Where weights
    dominate nothing of this is so: 40 + 100.
    """
    version, source = twins(10.0)
    version = asking(version, 0.0, 1.0)
    slow_s = 122.0 + 1.2 * (140.0 + 72.0 * 5 / 14 - 122.0)
    for share, end_s in ((1.0, slow_s), (0.0, 140.0)):
        move = Migration(migration_s=0.0, kv_share=share, gpus=4)
        got = run(version, source, move, periods=2, warmup=0)
        b = next(p for p in got.phases if (p.job, p.pool, p.iteration) == (1, 0, 0))
        assert b.start_s == pytest.approx(40.0)
        assert b.end_s == pytest.approx(end_s)


def test_slots_that_a_rest_gives_back_join_by_the_clock() -> None:
    """One slot a GPU, k = 4, cache as large as the weights. a: six responses end at 40, two at 100;
    (1 + 2 / 4) / (1 + 2 / 8) = 1.2: its rest ends at 40 + 72 = 112. b: eight of 50 s, four at once:
    (1 + 4 / 4) / (1 + 8 / 8) = 1, no slower, end at 90; the other four follow: 140.
    """
    jobs = [job_of("a", 100.0, 10.0, slo=9.0), job_of("b", 50.0, 10.0, slo=9.0)]
    version, table = group(jobs, [(0,), (0,)], [0, 1])
    source = Known(table, ((40.0,) * 6 + (100.0,) * 2, (50.0,) * 8), slots_per_gpu=1)
    move = Migration(threshold=0.75, migration_s=0.0, kv_share=1.0, gpus=4)
    got = run(asking(version, 0.0, 1.0), source, move, periods=2, warmup=0)
    b = next(p for p in got.phases if (p.job, p.pool, p.iteration) == (1, 0, 0))
    assert b.end_s == pytest.approx(140.0)


def test_a_train_bound_group_gains_nothing_and_loses_when_it_always_moves() -> None:
    """Two jobs, r = 10, t = 100 on one train node: 200 whatever rollouts do; nobody waits for
    the rollout node. Alone on the train node but for one short job, the chain is what counts:
    a's 10 + 100 + 5, where moving is of no use to anybody.
    """
    quick = tuple(x / 10 for x in TAIL)
    jobs = [job_of(name, 10.0, 100.0, slo=9.0) for name in "ab"]
    version, table = group(jobs, [(0,), (0,)], [0, 0])
    source = Known(table, (quick, quick))
    for when in ("wanted", "always"):
        got = run(version, source, Migration(when=when))
        assert period_s(got) == pytest.approx(200.0)
    assert run(version, source, Migration()).moved_share < 0.1
    version, table = group(jobs, [(0,), (0,)], [0, 1])
    source = Known(table, (quick, quick))
    assert period_s(run(version, source, None)) == pytest.approx(110.0)
    assert period_s(run(version, source, Migration(when="always"))) == pytest.approx(115.0)
    assert run(version, source, Migration()).moved_share < 0.1


def test_the_rest_waits_until_it_fits() -> None:
    """One slot a GPU and ten responses on two nodes: nine have ended before one GPU holds it."""
    jobs = [job_of(name, 100.0, 10.0, slo=9.0, rollout_nodes=2) for name in "ab"]
    version, table = group(jobs, [(0, 1), (0, 1)], [0, 1])
    source = Known(table, (TAIL, TAIL), slots_per_gpu=1)
    got = run(version, source, Migration(migration_s=0.0), periods=3, warmup=0)
    assert min(p.moved_s - p.run_s for p in got.phases if p.moved_s is not None) == pytest.approx(
        70.0
    )
    got = run(version, source, Migration(migration_s=0.0, gpus=2), periods=3, warmup=0)
    assert min(p.moved_s - p.run_s for p in got.phases if p.moved_s is not None) == pytest.approx(
        40.0
    )


def test_responses_of_the_next_rollout_wait_for_the_slots_of_the_rest() -> None:
    """One slot a GPU, eight equal responses of 50 s, k = 1: the eighth slot is a's until 100.

    a: seven responses end at 40, one at 100. It moves at 40 for nothing; b starts seven of its
    own, which end at 90 and take the eighth from then: 40 + 50 + 50 = 140, before the slot of
    the rest, at 100, would end it at 150.
    """
    jobs = [job_of("a", 100.0, 10.0, slo=9.0), job_of("b", 50.0, 10.0, slo=9.0)]
    version, table = group(jobs, [(0,), (0,)], [0, 1])
    version = asking(version, 0.0, 1.0)
    source = Known(table, ((40.0,) * 7 + (100.0,), (50.0,) * 8), slots_per_gpu=1)
    got = run(version, source, Migration(migration_s=0.0), periods=2, warmup=0)
    phases = {(p.job, p.pool, p.iteration): p for p in got.phases}
    assert phases[1, 0, 0].start_s == pytest.approx(40.0)
    assert phases[1, 0, 0].end_s == pytest.approx(140.0)


def test_whole_nodes_of_a_gang() -> None:
    """a on nodes 0 and 1, b on 0, c on 1. The rest of a keeps node 0 whole (``node``), so c
    starts at 40 and b at 100; with ``gpu`` both at 40.
    """
    jobs = [
        job_of("a", 100.0, 10.0, slo=9.0, rollout_nodes=2),
        job_of("b", 100.0, 10.0, slo=9.0),
        job_of("c", 100.0, 10.0, slo=9.0),
    ]
    version, table = group(jobs, [(0, 1), (0,), (1,)], [0, 1, 2])
    version = asking(version, 0.0, 1.0, 1.0)
    source = Known(table, (TAIL,) * 3)

    def first_starts(granularity: Any) -> list[float]:
        migration = Migration(migration_s=0.0, granularity=granularity)
        got = run(version, source, migration, periods=2, warmup=0)
        of = {(p.job, p.pool, p.iteration): p.start_s for p in got.phases}
        return [of[j, 0, 0] for j in range(3)]

    assert first_starts("node") == pytest.approx([0.0, 100.0, 40.0])
    assert first_starts("gpu") == pytest.approx([0.0, 40.0, 40.0])


@pytest.mark.parametrize(
    ("gpus", "granularity", "nodes", "kept"),
    [
        (1, "gpu", 1, [1]),
        (10, "gpu", 2, [8, 2]),
        (1, "node", 2, [8, 0]),
        (8, "gpu", 1, [8]),  # nothing is left to free
        (1, "node", 1, [8]),
        (20, "gpu", 2, [8, 8]),
    ],
)
def test_gpus_kept(gpus: int, granularity: Any, nodes: int, kept: list[int]) -> None:
    assert Migration(gpus=gpus, granularity=granularity).kept(nodes) == kept


# --- no migration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "migration",
    [
        None,
        Migration(threshold=1.0),
        Migration(migration_s=float("inf")),
        Migration(granularity="node"),  # no gang of two nodes among these
        Migration(gpus=8),
    ],
)
def test_without_migration_starts_are_those_of_the_group_exactly(
    migration: Migration | None,
) -> None:
    for case in random_cases(21, 40, 3):
        if any(job.rollout_nodes > 1 for job in case.jobs):
            continue
        schedule = construct(case.shape())
        assert schedule is not None
        version, periods = version_of_case(case, schedule), 5
        source = PhaseSampler(table_of(*case.jobs), seed=3)
        got = run(version, source, migration, periods=periods, warmup=0)
        want = simulate_group(version, source.jobs, source, iterations=periods + 3, events=10_000)
        starts = {(e.job, e.pool, e.iteration): (e.start_s, e.run_s, e.end_s) for e in want.events}
        assert got.moved == 0
        for p in got.phases:
            key = (p.job, ("rollout", "train")[p.pool], p.iteration)
            assert (p.start_s, p.run_s, p.end_s) == starts[key]


# --- an independent run ---------------------------------------------------------------------------


def simpy_twins(
    ends: Sequence[Sequence[FloatArray]], train_s: float, threshold: float, cost_s: float,
    until: int,
) -> list[list[float]]:  # fmt: skip
    """Return rollout starts of two jobs by turns on one node, moved at the threshold always.

    Slots are ample. Tokens pass between processes; nothing is shared with the code under test.
    """
    env = simpy.Environment()
    node = [simpy.Store(env, 1), simpy.Store(env, 1)]  # whose turn it is
    corner = simpy.Resource(env)  # the GPUs of the rest
    starts: list[list[float]] = [[], []]
    node[0].put("turn")

    def job(j: int) -> Any:
        for i in range(until):
            yield node[j].get()
            starts[j].append(env.now)
            begun, mine = env.now, ends[j][i]
            yield env.timeout(float(mine[int(np.ceil(threshold * len(mine))) - 1]))
            end_s = begun + float(mine[-1])
            ask = corner.request()
            got = yield ask | env.timeout(end_s - env.now)
            if ask in got and env.now < end_s:
                left_s = end_s - env.now
                yield env.timeout(cost_s)
                node[1 - j].put("turn")
                yield env.timeout(left_s)
            else:
                node[1 - j].put("turn")
            corner.release(ask)
            ask.cancel() if not ask.triggered else None
            yield env.timeout(train_s)

    env.process(job(0))
    env.process(job(1))
    env.run(until=1e7)
    return starts


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("cost_s", [0.0, 3.0])
def test_an_independent_run_agrees(threshold: float, cost_s: float) -> None:
    jobs = [job_of("a", 100.0, 10.0, slo=9.0), job_of("b", 130.0, 10.0, slo=9.0)]
    version, table = group(jobs, [(0,), (0,)], [0, 1])
    version = asking(version, 0.0, 0.5)
    sampler = PhaseSampler(table, seed=5, train_fixed_share=1.0)
    migration = Migration(threshold=threshold, migration_s=cost_s, when="always")
    got = run(version, sampler, migration, periods=30, warmup=0)
    ends = [[sampler.finish_s(j, i, 1)[0] for i in range(31)] for j in (0, 1)]
    want = simpy_twins(ends, 10.0, threshold, cost_s, 31)
    assert got.moved > 20
    for p in got.phases:
        if p.pool == 0:
            assert p.start_s == pytest.approx(want[p.job][p.iteration], rel=1e-9)


# --- properties -----------------------------------------------------------------------------------


def test_own_order_and_the_bounds_of_every_rollout() -> None:
    rng = random.Random(7)
    for case in random_cases(22, 40, 3):
        schedule = construct(case.shape())
        assert schedule is not None
        version = version_of_case(case, schedule)
        source = PhaseSampler(table_of(*case.jobs), seed=1, slots_per_gpu=64)
        migration = Migration(
            threshold=rng.choice((0.3, 0.8, 0.95)),
            gpus=rng.choice((1, 2, 6)),
            migration_s=rng.choice((0.0, 0.5)),
            tail_slowdown=rng.choice((1.0, 1.5)),
            kv_share=rng.choice((0.0, 0.04)),
            granularity=rng.choice(("gpu", "node")),  # type: ignore[arg-type]
            when=rng.choice(("wanted", "always")),  # type: ignore[arg-type]
        )
        got = run(version, source, migration, periods=6, warmup=0)
        index = {name: i for i, name in enumerate(source.jobs.job_id)}
        of = {(p.job, p.pool, p.iteration): p for p in got.phases}
        for (j, pool, i), p in of.items():
            job = case.jobs[j]
            if pool == 1:
                assert p.start_s >= of[j, 0, i].end_s
                if (j, 0, i + 1) in of and job.mode == "sync":
                    assert of[j, 0, i + 1].start_s >= p.end_s + job.sync_s - 1e-9
                continue
            alone_s = source.finish_s(index[job.job_id], i, 1)[0, -1]
            assert p.end_s - p.run_s >= alone_s * (1 - 1e-9)
            assert p.moved_s is None or p.run_s < p.moved_s < p.end_s


def test_same_seed_same_run() -> None:
    version, _ = twins(10.0)
    jobs = table_of(*[job_of(name, 100.0, 10.0, slo=9.0) for name in "ab"])
    got = [run(version, PhaseSampler(jobs, seed=s), Migration()).phases for s in (4, 4, 5)]
    assert got[0] == got[1] != got[2]


def test_the_kernel_is_its_plain_twin() -> None:
    rng = np.random.default_rng(0)
    lengths, free = rng.random(40), np.sort(rng.random(6))
    np.testing.assert_array_equal(on_slots(lengths, free), plain(on_slots)(lengths, free))


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 0.0},
        {"threshold": 1.1},
        {"gpus": 0},
        {"migration_s": -1.0},
        {"migration_s": float("nan")},
        {"tail_slowdown": 0.9},
        {"kv_share": -0.1},
        {"granularity": "rack"},
        {"when": "never"},
    ],
)
def test_numbers_out_of_range(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Migration(**wrong)


def test_more_responses_than_slots() -> None:
    version, source = twins(10.0, TAIL * 9)
    with pytest.raises(UnsupportedError, match="at most 80 responses"):
        run(version, source, Migration())
