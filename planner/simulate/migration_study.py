"""What long-tail migration earns: by lengths and pairing, beside the published 1.06 to 1.28.

*Measure*. ``gain``: iterations per hour of a group, all jobs together, with
:mod:`planner.simulate.migration` over without, at the same fixed orders and the same draws, so
gains are paired. One gain a seed; intervals are over seeds.

*Pairings* (:func:`pairings`): jobs of the table of phases in :mod:`instances.profiles`, sync and
switches by model size, on shared rollout nodes. Orders are those of the least period found at
worst-case seconds.

*Lengths* (:data:`LENGTHS`): shares of the token limit, from a median of 2 % with a long tail to a
third of all responses at the limit.

*What can be gained*. A group's period is at least every job's chain (switches, r, t, s), every
rollout node's load and every train node's. Migration cuts the second only: to the part of each
rollout before its move, plus ``migration_s``; it lengthens the first. So it helps where a rollout
node is what binds (:attr:`Cell.binds`), by at most its load over the next of the three. Where the
chain or a train node binds it earns nothing at best.

Where the rest runs slower on fewer GPUs (``tail_slowdown``, ``kv_share``), the chain is the longer
for it, and migration may hurt a group whose rollout node binds by little.

*Search* (:func:`search`). Threshold, ``k`` and ``when`` of the best mean gain over some seeds, no
migration being one candidate; reported over other seeds, so the best of many draws is not taken for
a gain.

*Inputs that are not published*: lengths, phase seconds, batch and slots, which jobs were paired,
``k``, the cost of a move, and how fast the rest runs. None is chosen to hit a number: rows give
ranges over the family, :func:`variants` changing one guess at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster
from instances.jobs import Job, JobTable
from instances.plan import DURATION_CONVENTIONS, GroupVersion, JobPlacement
from instances.profiles import PROFILE_TABLE, model_estimates
from models.group.period import construct
from models.problem.group_shape import GroupShape, Pins
from models.problem.options import Deadline
from planner.replay.interval import Interval, interval
from planner.simulate.lengths import SLOTS_PER_GPU, LengthLaw, PhaseSampler
from planner.simulate.migration import Migration, When, run_with_migration
from planner.simulate.migration_draws import RolloutDraws
from planner.size.sampled_runtimes import GUESSED_SHARES

if TYPE_CHECKING:
    from planner.replay.published import Row

__all__ = [
    "LENGTHS",
    "PUBLISHED_GAIN",
    "STUDY",
    "Cell",
    "Found",
    "Inputs",
    "Pairing",
    "cell_of",
    "each_migration_row",
    "pairings",
    "search",
    "variants",
]

STUDY: Final = "long-tail migration"
#: Published: throughput with migration at about 80 % of responses over that without.
PUBLISHED_GAIN: Final = (1.06, 1.28)
#: A slowdown that never binds.
_ANY_SLO: Final = 100.0
_EPS: Final = 1e-9
Progress = Callable[[int, int], None]


def _law(*points: tuple[float, float]) -> LengthLaw:
    return LengthLaw.through(1.0, points)


#: Lengths over the token limit: all guesses, the first that of traces without columns.
LENGTHS: Final[Mapping[str, LengthLaw]] = {
    "default guess": _law(*zip((0.5, 0.95, 0.99), GUESSED_SHARES, strict=True)),
    "long tail": _law((0.5, 0.1), (0.95, 0.4)),
    "medium": _law((0.5, 0.25), (0.95, 0.6)),
    "short tail": _law((0.5, 0.6), (0.95, 0.8)),
    "a third at the limit": _law((0.5, 0.7), (0.67, 1.0)),
}

#: Candidates of the search.
THRESHOLDS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
GPUS: Final = (1, 2, 4)
WHEN: Final[tuple[When, ...]] = ("wanted", "always")


# --- pairings -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Jobs and the nodes that they share."""

    name: str
    jobs: tuple[Job, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]

    def version(self) -> GroupVersion:
        """Return the group in the orders of the least period found at worst-case seconds."""
        schedule = construct(GroupShape.of(self.jobs, self.rollout_pins, self.train_pins))
        assert schedule is not None  # without a limit, one after the other always works
        columns = zip(self.jobs, self.rollout_pins, self.train_pins, schedule.starts_s, strict=True)
        return GroupVersion(
            group_id=self.name,
            from_s=0.0,
            to_s=schedule.period_s,
            period_s=schedule.period_s,
            rollout_nodes=_nodes(self.rollout_pins),
            train_nodes=_nodes(self.train_pins),
            placements=tuple(
                JobPlacement(job_id=job.job_id, rollout_pins=r, train_pins=t, starts_s=starts)
                for job, r, t, starts in columns
            ),
        )


def _nodes(pins: Sequence[Pins]) -> Pins:
    return tuple(sorted({node for nodes in pins for node in nodes}))


def _job(job_id: str, kind: str, size: str, cluster: Cluster, nodes: int = 1) -> Job:
    profile = PROFILE_TABLE[kind][size]
    estimates = model_estimates(np.array([profile.model_b]), cluster)
    columns: dict[str, Any] = {name: float(values[0]) for name, values in estimates.items()}
    return Job(
        job_id=job_id,
        rollout_s=profile.rollout_s,
        train_s=profile.train_s,
        slo=_ANY_SLO,
        rollout_nodes=nodes,
        **columns,
    )


def pairings(cluster: Cluster = DEFAULT_CLUSTER) -> tuple[Pairing, ...]:
    """Return the groups of the study; the second of a name in brackets is another size."""

    def job(job_id: str, kind: str, size: str = "M", nodes: int = 1) -> Job:
        return _job(job_id, kind, size, cluster, nodes)

    def on_one(name: str, *jobs: Job) -> Pairing:
        one: tuple[Pins, ...] = ((0,),) * len(jobs)
        return Pairing(name=name, jobs=jobs, rollout_pins=one, train_pins=one)

    heavy, balanced, trains = "rollout-heavy", "balanced", "train-heavy"
    return (
        on_one("two rollout-heavy", job("a", heavy), job("b", heavy)),
        on_one("rollout-heavy, long and short", job("a", heavy, "L"), job("b", heavy, "S")),
        on_one("two balanced", job("a", balanced), job("b", balanced)),
        on_one("rollout-heavy and train-heavy", job("a", heavy), job("b", trains)),
        on_one("two train-heavy", job("a", trains), job("b", trains)),
        on_one("three rollout-heavy", job("a", heavy), job("b", heavy), job("c", heavy)),
        Pairing(
            name="one on two rollout nodes, two on one",
            jobs=(job("a", heavy, nodes=2), job("b", heavy), job("c", heavy)),
            rollout_pins=((0, 1), (0,), (1,)),
            train_pins=((0,), (0,), (0,)),
        ),
    )


# --- one cell -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Guesses of a cell beside lengths and pairing.

    Attributes
    ----------
    label : str
    train_fixed_share : float
        Part of ``train_s`` that no length changes.
    slots_per_gpu : int
    migration : Migration
    """

    label: str = "defaults"
    train_fixed_share: float = 0.0
    slots_per_gpu: int = SLOTS_PER_GPU
    migration: Migration = field(default_factory=Migration)


def variants() -> tuple[Inputs, ...]:
    """Return the defaults, then one guess changed at a time."""
    usual = Inputs()
    move = usual.migration
    return (
        usual,
        Inputs(label="train as long as planned", train_fixed_share=1.0),
        Inputs(label="64 slots a GPU", slots_per_gpu=64),
        Inputs(label="a move is free", migration=replace(move, migration_s=0.0)),
        Inputs(label="a move takes 30 s", migration=replace(move, migration_s=30.0)),
        Inputs(label="tail twice as slow", migration=replace(move, tail_slowdown=2.0)),
        Inputs(
            label="a response's KV cache 4 % of weights", migration=replace(move, kv_share=0.04)
        ),
        Inputs(label="whether wanted or not", migration=replace(move, when="always")),
        Inputs(label="whole nodes only", migration=replace(move, granularity="node")),
    )


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Gain of one pairing, at one law of lengths and one set of guesses.

    Attributes
    ----------
    gain : Interval
        Over seeds.
    moved_share : float
        Mean share of rollouts of which a rest moved.
    before_share : float
        Mean seconds until the threshold over those of the whole rollout.
    binds : {"rollout", "train", "chain"}
        What asks most of the period without migration, by mean seconds.
    """

    pairing: str
    lengths: str
    inputs: Inputs
    gain: Interval
    moved_share: float
    before_share: float
    binds: str

    @property
    def effect(self) -> str:
        """Whether migration helps, hurts, or neither by the interval over seeds."""
        low = self.gain.mean if self.gain.low is None else self.gain.low
        high = self.gain.mean if self.gain.high is None else self.gain.high
        if low > 1 + _EPS:
            return "helps"
        return "hurts" if high < 1 - _EPS else "neither"

    @property
    def row(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "pairing": self.pairing,
            "lengths": self.lengths,
            "inputs": self.inputs.label,
            **self.inputs.migration.row,
            "train_fixed_share": self.inputs.train_fixed_share,
            "slots_per_gpu": self.inputs.slots_per_gpu,
            "gain": self.gain.mean,
            "gain_low": self.gain.low,
            "gain_high": self.gain.high,
            "seeds": self.gain.n,
            "rollouts_moved_share": self.moved_share,
            "before_share": self.before_share,
            "binds": self.binds,
            "effect": self.effect,
        }


@dataclass(frozen=True)
class _Ground:
    """One pairing with one seed's draws, and its iterations per hour without migration."""

    version: GroupVersion
    draws: RolloutDraws
    periods: int
    without: float

    @classmethod
    def of(
        cls, pairing: Pairing, law: LengthLaw, inputs: Inputs, seed: int, periods: int
    ) -> _Ground:
        jobs = JobTable.from_jobs(pairing.jobs)
        sampler = PhaseSampler(
            jobs,
            seed=seed,
            lengths=(law,) * len(jobs),
            slots_per_gpu=inputs.slots_per_gpu,
            gpus_per_node=inputs.migration.gpus_per_node,
            train_fixed_share=inputs.train_fixed_share,
        )
        version, draws = pairing.version(), RolloutDraws(sampler)
        run = run_with_migration(version, jobs, draws, periods=periods)
        return cls(version, draws, periods, run.total_per_hour)

    def gain(self, migration: Migration) -> tuple[float, float]:
        """Return the gain, and the share of rollouts of which a rest moved."""
        run = run_with_migration(
            self.version, self.draws.jobs, self.draws, migration, periods=self.periods
        )
        return run.total_per_hour / self.without, run.moved_share

    def before_share(self, threshold: float) -> float:
        """Return mean seconds until the threshold over mean seconds of the rollout."""
        before_s, whole_s = 0.0, 0.0
        for j, i in product(range(len(self.draws.jobs)), range(self.periods)):
            finish_s = self.draws.finish_s(j, i)
            before_s += finish_s[int(np.ceil(threshold * len(finish_s) - 1e-9)) - 1]
            whole_s += finish_s[-1]
        return before_s / whole_s

    def binds(self, pairing: Pairing) -> str:
        """Return what asks most of the period by mean seconds."""
        shape = GroupShape.of(pairing.jobs, pairing.rollout_pins, pairing.train_pins)
        mean = [
            np.mean([self.draws.phases(j, i) for i in range(self.periods)], axis=0)
            for j in range(len(pairing.jobs))
        ]
        phase_s = [
            [
                (shape.rollout_s, shape.train_s)[pool][j]
                - (job.rollout_s, job.train_s)[pool]
                + float(mean[j][pool])
                for j, job in enumerate(pairing.jobs)
            ]
            for pool in (0, 1)
        ]
        asks = {
            "chain": max(
                phase_s[0][j] + phase_s[1][j] + job.sync_s for j, job in enumerate(pairing.jobs)
            )
        }
        for pool, name in enumerate(("rollout", "train")):
            pins = (pairing.rollout_pins, pairing.train_pins)[pool]
            asks[name] = max(
                sum(s for s, nodes in zip(phase_s[pool], pins, strict=True) if node in nodes)
                for node in _nodes(pins)
            )
        return max(asks, key=lambda name: asks[name])


def _require(seeds: Sequence[int], periods: int) -> None:
    if not len(seeds) or periods < 10:
        raise InputError(
            f"Expected a seed and 10 periods at least, got {len(seeds)} and {periods}."
        )


def cell_of(
    pairing: Pairing,
    lengths: str,
    inputs: Inputs | None = None,
    *,
    seeds: Sequence[int] = range(5),
    periods: int = 60,
    laws: Mapping[str, LengthLaw] = LENGTHS,
) -> Cell:
    """Measure one cell.

    Raises
    ------
    InputError
        For no seed, fewer than 10 periods, or unknown lengths.
    """
    _require(seeds, periods)
    if lengths not in laws:
        raise InputError(f"Expected lengths in {', '.join(laws)}, got '{lengths}'.")
    inputs = inputs or Inputs()
    grounds = [_Ground.of(pairing, laws[lengths], inputs, seed, periods) for seed in seeds]
    return _cell(pairing, lengths, inputs, grounds)


def _cell(pairing: Pairing, lengths: str, inputs: Inputs, grounds: Sequence[_Ground]) -> Cell:
    found = [ground.gain(inputs.migration) for ground in grounds]
    threshold = inputs.migration.threshold
    return Cell(
        pairing=pairing.name,
        lengths=lengths,
        inputs=inputs,
        gain=interval([gain for gain, _ in found]),
        moved_share=float(np.mean([moved for _, moved in found])),
        before_share=float(np.mean([ground.before_share(threshold) for ground in grounds])),
        binds=grounds[0].binds(pairing),
    )


# --- the best threshold and k ---------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Found:
    """The best migration of a cell.

    Attributes
    ----------
    best : Cell
        Over seeds that the search did not see.
    usual : Cell
        The migration given, over the same seeds.
    tried : int
        Candidates, no migration included.
    """

    best: Cell
    usual: Cell
    tried: int

    @property
    def row(self) -> dict[str, Any]:
        """Plain values."""
        migration = self.best.inputs.migration
        return {
            "pairing": self.best.pairing,
            "lengths": self.best.lengths,
            "threshold": migration.threshold,
            "gpus": migration.gpus,
            "when": migration.when,
            "gain": self.best.gain.mean,
            "gain_low": self.best.gain.low,
            "gain_high": self.best.gain.high,
            "gain_usual": self.usual.gain.mean,
            "tried": self.tried,
        }


def _candidates(usual: Migration) -> Iterator[Migration]:
    """Yield candidates, simplest first: that is how ties go."""
    yield replace(usual, threshold=1.0)
    for when, gpus, threshold in product(WHEN, GPUS, reversed(THRESHOLDS)):
        yield replace(usual, threshold=threshold, gpus=gpus, when=when)


def search(
    pairing: Pairing,
    lengths: str,
    inputs: Inputs | None = None,
    *,
    seeds: Sequence[int] = range(5),
    search_seeds: Sequence[int] = range(100, 103),
    periods: int = 40,
    laws: Mapping[str, LengthLaw] = LENGTHS,
) -> Found:
    """Return the threshold, ``k`` and ``when`` of the largest mean gain over ``search_seeds``.

    Raises
    ------
    InputError
        For no seed, seeds in both lists, or unknown lengths.
    """
    _require(search_seeds, periods)
    if set(seeds) & set(search_seeds):
        raise InputError("Expected seeds apart from those of the search, got some in both.")
    if lengths not in laws:
        raise InputError(f"Expected lengths in {', '.join(laws)}, got '{lengths}'.")
    inputs = inputs or Inputs()
    grounds = [_Ground.of(pairing, laws[lengths], inputs, seed, periods) for seed in search_seeds]
    best, most, tried = inputs.migration, -1.0, 0
    for migration in _candidates(inputs.migration):
        tried += 1
        gain = float(np.mean([ground.gain(migration)[0] for ground in grounds]))
        if gain > most * (1 + _EPS):
            best, most = migration, gain
    grounds = [_Ground.of(pairing, laws[lengths], inputs, seed, periods) for seed in seeds]
    return Found(
        best=_cell(pairing, lengths, replace(inputs, label="best", migration=best), grounds),
        usual=_cell(pairing, lengths, inputs, grounds),
        tried=tried,
    )


# --- rows -----------------------------------------------------------------------------------------

_NOT_GIVEN: Final = (
    "lengths, phase seconds, batch and slots, k, the cost of a move and the speed of the rest are "
    "not published"
)


def _rows_of(pairing: Pairing, cells: Sequence[Cell]) -> Iterator[Row]:
    """Yield the row of the defaults, with its interval over seeds, and that of the family."""
    from planner.replay.published import AGREES, DIFFERS, Row  # the two tables know each other

    published = f"{PUBLISHED_GAIN[0]}-{PUBLISHED_GAIN[1]}"
    means = [cell.gain.mean for cell in cells]
    hurts = sum(cell.effect == "hurts" for cell in cells)
    spread = Interval(mean=float(np.mean(means)), low=min(means), high=max(means), n=len(means))
    binds = cells[0].binds
    for item, ours, why in (
        (
            f"{pairing.name}: gain at default guesses",
            cells[0].gain,
            f"{_NOT_GIVEN}; {_BINDS[binds]}",
        ),
        (
            f"{pairing.name}: gain over the family",
            spread,
            f"range over {len(cells)} sets of inputs, no interval of confidence; hurts in {hurts}; "
            f"{_NOT_GIVEN}",
        ),
    ):
        yield Row(
            study=STUDY,
            item=item,
            published=published,
            unit="x",
            ours=dict.fromkeys(DURATION_CONVENTIONS, ours),
            verdict=AGREES if ours.meets(*PUBLISHED_GAIN) else DIFFERS,
            why=why,
            over="inputs" if ours is spread else "seeds",
        )


_BINDS: Final = {
    "rollout": "a rollout node binds, so the gain is that node's load over what binds next",
    "train": "a train node binds, which migration leaves as it is",
    "chain": "one job's own phases bind, which migration lengthens",
}


def each_migration_row(
    *,
    seeds: Sequence[int] = range(5),
    periods: int = 40,
    laws: Mapping[str, LengthLaw] = LENGTHS,
    cluster: Cluster = DEFAULT_CLUSTER,
    deadline: Deadline | None = None,
    progress: Progress | None = None,
) -> Iterator[Row]:
    """Yield two rows a pairing, when it is done: at default guesses over seeds, and the range.

    The range is over the family of inputs that are not published.

    Parameters
    ----------
    deadline : Deadline, optional
        When it has passed, pairings not done are left out.
    progress : callable, optional
        Called with (cells done, cells).
    """
    _require(seeds, periods)
    groups = pairings(cluster)
    family = list(product(laws, variants()))
    for number, pairing in enumerate(groups):
        cells: list[Cell] = []
        grounds: dict[tuple[str, float, int], list[_Ground]] = {}
        for lengths, inputs in family:
            if deadline is not None and deadline.expired:
                return
            key = (lengths, inputs.train_fixed_share, inputs.slots_per_gpu)
            if key not in grounds:  # the same draws, however the rest moves
                grounds[key] = [
                    _Ground.of(pairing, laws[lengths], inputs, seed, periods) for seed in seeds
                ]
            cells.append(_cell(pairing, lengths, inputs, grounds[key]))
            if progress is not None:
                progress(number * len(family) + len(cells), len(groups) * len(family))
        yield from _rows_of(pairing, cells)
