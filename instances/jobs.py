"""Jobs: one structure of arrays, and a friendly view of a single job.

Symbols are those of FORMULATION section 1: ``r_j`` is ``rollout_s``, ``t_j`` is
``train_s``, ``s_j`` is ``sync_s``, ``T_j`` is ``solo_s`` and ``D_j`` is ``deadline_s``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from instances.restarts import RESTART_S, restart_seconds

__all__ = [
    "FLOAT_FIELDS",
    "INT_FIELDS",
    "MODES",
    "OPTIONAL_FIELDS",
    "Job",
    "JobTable",
    "idle_window_s",
    "solo_seconds",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

MODES: Final = ("sync", "one-step", "async")

FLOAT_FIELDS: Final = (
    "arrival_s",
    "duration_s",
    "slo",
    "rollout_s",
    "train_s",
    "sync_s",
    "rollout_state_gb",
    "train_state_gb",
    "rollout_switch_s",
    "train_switch_s",
    "sync_gb",
)
INT_FIELDS: Final = ("rollout_nodes", "train_nodes")
_INFINITY: Final = float("inf")
#: Field, least value, and whether it must be above it.
_RANGES: Final = (
    ("arrival_s", 0, False),
    ("duration_s", 0, True),
    ("slo", 1, False),
    ("rollout_s", 0, True),
    ("train_s", 0, True),
    ("sync_s", 0, False),
    ("rollout_nodes", 1, False),
    ("train_nodes", 1, False),
    ("rollout_state_gb", 0, False),
    ("train_state_gb", 0, False),
    ("rollout_switch_s", 0, False),
    ("train_switch_s", 0, False),
    ("sync_gb", 0, False),
    ("restart_s", 0, False),
)
_NUMBERS: Final = (*FLOAT_FIELDS, *INT_FIELDS)
#: Known columns that may be absent; ``NaN`` marks an empty cell.
OPTIONAL_FIELDS: Final = (
    "model_b",
    "max_tokens",
    "prompts_per_step",
    "samples_per_prompt",
    "rollout_p50_s",
    "rollout_p95_s",
    "train_p50_s",
    "train_p95_s",
    "response_p50_tokens",
    "response_p95_tokens",
    "response_p99_tokens",
    "restart_s",
)


def solo_seconds(rollout_s: float, train_s: float, sync_s: float, mode: str = "sync") -> float:
    """Return T_j, the seconds of one iteration of a job that runs alone.

    Parameters
    ----------
    rollout_s, train_s, sync_s : float
        Worst-case phase seconds r_j, t_j and s_j.
    mode : {"sync", "one-step", "async"}
        ``sync``: r + t + s. ``one-step`` (one step off policy): max(r, t, (r + t + s) / 2).
        ``async``: max(r, t); the pools run side by side and the weight transfer is overlapped.

    Returns
    -------
    float
        Seconds.
    """
    if mode == "one-step":
        return max(rollout_s, train_s, (rollout_s + train_s + sync_s) / 2)
    if mode == "async":
        return max(rollout_s, train_s)
    return rollout_s + train_s + sync_s


def idle_window_s(
    rollout_s: float, train_s: float, sync_s: float, mode: str = "sync"
) -> tuple[float, float]:
    """Return the seconds per iteration that a job alone leaves idle: rollout pool, train pool.

    ``T_j - r_j`` and ``T_j - t_j``. Whether a job can share nodes of a pool at its own speed is
    whether such a window exists, whatever its algorithm is called: two jobs without one, at
    slo 1, never share a node there. An ``async`` job has none in the pool of its longer phase; in
    the other one it may, but takes dedicated nodes, so nobody uses it.
    """
    solo_s = solo_seconds(rollout_s, train_s, sync_s, mode)
    return solo_s - rollout_s, solo_s - train_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One RL post-training job; units are in the names, symbols in models/FORMULATION.md.

    Attributes
    ----------
    job_id : str
        Unique in a trace.
    rollout_s : float
        r_j: worst-case seconds of the rollout, every response at the token limit.
    train_s : float
        t_j: worst-case seconds of the weight update.
    slo : float
        sigma_j: tolerated slowdown, at least 1.
    arrival_s : float
        Seconds from the start of the trace.
    duration_s : float
        Seconds the job would run alone.
    sync_s : float
        s_j: seconds from the end of train to the earliest next rollout.
    rollout_nodes : int
        a^R_j: whole rollout nodes a phase occupies at once.
    train_nodes : int
        a^T_j: the same of train nodes.
    rollout_state_gb : float
        m^R_j: host DRAM on each of its rollout nodes, GB (1e9 bytes).
    train_state_gb : float
        m^T_j: the same on each of its train nodes.
    rollout_switch_s : float
        w^R_j: warm-start seconds of a rollout on a shared node.
    train_switch_s : float
        w^T_j: the same of train.
    sync_gb : float
        Weights sent after each train, GB.
    mode : str
        ``sync``, ``one-step`` or ``async``.
    restart_s : float
        Seconds without progress after a move, see :mod:`instances.restarts`.
    solo_s : float
        T_j: iteration seconds when the job runs alone (switches excluded), derived.
    deadline_s : float
        D_j = sigma_j T_j: the largest mean iteration time the SLO allows, derived.
    """

    job_id: str
    rollout_s: float
    train_s: float
    slo: float
    arrival_s: float = 0.0
    duration_s: float = 3600.0
    sync_s: float = 0.0
    rollout_nodes: int = 1
    train_nodes: int = 1
    rollout_state_gb: float = 0.0
    train_state_gb: float = 0.0
    rollout_switch_s: float = 0.0
    train_switch_s: float = 0.0
    sync_gb: float = 0.0
    mode: str = "sync"
    restart_s: float = RESTART_S
    solo_s: float = field(init=False)
    deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        solo = solo_seconds(self.rollout_s, self.train_s, self.sync_s, self.mode)
        object.__setattr__(self, "solo_s", solo)
        object.__setattr__(self, "deadline_s", self.slo * solo)

    def require_valid(self) -> None:
        """Require what a trace requires of a row: finite numbers, each in its range.

        Raises
        ------
        InputError
            Naming the first field that breaks its rule.
        """
        for name, least, above in _RANGES:
            value = getattr(self, name)
            if not (least < value < _INFINITY if above else least <= value < _INFINITY):
                sign = ">" if above else ">="
                raise InputError(
                    f"Expected {name} {sign} {least}, got {value!r} (job '{self.job_id}')."
                )

    @property
    def lag(self) -> int:
        """Iterations from a train to the rollout that waits for it: 2 of one-step jobs, else 1."""
        return 2 if self.mode == "one-step" else 1

    @property
    def idle_window_s(self) -> tuple[float, float]:
        """Seconds per iteration idle in each pool when alone; see :func:`idle_window_s`."""
        return idle_window_s(self.rollout_s, self.train_s, self.sync_s, self.mode)

    def paid_s(self, *, rollout: bool = False, train: bool = False) -> float:
        """Return T_j with these switches in the phases; no period with them is shorter."""
        rollout_s = self.rollout_switch_s if rollout else 0.0
        train_s = self.train_switch_s if train else 0.0
        if self.mode == "sync":
            return self.solo_s + train_s + rollout_s
        phases_s = self.rollout_s + rollout_s, self.train_s + train_s
        return solo_seconds(*phases_s, self.sync_s, self.mode)

    @property
    def iterations(self) -> float:
        """Iterations in ``duration_s`` when the job runs alone; may be fractional."""
        return self.duration_s / self.solo_s


def _frozen(values: object, dtype: type, length: int, name: str) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = np.array(values, dtype=dtype, copy=True)
    if array.shape != (length,):
        raise InputError(f"Expected {name} of shape ({length},), got {array.shape}.")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, kw_only=True, eq=False)
class JobTable:
    """Jobs as a structure of read-only arrays, one entry per job, in arrival order.

    All float arrays are ``(n_jobs,) float64``, node counts ``(n_jobs,) int64``. The table
    copies what it is given and sets the copies read-only; change it with :meth:`replace`.
    Values are trusted here: :mod:`instances.trace` validates what comes from outside.

    Attributes
    ----------
    job_id : tuple of str
        Unique ids.
    arrival_s : ndarray
        Seconds from the start of the trace, ascending.
    duration_s : ndarray
        Seconds alone.
    slo : ndarray
        Tolerated slowdowns, at least 1.
    rollout_s : ndarray
        Worst-case rollout seconds.
    train_s : ndarray
        Worst-case train seconds.
    sync_s : ndarray
        Seconds from the end of train to the earliest next rollout.
    rollout_nodes : ndarray
        Whole rollout nodes a phase occupies.
    train_nodes : ndarray
        Whole train nodes a phase occupies.
    rollout_state_gb : ndarray
        Host DRAM per rollout node, GB.
    train_state_gb : ndarray
        Host DRAM per train node, GB.
    rollout_switch_s : ndarray
        Warm-start seconds of a rollout on a shared node.
    train_switch_s : ndarray
        The same of train.
    sync_gb : ndarray
        Weights sent after each train, GB.
    mode : tuple of str
        ``sync``, ``one-step`` or ``async``.
    optional : mapping of str to (n_jobs,) float64
        Known optional columns that were present (see ``OPTIONAL_FIELDS``), NaN where empty.
    extra : mapping of str to tuple of str
        Unknown columns, kept as text and carried to the outputs.
    estimated : mapping of str to (n_jobs,) bool
        Per column, which cells were estimated rather than given.
    """

    job_id: tuple[str, ...]
    arrival_s: FloatArray
    duration_s: FloatArray
    slo: FloatArray
    rollout_s: FloatArray
    train_s: FloatArray
    sync_s: FloatArray
    rollout_nodes: IntArray
    train_nodes: IntArray
    rollout_state_gb: FloatArray
    train_state_gb: FloatArray
    rollout_switch_s: FloatArray
    train_switch_s: FloatArray
    sync_gb: FloatArray
    mode: tuple[str, ...]
    optional: Mapping[str, FloatArray] = field(default_factory=dict)
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    estimated: Mapping[str, BoolArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.job_id)
        put = object.__setattr__
        put(self, "job_id", tuple(self.job_id))
        put(self, "mode", tuple(self.mode))
        if len(self.mode) != n:
            raise InputError(f"Expected {n} modes, got {len(self.mode)}.")
        for name in FLOAT_FIELDS:
            put(self, name, _frozen(getattr(self, name), np.float64, n, name))
        for name in INT_FIELDS:
            put(self, name, _frozen(getattr(self, name), np.int64, n, name))
        put(
            self,
            "optional",
            MappingProxyType({k: _frozen(v, np.float64, n, k) for k, v in self.optional.items()}),
        )
        extra = {k: tuple(v) for k, v in self.extra.items()}
        for name, values in extra.items():
            if len(values) != n:
                raise InputError(f"Expected {n} values in column {name}, got {len(values)}.")
        put(self, "extra", MappingProxyType(extra))
        put(
            self,
            "estimated",
            MappingProxyType({k: _frozen(v, np.bool_, n, k) for k, v in self.estimated.items()}),
        )

    def __reduce__(self) -> tuple[partial[JobTable], tuple[()]]:
        """Pickle by columns: read-only mappings cannot be, and arrays would come back writable."""
        columns = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("optional", "extra", "estimated"):
            columns[name] = dict(columns[name])
        return partial(type(self), **columns), ()

    @classmethod
    def from_jobs(cls, jobs: Sequence[Job]) -> JobTable:
        """Build a table from single jobs, in the given order.

        ``restart_s`` becomes an optional column, unless every job has the default.
        """
        columns = {
            f.name: [getattr(job, f.name) for job in jobs]
            for f in dataclasses.fields(Job)
            if f.init
        }
        restart_s = columns.pop("restart_s")
        given = any(seconds != RESTART_S for seconds in restart_s)
        optional = {"restart_s": restart_s} if given else {}
        # __post_init__ converts lists to arrays.
        return cls(**columns, optional=optional)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.job_id)

    def __iter__(self) -> Iterator[Job]:
        return (self.job(i) for i in range(len(self)))

    def job(self, index: int) -> Job:
        """Return job ``index`` as a :class:`Job`, made when it is asked for first."""
        made = self._made.get(index)
        if made is None:
            cells: dict[str, Any] = {name: getattr(self, name)[index].item() for name in _NUMBERS}
            made = self._made[index] = Job(
                job_id=self.job_id[index],
                mode=self.mode[index],
                restart_s=self.restart_s[index].item(),
                **cells,
            )
        return made

    @cached_property
    def _made(self) -> dict[int, Job]:
        return {}

    def take(self, indices: Sequence[int] | IntArray) -> JobTable:
        """Return the jobs at ``indices``, in that order, as a new table."""
        idx = np.asarray(indices, dtype=np.int64)
        arrays = {name: getattr(self, name)[idx] for name in (*FLOAT_FIELDS, *INT_FIELDS)}
        return JobTable(
            job_id=tuple(self.job_id[i] for i in idx),
            mode=tuple(self.mode[i] for i in idx),
            optional={k: v[idx] for k, v in self.optional.items()},
            extra={k: tuple(v[i] for i in idx) for k, v in self.extra.items()},
            estimated={k: v[idx] for k, v in self.estimated.items()},
            **arrays,
        )

    def replace(self, **changes: object) -> JobTable:
        """Return a copy with some columns replaced."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def where_mode(self, mode: str) -> IntArray:
        """Return the indices of the jobs of one mode, shape ``(n_matching,)``."""
        return np.array([i for i, m in enumerate(self.mode) if m == mode], dtype=np.int64)

    def where_sharing(self) -> IntArray:
        """Return the indices of the jobs that may share nodes: all but the async ones."""
        return np.array([i for i, m in enumerate(self.mode) if m != "async"], dtype=np.int64)

    @cached_property
    def solo_s(self) -> FloatArray:
        """T_j, ``(n_jobs,)`` seconds; see :func:`solo_seconds`."""
        out = self.rollout_s + self.train_s + self.sync_s
        for i, mode in enumerate(self.mode):
            if mode != "sync":
                out[i] = solo_seconds(
                    float(self.rollout_s[i]), float(self.train_s[i]), float(self.sync_s[i]), mode
                )
        out.setflags(write=False)
        return out

    @cached_property
    def paid_s(self) -> FloatArray:
        """T_j with the switches in the phases, ``(2, 2, n_jobs)``: [rollout's paid, train's paid].

        No period of a group in which the job pays them is shorter.
        """
        rollout, train = self.rollout_switch_s, self.train_switch_s
        out = np.array(
            [
                [self.solo_s, self.solo_s + train],
                [self.solo_s + rollout, self.solo_s + rollout + train],
            ]
        )
        for i in self.where_mode("one-step"):
            for r, t in ((0, 1), (1, 0), (1, 1)):
                phases_s = self.rollout_s[i] + r * rollout[i], self.train_s[i] + t * train[i]
                out[r, t, i] = solo_seconds(*phases_s, self.sync_s[i], "one-step")
        out.setflags(write=False)
        return out

    @cached_property
    def deadline_s(self) -> FloatArray:
        """D_j = sigma_j T_j, ``(n_jobs,)`` seconds."""
        out: FloatArray = self.slo * self.solo_s
        out.setflags(write=False)
        return out

    @cached_property
    def iterations(self) -> FloatArray:
        """Iterations in ``duration_s`` when alone, ``(n_jobs,)``; may be fractional."""
        out: FloatArray = self.duration_s / self.solo_s
        out.setflags(write=False)
        return out

    @cached_property
    def restart_s(self) -> FloatArray:
        """Seconds of a restart, ``(n_jobs,)``; see :func:`instances.restarts.restart_seconds`."""
        out = restart_seconds(self)
        out.setflags(write=False)
        return out

    def estimated_columns(self) -> tuple[str, ...]:
        """Return the names of the columns with at least one estimated cell, sorted."""
        return tuple(sorted(k for k, v in self.estimated.items() if bool(np.any(v))))
