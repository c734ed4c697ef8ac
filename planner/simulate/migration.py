"""Long-tail migration: the last responses of a rollout move together, and the next job begins.

*What moves.* A rollout of ``n`` responses runs on its gang of ``a`` nodes, ``G`` GPUs each and
``u`` decode slots a GPU, all responses at once (``n <= a G u``). When a share ``threshold`` of them
has finished, the rest moves to ``k`` GPUs (``gpus``) of the same gang, hence of the same pool and
the same kind: never across kinds. The others are freed for the next phase in turn.

*When.* Not before all of these hold:

1. ``ceil(threshold n)`` responses have finished (1 or more: nothing ever moves);
2. the rest fits: at most ``k u`` are left (slots short: the move waits, no response is evicted);
3. no earlier rest is left on the job's nodes (one at a time, always on the same ``k`` GPUs);
4. ``wanted``: the next phase in turn on a node to be freed has asked and would start at once. With
   ``always``: another job is pinned there, whether it can start or not.

*What it costs.* Every response of the rest stands still for ``migration_s`` (its KV cache is
copied), and the freed GPUs are free after them. Then each goes on, ``q >= 1`` times as long as it
had left. With ``x`` the moment of the move and ``f`` the end it would have had, the rollout ends at
``e = x + migration_s + q (f - x)``; train waits for that.

*Speed on fewer GPUs.* Decoding is bound by memory bandwidth: a step reads the weights once, and the
KV cache of each response decoded. While weights dominate, a GPU that decodes 100 responses is no
slower than one that decodes 10, and ``q`` is 1, the default. With long responses of a small model
the KV cache dominates: on an H20 at 4 TB/s, a 7B model reads 14 GB of weights, and at 57 kB a token
100 responses of 10,000 tokens read 57 GB, so a step takes 18 ms instead of 4.9 for 10 responses.
With ``kv_share`` the KV cache of one response over the weights (0.04 there), ``R`` responses that
move from ``N = a G`` GPUs to ``k`` have ``q = tail_slowdown (1 + kv_share R / k) / (1 + kv_share R
/ N)``: an upper estimate, as ``R`` falls while they run. The next rollout pays, too: until the last
rest on its gang ends, its ``n`` responses, ``B <= n`` of them in slots, take ``(1 + kv_share B /
(N - k)) / (1 + kv_share n / N)`` times as long. Both are inputs, and studies vary them.

*What "the next rollout starts on the freed GPUs" means.* The ``k`` GPUs are on the gang's nodes of
lowest number, as few as possible. ``granularity``:

* ``gpu``: a node that keeps some of its GPUs is free for the next phase, which starts with the
  slots of the rest of its gang; the ``k`` GPUs' slots join when the rest ends. A response starts
  when a slot is free, in the order drawn; where all find one at once, and weights
  dominate, nothing is lost;
* ``node``: a node that keeps any GPU is held until the rest ends; the gang's others are freed
  whole. A gang on one node then never moves.

Both jobs' weights are on the node at once, on different GPUs; host memory holds both anyway. Two
rollouts at once on a node is no valid plan: this is what happens at run time to a
plan that is valid as it stands. Planned orders stay (``round-robin``), seconds are drawn. No
migration: the same starts as :func:`planner.simulate.runtime.simulate_group`.

*Inputs that are guesses*: ``migration_s`` (5 s: some 60 GB at 400 Gb/s take 1.2 s, beside stop and
go), ``tail_slowdown``, ``kv_share``, ``gpus``, slots a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf, isfinite
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from instances.errors import CheckError, InputError, did_you_mean
from instances.jobs import JobTable
from instances.plan import GroupVersion
from planner.simulate.migration_draws import RolloutDraws, on_slots
from planner.simulate.runtime_setup import WARM, LaidOut, Switches

__all__ = [
    "GRANULARITIES",
    "MIGRATION_S",
    "Migration",
    "MigrationRun",
    "PhaseRun",
    "When",
    "run_with_migration",
]

FloatArray = npt.NDArray[np.float64]

#: Seconds for which a response that moves stands still: a guess.
MIGRATION_S: Final = 5.0
GRANULARITIES: Final = ("gpu", "node")
When = Literal["wanted", "always"]
_WHEN: Final[tuple[When, ...]] = ("wanted", "always")
_END, _ASK, _DUE, _FREE = range(4)


@dataclass(frozen=True, kw_only=True)
class Migration:
    """When the rest of a rollout moves, where to, and what that costs (module docstring).

    Attributes
    ----------
    threshold : float
        Share of finished responses, above 0; 1: never.
    gpus : int
        ``k``, GPUs that the rest keeps.
    migration_s : float
        Seconds for which the rest stands still: a guess; infinite: never.
    tail_slowdown : float
        How much longer the rest takes, however many GPUs it has, at least 1: a guess.
    kv_share : float
        KV cache of one response of the rest over the weights: 0 where weights dominate, a guess.
    granularity : {"gpu", "node"}
    when : {"wanted", "always"}
    gpus_per_node : int
    """

    threshold: float = 0.8
    gpus: int = 1
    migration_s: float = MIGRATION_S
    tail_slowdown: float = 1.0
    kv_share: float = 0.0
    granularity: Literal["gpu", "node"] = "gpu"
    when: When = "wanted"
    gpus_per_node: int = 8

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise InputError(f"Expected threshold in (0, 1], got {self.threshold!r}.")
        if self.gpus < 1 or self.gpus_per_node < 1:
            raise InputError(
                f"Expected gpus and gpus_per_node >= 1, got {self.gpus}, {self.gpus_per_node}."
            )
        if not self.migration_s >= 0:
            raise InputError(f"Expected migration_s >= 0, got {self.migration_s!r}.")
        if not (self.tail_slowdown >= 1 and isfinite(self.tail_slowdown)):
            raise InputError(f"Expected tail_slowdown >= 1, got {self.tail_slowdown!r}.")
        if not (self.kv_share >= 0 and isfinite(self.kv_share)):
            raise InputError(f"Expected kv_share >= 0, got {self.kv_share!r}.")
        for name, known in (("granularity", GRANULARITIES), ("when", _WHEN)):
            value = getattr(self, name)
            if value not in known:
                raise InputError(
                    f"Expected {name} in {', '.join(known)}, got '{value}'."
                    f"{did_you_mean(value, known)}"
                )

    @property
    def never(self) -> bool:
        """Whether nothing can ever move."""
        return self.threshold >= 1 or self.migration_s == inf

    def kept(self, nodes: int) -> list[int]:
        """Return the GPUs kept on each node of a gang; none are kept where none would be freed."""
        size = self.gpus_per_node
        kept = [min(max(self.gpus - i * size, 0), size) for i in range(nodes)]
        if self.granularity == "node":
            kept = [size if count else 0 for count in kept]
        return kept if sum(kept) < nodes * size else [size] * nodes

    def slower(self, responses: int, kept: int, nodes: int) -> float:
        """Return ``q``: how much longer this many take on ``kept`` GPUs than on all."""
        whole = 1 + self.kv_share * responses / (nodes * self.gpus_per_node)
        return self.tail_slowdown * (1 + self.kv_share * responses / kept) / whole

    def slower_beside(self, responses: int, running: int, kept: int, nodes: int) -> float:
        """Return how much longer a rollout takes while a rest keeps ``kept`` GPUs of its gang."""
        gpus = nodes * self.gpus_per_node
        whole = 1 + self.kv_share * responses / gpus
        return (1 + self.kv_share * running / (gpus - kept)) / whole

    @property
    def row(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


# --- results --------------------------------------------------------------------------------------


class PhaseRun(NamedTuple):
    """One phase: start of its switch, of its run, and its end; when its nodes were freed.

    ``moved_s`` is the moment of the move, ``None`` where nothing moved.
    """

    job: int
    pool: int
    iteration: int
    start_s: float
    run_s: float
    end_s: float
    moved_s: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class MigrationRun:
    """What one run of a group did.

    Attributes
    ----------
    job_id : tuple of str
    iterations_per_hour : tuple of float
        Per job, after the periods of warm-up.
    deadline_s : tuple of float
    rollouts, moved : int
        Rollouts that ended, and those of which a rest moved.
    phases : tuple of PhaseRun
        All that ended, by end.
    """

    job_id: tuple[str, ...]
    iterations_per_hour: tuple[float, ...]
    deadline_s: tuple[float, ...]
    rollouts: int
    moved: int
    phases: tuple[PhaseRun, ...]

    @property
    def total_per_hour(self) -> float:
        """Iterations of all jobs per hour."""
        return sum(self.iterations_per_hour)

    @property
    def moved_share(self) -> float:
        """Share of rollouts of which a rest moved."""
        return self.moved / self.rollouts if self.rollouts else 0.0

    @property
    def worst_over_deadline(self) -> float:
        """The largest mean iteration time over ``D_j`` of any job."""
        pairs = zip(self.iterations_per_hour, self.deadline_s, strict=True)
        return max(3600.0 / rate / deadline for rate, deadline in pairs)

    @property
    def row(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "jobs": len(self.job_id),
            "iterations_per_hour": self.total_per_hour,
            "rollouts_moved_share": self.moved_share,
            "worst_over_deadline": self.worst_over_deadline,
        }


# --- the run --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rollout:
    """A rollout that runs."""

    run_s: float
    finish_s: FloatArray | None
    end_s: float
    due: bool = False
    moved_s: float | None = None


class _Run:
    """Events of one group; lines, order and turns: :mod:`planner.simulate.runtime_kernel`."""

    def __init__(self, group: LaidOut, draws: RolloutDraws, migration: Migration) -> None:
        layout = group.layout
        self.group, self.draws, self.migration = group, draws, migration
        lines, nodes = 2 * len(group.members), len(group.nodes)
        self.pins = [
            layout.pins[layout.pin_from[line] : layout.pin_from[line + 1]].tolist()
            for line in range(lines)
        ]
        self.order: list[list[list[int]]] = [
            layout.order[layout.order_from[x] : layout.order_from[x + 1]].tolist()
            for x in range(nodes)
        ]
        self.users = [sum(node in self.pins[2 * j] for j in range(lines // 2)) for node in
                      range(nodes)]  # fmt: skip
        self.begun = [0] * lines
        self.asked = [False] * lines
        self.requested = [1, 0] * len(group.members)  # phases that asked, or will at a known moment
        self.starts: list[list[float]] = [[] for _ in range(lines)]
        self.train_ends: list[list[float]] = [[] for _ in group.members]
        self.ended = [0] * lines
        self.holder: list[int | None] = [None] * nodes
        self.place, self.turn = [0] * nodes, [0] * nodes
        self.rest = [(0.0, 0)] * nodes  # until when, GPUs kept
        self.running: dict[int, _Rollout] = {}
        self.runs_s = [0.0] * lines
        self.heap: list[tuple[float, int, int, int, int]] = []
        self.count = 0
        self.done: list[PhaseRun] = []
        self.now = 0.0
        for node in range(nodes):
            self._settle(node)
        for j, release_s in enumerate(group.release_s):
            self._push(float(release_s), _ASK, 2 * j)

    # --- events ---

    def _push(self, at: float, kind: int, line: int, what: int = 0) -> None:
        self.count += 1
        heappush(self.heap, (at, self.count, kind, line, what))

    def until(self, starts: Sequence[int]) -> None:
        """Run until every job has started so many rollouts."""
        while any(self.begun[2 * j] < least for j, least in enumerate(starts)):
            if not self.heap:
                raise CheckError(
                    "Expected orders that fit together, got none "
                    f"(group '{self.group.version.group_id}')."
                )
            self.now = self.heap[0][0]
            while self.heap and self.heap[0][0] <= self.now:
                _, _, kind, line, what = heappop(self.heap)
                self._take(kind, line, what)
            for line in (*range(0, len(self.pins), 2), *range(1, len(self.pins), 2)):
                if self._may_start(line, ()):
                    self._start(line)
            for line in sorted(self.running):
                self._consider(line)

    def _take(self, kind: int, line: int, what: int) -> None:
        """Take one event: an end, a request, a rollout whose rest may move, or a freed node."""
        if kind == _ASK:
            self.asked[line] = True
        elif kind == _FREE:
            self.holder[what] = None
        elif kind == _DUE:
            rollout = self.running.get(line)
            if rollout is not None and self.begun[line] == what:
                rollout.due = True
        elif self.ended[line] == what and (line % 2 or self.running[line].end_s <= self.now):
            self._end(line)  # else the rest has moved: this is the end it would have had

    def _end(self, line: int) -> None:
        j, number, rollout = line // 2, self.ended[line], self.running.pop(line, None)
        self.ended[line] += 1
        for node in self.pins[line]:
            if self.holder[node] == line:
                self.holder[node] = None
        moved_s = None if rollout is None else rollout.moved_s
        start_s = self.starts[line][number]
        self.done.append(
            PhaseRun(j, line % 2, number, start_s, self.runs_s[line], self.now, moved_s)
        )
        if line % 2:
            self.train_ends[j].append(self.now)
        self._ask(j)

    def _ask(self, j: int) -> None:
        """Let the next phases of a job ask where its own order allows it now."""
        rollout, train = 2 * j, 2 * j + 1
        layout = self.group.layout
        i, lag = self.ended[rollout], int(layout.lag[j])
        if self.requested[rollout] == i and self.ended[train] > i - lag:
            synced = self.train_ends[j][i - lag] + float(layout.sync_s[j]) if i >= lag else 0.0
            self._asks(rollout, max(self.now, synced))
        i = self.ended[train]
        if self.requested[train] == i and self.ended[rollout] > i:
            self._asks(train, self.now)

    def _asks(self, line: int, at: float) -> None:
        self.requested[line] += 1
        if at <= self.now:
            self.asked[line] = True
        else:
            self._push(at, _ASK, line)

    # --- turns ---

    def _next(self, node: int) -> tuple[int, int]:
        """Return the line and number of the phase whose turn it is on a node."""
        job, i, lap = self.order[node][self.place[node]]
        line = 2 * job + self.group.nodes[node][0]
        return line, (self.turn[node] - lap) * int(self.group.layout.rates[job]) + i

    def _settle(self, node: int) -> None:
        """Skip turns before the first iteration."""
        while self._next(node)[1] < 0:
            self._pass(node)

    def _pass(self, node: int) -> None:
        self.place[node] += 1
        if self.place[node] == len(self.order[node]):
            self.place[node] = 0
            self.turn[node] += 1

    def _may_start(self, line: int, freed: Sequence[int]) -> bool:
        """Whether the line's next phase would start now, were the nodes ``freed`` free."""
        if not self.asked[line]:
            return False
        mine = (line, self.begun[line])
        return all(
            (self.holder[node] is None or node in freed) and self._next(node) == mine
            for node in self.pins[line]
        )

    # --- starts and moves ---

    def _start(self, line: int) -> None:
        layout, j, number = self.group.layout, line // 2, self.begun[line]
        switch_s = layout.first_switch_s[line] if number == 0 else layout.switch_s[line]
        run_s = self.now + float(switch_s)
        self.asked[line] = False
        self.begun[line] += 1
        self.starts[line].append(self.now)
        self.runs_s[line] = run_s
        for node in self.pins[line]:
            self.holder[node] = line
            self._pass(node)
            self._settle(node)
        job = self.group.numbers[j]
        seconds = self.draws.phases(job, number)[line % 2] * float(self.group.factor[line])
        if line % 2:
            self._push(run_s + seconds, _END, line, number)
            return
        rollout = self.running[line] = self._rollout(line, job, number, run_s, seconds)
        self._push(rollout.end_s, _END, line, number)
        due_s = self._due_s(line, rollout)
        if due_s < rollout.end_s:
            self._push(due_s, _DUE, line, number + 1)

    def _rollout(self, line: int, job: int, number: int, run_s: float, seconds: float) -> _Rollout:
        """Return a rollout that starts, with late slots where an earlier rest keeps GPUs."""
        if self.migration.never:
            return _Rollout(run_s, None, run_s + seconds)
        slots, factor = self._slots_per_gpu(job), float(self.group.factor[line])
        late = [self.rest[node] for node in self.pins[line] if self.rest[node][0] > run_s]
        short = slots * sum(gpus for _, gpus in late)
        finish_s = self.draws.finish_s(job, number) * factor
        free = self.draws.source.slots[job] - short
        if not late:
            return _Rollout(run_s, finish_s, run_s + seconds)
        n, kept = len(finish_s), sum(gpus for _, gpus in late)
        slower = self.migration.slower_beside(n, min(n, free), kept, len(self.pins[line]))
        if n > free:  # by a clock that runs 1 / slower as fast until the last rest ends
            joins = [(until - run_s) / slower for until, gpus in late for _ in range(slots * gpus)]
            in_turn_s = self.draws.in_turn_s(job, number) * factor
            finish_s = np.sort(on_slots(in_turn_s, np.array([0.0] * free + sorted(joins))))
        until_s = max(until for until, _ in late) - run_s
        finish_s = np.minimum(slower * finish_s, finish_s + until_s * (1 - 1 / slower))
        return _Rollout(run_s, finish_s, run_s + float(finish_s[-1]))

    def _slots_per_gpu(self, job: int) -> int:
        gpus = self.migration.gpus_per_node * int(self.draws.jobs.rollout_nodes[job])
        return int(self.draws.source.slots[job]) // gpus

    def _due_s(self, line: int, rollout: _Rollout) -> float:
        """Return from when on the rest may move (1 to 3 of the module docstring)."""
        migration, finish_s = self.migration, rollout.finish_s
        freed = self._freed(line)
        if finish_s is None or not any(self.users[node] > 1 for node in freed):
            return inf
        n = len(finish_s)
        kept = sum(gpus for _, gpus in self._kept(line))
        fits = n - kept * self._slots_per_gpu(self.group.numbers[line // 2])
        first = max(ceil(migration.threshold * n - 1e-9), fits, 1)
        if first >= n:
            return inf
        earlier_s = max(self.rest[node][0] for node in self.pins[line])
        due_s: float = max(rollout.run_s + float(finish_s[first - 1]), earlier_s)
        return due_s

    def _kept(self, line: int) -> list[tuple[int, int]]:
        """Return (node, GPUs kept there) of a rollout's gang."""
        pins = sorted(self.pins[line])
        return list(zip(pins, self.migration.kept(len(pins)), strict=True))

    def _freed(self, line: int) -> list[int]:
        size = self.migration.gpus_per_node
        return [node for node, kept in self._kept(line) if kept < size]

    def _consider(self, line: int) -> None:
        """Move the rest of a rollout when it may and should."""
        rollout = self.running[line]
        finish_s = rollout.finish_s
        if not rollout.due or rollout.moved_s is not None or rollout.end_s <= self.now:
            return
        assert finish_s is not None  # else nothing is ever due
        freed = self._freed(line)
        if self.migration.when == "wanted" and not any(
            self._may_start(self._next(node)[0], freed) for node in freed
        ):
            return
        left_s = rollout.end_s - self.now
        free_s = self.now + self.migration.migration_s
        rollout.moved_s = self.now
        kept = dict(self._kept(line))
        left = len(finish_s) - int(np.searchsorted(finish_s, self.now - rollout.run_s, "right"))
        slower = self.migration.slower(left, sum(kept.values()), len(kept))
        rollout.end_s = free_s + slower * left_s
        self._push(rollout.end_s, _END, line, self.ended[line])
        for node in freed:
            self.rest[node] = (rollout.end_s, kept[node])
            self._push(free_s, _FREE, line, node)


def run_with_migration(
    version: GroupVersion,
    jobs: JobTable,
    draws: RolloutDraws,
    migration: Migration | None = None,
    *,
    periods: int = 60,
    warmup: int | None = None,
    interference: float = 0.0,
    switches: Switches = WARM,
) -> MigrationRun:
    """Run one version of a group in its planned orders, with drawn seconds.

    Parameters
    ----------
    version : GroupVersion
    jobs : JobTable
        That of ``draws``.
    migration : Migration, optional
        Nothing moves when left out.
    periods : int
        Iterations of each job, times its rate.
    warmup : int, optional
        Periods that are not counted; a tenth of ``periods`` when left out.
    interference : float
        Share by which runs on shared nodes take longer.

    Raises
    ------
    InputError
        For an unknown job, or a number out of its range.
    UnsupportedError
        When a batch has more responses than its gang has slots, or a job has no rollout nodes.
    """
    warmup = periods // 10 if warmup is None else warmup
    if not 0 <= warmup < periods:
        raise InputError(f"Expected 0 <= warmup < periods, got {warmup}, {periods}.")
    index = {job_id: i for i, job_id in enumerate(jobs.job_id)}
    missing = [p.job_id for p in version.placements if p.job_id not in index]
    if missing:
        raise InputError(f"Expected jobs of the table, got '{missing[0]}'.")
    numbers = [index[placement.job_id] for placement in version.placements]
    members = [jobs.job(i) for i in numbers]
    group = LaidOut(
        version,
        numbers,
        members,
        discipline="round-robin",
        interference=interference,
        switches=switches,
        joins=[True] * len(numbers),
    )
    run = _Run(group, draws, migration or Migration(threshold=1.0))
    rates = [len(placement.starts_s) for placement in version.placements]
    run.until([periods * rate + 1 for rate in rates])
    per_hour = []
    for j, rate in enumerate(rates):
        took_s = run.starts[2 * j][periods * rate] - run.starts[2 * j][warmup * rate]
        per_hour.append(3600.0 * (periods - warmup) * rate / took_s)
    rollouts = [phase for phase in run.done if phase.pool == 0]
    return MigrationRun(
        job_id=tuple(job.job_id for job in members),
        iterations_per_hour=tuple(per_hour),
        deadline_s=tuple(job.deadline_s for job in members),
        rollouts=len(rollouts),
        moved=sum(phase.moved_s is not None for phase in rollouts),
        phases=tuple(run.done),
    )
