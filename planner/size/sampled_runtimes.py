"""How long iterations really take: phase seconds drawn, run through the orders of a plan.

A plan is made with planned seconds; iterations differ. The *law* of a job says by how much.

*Rollout*. One iteration's rollout takes as long as the longest response of its batch:
``rollout_s`` when that reaches the token limit, in proportion below. By what the trace gives, the
first that applies:

1. ``rollout_p50_s`` and ``rollout_p95_s``: quantiles over iterations;
2. ``response_p50/p95/p99_tokens`` (two of them at least) and ``max_tokens``: quantiles over
   responses, of which a batch has ``prompts_per_step x samples_per_prompt`` (512 unless given, a
   guess), all independent; the q-quantile of the longest of n is the ``q^(1/n)`` quantile of one;
3. neither: a guess, lengths with quantiles 0.024, 0.17 and 0.38 of the limit at p50, p95 and p99.

Between and beyond the quantiles given, the logarithm is linear in the normal score: a lognormal
through two points. What is longer than the limit is cut off there.

*Train*: the same from ``train_p50_s`` and ``train_p95_s``; without both columns always ``train_s``.
A batch with longer responses trains longer too: both phases of an iteration stand at the same
quantile, and iterations and jobs are independent. *Sync and switches* take what they take.

*Running a plan*. In a version of a group every node serves its phases in the cyclic order of
``starts_s``, each as early as that order, the job's own order (rollout, train, sync, rollout) and,
for the first rollout, its planned start allow: a max-plus recursion. With all seconds as planned
no phase starts after its planned start, and shorter seconds never make a start later. So an
execution of a plan made at worst-case seconds breaks no promise on a mean iteration time.

*Measured*, for each job over its versions: a version's mean iteration time, from the planned start
of its first rollout to the start after the last iteration, gives iterations done in it; elapsed
seconds over the sum is held against ``D_j``. A single iteration is late when it takes more than
``D_j``, counted from its planned start where it began before that. A version that lasts long is
run for ``most_periods`` periods and extrapolated.

Assumptions: versions last as planned, also under ``work``, where a job that is faster or slower
than planned would leave at another time; a failure undoes as many iterations as planned. Async
jobs stand alone and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, floor, log
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, Plan
from models.problem.compiled import compiled
from models.problem.group_shape import GroupShape
from planner.replay.version_losses import paused_within, undone_within

__all__ = [
    "GUESSED_RESPONSES",
    "GUESSED_SHARES",
    "SOURCES",
    "JobLaw",
    "Law",
    "Sampled",
    "job_laws",
    "run_sampled",
    "run_version",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]

#: Response length over the token limit at p50, p95 and p99: a guess, close to a lognormal.
GUESSED_SHARES: Final = (0.024, 0.17, 0.38)
#: Responses of a batch where the trace does not say: a guess.
GUESSED_RESPONSES: Final = 512.0
#: Where a rollout's law may come from.
SOURCES: Final = ("rollout columns", "response columns", "guess")

_NORMAL: Final = NormalDist()
_SCORES: Final = tuple(_NORMAL.inv_cdf(share) for share in (0.5, 0.95, 0.99))
_REL: Final = 1e-9
_EPS_S: Final = 1e-6
_LEAST_SHARE: Final = 1e-300


# --- laws -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Law:
    """Seconds of a phase over iterations.

    Attributes
    ----------
    most_s : float
        Nothing takes longer.
    scores, log_s : tuple of float
        Normal scores and logarithms of the seconds there, ascending; empty: always ``most_s``.
    longest_of : float
        Independent draws of which the longest counts.
    """

    most_s: float
    scores: tuple[float, ...] = ()
    log_s: tuple[float, ...] = ()
    longest_of: float = 1.0

    def seconds(self, share: float) -> float:
        """Return the least seconds that a ``share`` of all iterations do not exceed."""
        if not 0 <= share <= 1:
            raise InputError(f"Expected a share in [0, 1], got {share!r}.")
        one = exp(log(max(share, _LEAST_SHARE)) / self.longest_of)
        if not self.scores or one >= 1.0:
            return self.most_s
        if one <= _LEAST_SHARE:
            return 0.0
        return self._at(_NORMAL.inv_cdf(one))

    def _at(self, score: float) -> float:
        last = len(self.scores) - 2
        piece = min(sum(score > known for known in self.scores[1:-1]), last)
        low, high = self.scores[piece], self.scores[piece + 1]
        slope = (self.log_s[piece + 1] - self.log_s[piece]) / (high - low)
        value = self.log_s[piece] + slope * (score - low)
        return self.most_s if value >= log(self.most_s) else exp(value)


@dataclass(frozen=True, slots=True)
class JobLaw:
    """Phases of a job over iterations.

    Attributes
    ----------
    rollout, train : Law
    response : Law
        Of a rollout that waits for one response instead of the longest of a batch.
    source : str
        Where the rollout's law comes from, one of ``SOURCES``.
    train_varies : bool
    """

    rollout: Law
    train: Law
    response: Law
    source: str
    train_varies: bool


def _law(most_s: float, points: Sequence[tuple[float, float]]) -> Law:
    """Return the law through (score, seconds), made ascending."""
    log_s, highest = [], -float("inf")
    for _, seconds in points:
        highest = max(highest, log(seconds))
        log_s.append(highest)
    return Law(most_s, tuple(score for score, _ in points), tuple(log_s))


def _given(jobs: JobTable, index: int, names: Sequence[str]) -> list[tuple[float, float]]:
    """Return (score, value) of the quantile columns that a job has, all above 0."""
    found = []
    for score, name in zip(_SCORES, names, strict=False):
        if name in jobs.optional:
            value = float(jobs.optional[name][index])
            if value > 0:  # an empty cell is NaN
                found.append((score, value))
    return found


def _cell(jobs: JobTable, index: int, name: str) -> float | None:
    """Return an optional number of a job; ``None`` where it is not given."""
    if name not in jobs.optional:
        return None
    value = float(jobs.optional[name][index])
    return value if value > 0 else None


def _responses(jobs: JobTable, index: int) -> float:
    prompts = _cell(jobs, index, "prompts_per_step")
    samples = _cell(jobs, index, "samples_per_prompt")
    return GUESSED_RESPONSES if prompts is None or samples is None else max(prompts * samples, 1.0)


def _response_law(jobs: JobTable, index: int) -> tuple[Law, str]:
    """Return the seconds that one response takes, and where that comes from."""
    most_s = float(jobs.rollout_s[index])
    names = [f"response_p{level}_tokens" for level in (50, 95, 99)]
    tokens, limit = _given(jobs, index, names), _cell(jobs, index, "max_tokens")
    if len(tokens) >= 2 and limit is not None:
        points = [(score, most_s * value / limit) for score, value in tokens]
        return _law(most_s, points), SOURCES[1]
    points = [(score, most_s * share) for score, share in zip(_SCORES, GUESSED_SHARES, strict=True)]
    return _law(most_s, points), SOURCES[2]


def job_laws(jobs: JobTable) -> tuple[JobLaw, ...]:
    """Return the law of every job, in the table's order (module docstring)."""
    laws = []
    for index in range(len(jobs)):
        response, source = _response_law(jobs, index)
        rollout = replace(response, longest_of=_responses(jobs, index))
        seconds = _given(jobs, index, ("rollout_p50_s", "rollout_p95_s"))
        if len(seconds) == 2:
            rollout, source = _law(float(jobs.rollout_s[index]), seconds), SOURCES[0]
        seconds = _given(jobs, index, ("train_p50_s", "train_p95_s"))
        varies = len(seconds) == 2
        most_s = float(jobs.train_s[index])
        train = _law(most_s, seconds) if varies else Law(most_s)
        laws.append(JobLaw(rollout, train, response, source, varies))
    return tuple(laws)


# --- one version of a group -----------------------------------------------------------------------


@compiled
def _run(  # noqa: PLR0913, PLR0917 - arrays, as a kernel takes them
    turns: int,
    order: IntArray,
    rates: IntArray,
    pin_from: IntArray,
    pins: IntArray,
    release_s: FloatArray,
    lags: IntArray,
    sync_s: FloatArray,
    seconds: FloatArray,
) -> FloatArray:
    """Return rollout starts, ``(n_jobs, iterations)``.

    Parameters
    ----------
    order : ndarray, (n_phases, 4)
        One turn: job, pool (0 rollout, 1 train), iteration within the period, and lap: how many
        turns after its iteration's own the phase comes.
    lags : ndarray, (n_jobs,)
        Iterations from a train to the rollout that waits for it: 1, or 2 of one-step jobs.
    pin_from : ndarray, (2 n_jobs + 1,)
        Nodes of pool p and job j are ``pins[pin_from[p n + j]:pin_from[p n + j + 1]]``.
    seconds : ndarray, (2, n_jobs, iterations)
        Switches included.
    """
    n_jobs, iterations = len(rates), seconds.shape[2]
    starts = np.zeros((n_jobs, iterations))
    free = np.zeros(pins.max() + 1)
    ready = np.zeros((n_jobs, lags.max()))  # the rollouts of iterations i, i + lag, ... take turns
    ready += release_s[:, None]
    for turn in range(turns):
        for phase in range(len(order)):
            job, pool = order[phase, 0], order[phase, 1]
            period = turn - order[phase, 3]
            iteration = period * rates[job] + order[phase, 2]
            if period < 0 or iteration >= iterations:
                continue
            begin = ready[job, iteration % lags[job]]
            if pool == 1:
                begin = starts[job, iteration] + seconds[0, job, iteration]
            row = pool * n_jobs + job
            for k in range(pin_from[row], pin_from[row + 1]):
                begin = max(begin, free[pins[k]])
            end = begin + seconds[pool, job, iteration]
            for k in range(pin_from[row], pin_from[row + 1]):
                free[pins[k]] = end
            if pool == 0:
                starts[job, iteration] = begin
            else:
                ready[job, iteration % lags[job]] = end + sync_s[job]
    return starts


def _order(version: GroupVersion) -> IntArray:
    """Return the phases of one turn as ``_run`` wants them, by planned start."""
    phases = []
    for j, placement in enumerate(version.placements):
        for i, pair in enumerate(placement.starts_s):
            for pool, start_s in enumerate(pair):
                lap = floor(start_s / version.period_s)
                phases.append((start_s - lap * version.period_s, j, pool, i, lap))
    phases.sort(key=lambda phase: phase[0])
    return np.array([phase[1:] for phase in phases], dtype=np.int64)


def _pins(version: GroupVersion) -> tuple[IntArray, IntArray]:
    """Return where each pool and job's nodes begin, and the nodes numbered from 0."""
    number: dict[tuple[int, int], int] = {}
    pin_from, pins = [0], []
    for pool in (0, 1):
        for placement in version.placements:
            nodes = placement.rollout_pins if pool == 0 else placement.train_pins
            pins += [number.setdefault((pool, node), len(number)) for node in nodes]
            pin_from.append(len(pins))
    return np.array(pin_from, dtype=np.int64), np.array(pins, dtype=np.int64)


def run_version(
    version: GroupVersion, jobs: Sequence[Job], seconds: FloatArray, periods: int
) -> FloatArray:
    """Return when each rollout starts under the fixed orders of a version.

    Parameters
    ----------
    version : GroupVersion
    jobs : sequence of Job
        Of its placements, in their order: for sync and switch seconds.
    seconds : ndarray, (2, n_jobs, (periods + 1) x largest rate)
        Rollout and train seconds of each iteration, without switches; those of a job beyond
        ``(periods + 1)`` times its rate are not read.
    periods : int

    Returns
    -------
    ndarray, (n_jobs, (periods + 1) x largest rate)
        Start of the switch, where one is paid; the first rollout of period ``periods`` is the
        last that is meaningful.
    """
    placements = version.placements
    shape = GroupShape.of(
        jobs,
        [placement.rollout_pins for placement in placements],
        [placement.train_pins for placement in placements],
    )
    # a shape's phases include the switch where one is paid
    paid = (
        [total - job.rollout_s for total, job in zip(shape.rollout_s, jobs, strict=True)],
        [total - job.train_s for total, job in zip(shape.train_s, jobs, strict=True)],
    )
    order = _order(version)
    rates = np.array([len(placement.starts_s) for placement in placements], dtype=np.int64)
    pin_from, pins = _pins(version)
    return _run(
        periods + 1 + int(order[:, 3].max()),
        order,
        rates,
        pin_from,
        pins,
        np.array([placement.starts_s[0][0] for placement in placements]),
        np.array([job.lag for job in jobs], dtype=np.int64),
        np.array([job.sync_s for job in jobs]),
        seconds + np.array(paid)[:, :, None],
    )


# --- a whole plan ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """What one execution of a plan did to its sync jobs.

    Attributes
    ----------
    job_id : tuple of str
    mean_iteration_s : ndarray, (n,)
        Elapsed seconds over iterations done.
    deadline_s : ndarray, (n,)
    late_iterations, iterations : ndarray, (n,)
        Iterations over the stay, those of versions cut short extrapolated.
    """

    job_id: tuple[str, ...]
    mean_iteration_s: FloatArray
    deadline_s: FloatArray
    late_iterations: FloatArray
    iterations: FloatArray

    @property
    def missed(self) -> npt.NDArray[np.bool_]:
        """Which jobs are later than promised in the mean, ``(n,)``."""
        return self.mean_iteration_s > self.deadline_s * (1 + _REL)

    @property
    def late_share(self) -> float:
        """Share of single iterations that are late; 0 without any."""
        total = float(self.iterations.sum())
        return float(self.late_iterations.sum()) / total if total else 0.0


@dataclass(slots=True)
class _Sum:
    elapsed_s: float = 0.0
    iterations: float = 0.0
    late: float = 0.0

    def add(self, elapsed_s: float, iterations: float, late_share: float) -> None:
        """Count what was done in a version."""
        self.elapsed_s += elapsed_s
        self.iterations += iterations
        self.late += late_share * iterations

    def undo(self, iterations: float) -> None:
        """Take off what a failure undoes, as many late ones among them as there are in all."""
        if iterations > 0 and self.iterations > 0:
            kept = max(1 - iterations / self.iterations, 0.0)
            self.iterations *= kept
            self.late *= kept


class _Draws:
    """Shares drawn for each job, from a generator of its own: the same whatever the plan."""

    def __init__(self, seed: Sequence[int], jobs: JobTable) -> None:
        self._seed = tuple(seed)
        self._number = {job_id: i for i, job_id in enumerate(jobs.job_id)}
        self._of: dict[str, np.random.Generator] = {}

    def shares(self, job_id: str, n: int) -> list[float]:
        """Return the job's next ``n`` shares."""
        if job_id not in self._of:
            self._of[job_id] = np.random.default_rng((*self._seed, self._number[job_id]))
        return [float(share) for share in self._of[job_id].random(n)]


def _iterations(
    version: GroupVersion, j: int, starts_s: FloatArray, periods: int, deadline_s: float
) -> tuple[float, float]:
    """Return a job's mean iteration time in a version and the share of late iterations."""
    pairs = version.placements[j].starts_s
    n = periods * len(pairs)
    begun = starts_s[j, : n + 1]
    planned = np.add.outer(
        np.arange(periods) * version.period_s, [rollout_s for rollout_s, _ in pairs]
    ).reshape(-1)
    took_s = begun[1:] - np.maximum(begun[:-1], planned)
    late = float((took_s > deadline_s * (1 + _REL) + _EPS_S).mean())
    return float(begun[n] - planned[0]) / n, late


def run_sampled(
    plan: Plan,
    jobs: JobTable,
    laws: Sequence[JobLaw],
    *,
    seed: Sequence[int],
    most_periods: int = 1000,
    progress: Progress | None = None,
) -> Sampled:
    """Run every version of a plan with sampled seconds.

    Parameters
    ----------
    plan : Plan
        Made with any planned seconds for these jobs; each job on nodes of both pools.
    jobs : JobTable
        The same jobs with worst-case seconds: ``D_j`` is theirs.
    laws : sequence of JobLaw
        In the order of ``jobs``.
    seed : sequence of int
        Each job draws from a generator of its own, seeded by these and its number.
    most_periods : int
        Most periods that one version is run for.
    progress : callable, optional
        Called with (versions done, versions) now and then.

    Raises
    ------
    InputError
        When ``most_periods`` is below 1, or a job has no rollout nodes of its own.
    """
    if most_periods < 1:
        raise InputError(f"Expected most_periods >= 1, got {most_periods}.")
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    draws, paused_s, undone = _Draws(seed, jobs), paused_within(plan), undone_within(plan)
    sums: dict[str, _Sum] = {}
    versions = sorted(plan.groups, key=lambda v: (v.from_s, v.group_id))
    every = max(1, len(versions) // 100)
    for done, version in enumerate(versions, start=1):
        seconds_long = version.to_s - version.from_s
        periods = min(max(ceil(seconds_long / version.period_s), 1), most_periods)
        numbers = [index[placement.job_id] for placement in version.placements]
        members = [jobs.job(i) for i in numbers]
        seconds = _drawn(version, [laws[i] for i in numbers], draws, periods)
        starts_s = run_version(version, members, seconds, periods)
        for j, job in enumerate(members):
            mean_s, late = _iterations(version, j, starts_s, periods, job.deadline_s)
            running_s = seconds_long - paused_s(job.job_id, version.from_s, version.to_s)
            total = sums.setdefault(job.job_id, _Sum())
            total.add(seconds_long, running_s / mean_s, late)
            total.undo(undone(job.job_id, version.from_s, version.to_s))
        if progress is not None and (done % every == 0 or done == len(versions)):
            progress(done, len(versions))
    return _sampled(jobs, index, sums)


def _drawn(
    version: GroupVersion, laws: Sequence[JobLaw], draws: _Draws, periods: int
) -> FloatArray:
    """Return sampled seconds of both phases, as :func:`run_version` wants them."""
    rates = [len(placement.starts_s) for placement in version.placements]
    seconds = np.zeros((2, len(rates), (periods + 1) * max(rates)))
    for j, (placement, law, rate) in enumerate(zip(version.placements, laws, rates, strict=True)):
        if not placement.rollout_pins:
            raise InputError(
                f"Expected every job on nodes of both pools, got none for rollout (job "
                f"'{placement.job_id}')."
            )
        shares = draws.shares(placement.job_id, (periods + 1) * rate)
        seconds[0, j, : len(shares)] = [law.rollout.seconds(share) for share in shares]
        seconds[1, j, : len(shares)] = [law.train.seconds(share) for share in shares]
    return seconds


def _sampled(jobs: JobTable, index: Mapping[str, int], sums: Mapping[str, _Sum]) -> Sampled:
    names = tuple(sorted(sums, key=lambda name: index[name]))
    return Sampled(
        job_id=names,
        mean_iteration_s=np.array(
            [
                sums[name].elapsed_s / sums[name].iterations if sums[name].iterations else np.inf
                for name in names
            ]
        ),
        deadline_s=np.array([jobs.deadline_s[index[name]] for name in names]),
        late_iterations=np.array([sums[name].late for name in names]),
        iterations=np.array([sums[name].iterations for name in names]),
    )
