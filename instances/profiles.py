"""RL phase profiles: seeded draws of what a job does in one iteration.

Used by :mod:`instances.generate` and, on top of real arrivals, by :mod:`instances.importers`.
A profile says model size, token limit, SLO and the worst-case phase seconds of a job; states,
switches and sync then follow from ``model_b`` and are flagged estimated.

``production``: the marginals of the published production trace. N is r + t, the seconds of an
iteration without sync; T = N + s; f = t / T is the train share.

==========  ===========================================================  =====================
quantity    distribution                                                 source
==========  ===========================================================  =====================
model_b     3 / 7 / 14 / 32 B with 20 / 40 / 25 / 15 %                   range: published
                                                                         marginal; mix: guess
max_tokens  4,096 / 8,192 / 16,384 / 32,768 with                         range, mean 12.1k:
            29 / 30 / 30 / 11 % (mean 12.2k)                             published marginal;
                                                                         mix: guess
slo         U(1, 2), four decimals                                       published marginal
f           80 % of jobs U(0.15, 0.33), 20 % U(0.33, 0.55)               mostly rollout-heavy:
                                                                         published marginal;
                                                                         numbers: guess
N           N_least (1500 s / N_least)^u, u = 0.6 k / 3 + 0.4 U(0, 1),   phases 50 to > 900 s:
            k = 0..3 the rank of max_tokens, N_least the least N at      published marginal;
            which both phases last 50 s                                  shape: guess
==========  ===========================================================  =====================

``balanced``, ``rollout-heavy``, ``train-heavy`` and ``mixed``: the kinds and sizes are those of
the published simulation; the numbers in :data:`PROFILE_TABLE`, the jitter
U(0.9, 1.1) of each phase, equal chances of the sizes and (``mixed``) of the kinds are guesses;
slo ~ U(1, 2) as above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.hardware import Cluster
from instances.jobs import JobTable
from instances.network import sync_gb_of_model, sync_seconds

__all__ = [
    "KINDS",
    "PROFILES",
    "PROFILE_TABLE",
    "Phases",
    "SizeProfile",
    "Stays",
    "build_jobs",
    "draw_phases",
    "model_estimates",
    "require_profile",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

SHORTEST_PHASE_S: Final = 50.0
LONGEST_NON_SYNC_S: Final = 1500.0

_MODEL_B: Final = np.array([3.0, 7.0, 14.0, 32.0])
_MODEL_SHARE: Final = np.array([0.20, 0.40, 0.25, 0.15])
_MAX_TOKENS: Final = np.array([4096.0, 8192.0, 16384.0, 32768.0])
_MAX_TOKENS_SHARE: Final = np.array([0.29, 0.30, 0.30, 0.11])
_ROLLOUT_HEAVY_SHARE: Final = 0.8
_TRAIN_SHARE_RANGES: Final = ((0.15, 0.33), (0.33, 0.55))
_TOKEN_WEIGHT: Final = 0.6
_JITTER: Final = (0.9, 1.1)


@dataclass(frozen=True, kw_only=True)
class SizeProfile:
    """One row of :data:`PROFILE_TABLE`; every number is a guess."""

    model_b: float
    max_tokens: float
    rollout_s: float
    train_s: float


def _size(model_b: float, max_tokens: float, rollout_s: float, train_s: float) -> SizeProfile:
    return SizeProfile(model_b=model_b, max_tokens=max_tokens, rollout_s=rollout_s, train_s=train_s)


#: Kind -> size -> (model_b, max_tokens, rollout_s, train_s). All of it is guessed.
PROFILE_TABLE: Final[Mapping[str, Mapping[str, SizeProfile]]] = MappingProxyType(
    {
        "balanced": MappingProxyType(
            {
                "S": _size(7.0, 8192.0, 120.0, 110.0),
                "M": _size(14.0, 8192.0, 240.0, 220.0),
                "L": _size(32.0, 8192.0, 480.0, 440.0),
            }
        ),
        "rollout-heavy": MappingProxyType(
            {
                "S": _size(7.0, 16384.0, 240.0, 80.0),
                "M": _size(14.0, 16384.0, 480.0, 150.0),
                "L": _size(32.0, 32768.0, 900.0, 270.0),
            }
        ),
        "train-heavy": MappingProxyType(
            {
                "S": _size(7.0, 4096.0, 80.0, 200.0),
                "M": _size(14.0, 4096.0, 150.0, 420.0),
                "L": _size(32.0, 4096.0, 270.0, 800.0),
            }
        ),
    }
)

#: What the generator ``profiles`` takes as ``kind``.
KINDS: Final = (*PROFILE_TABLE, "mixed")
#: What an importer takes as ``profile``.
PROFILES: Final = ("production", *KINDS)


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Drawn profiles of n jobs; arrays ``(n,) float64``, ``label`` such as ``balanced/M``."""

    model_b: FloatArray
    max_tokens: FloatArray
    slo: FloatArray
    rollout_s: FloatArray
    train_s: FloatArray
    label: tuple[str, ...]

    def take(self, indices: IntArray) -> Phases:
        """Return the profiles at ``indices``, in that order."""
        return Phases(
            model_b=self.model_b[indices],
            max_tokens=self.max_tokens[indices],
            slo=self.slo[indices],
            rollout_s=self.rollout_s[indices],
            train_s=self.train_s[indices],
            label=tuple(self.label[i] for i in indices),
        )


def model_estimates(model_b: FloatArray, cluster: Cluster) -> dict[str, FloatArray]:
    """Return the columns that follow from ``model_b``, ``(n,)`` each.

    States and switches are linear between the cluster's stated model sizes and constant
    outside; ``sync_gb`` is one bf16 copy and ``sync_s`` its hierarchical transfer.
    """
    points = sorted(cluster.models, key=lambda m: m.model_b)
    sizes = [m.model_b for m in points]
    names = ("rollout_state_gb", "train_state_gb", "rollout_switch_s", "train_switch_s")
    out = {
        name: np.asarray(np.interp(model_b, sizes, [getattr(m, name) for m in points]))
        for name in names
    }
    out["sync_gb"] = sync_gb_of_model(model_b)
    out["sync_s"] = sync_seconds(out["sync_gb"], cluster.links)
    return out


def _draw_slo(rng: np.random.Generator, n_jobs: int) -> FloatArray:
    return np.round(rng.uniform(1.0, 2.0, n_jobs), 4)


def _draw_production(rng: np.random.Generator, n_jobs: int, cluster: Cluster) -> Phases:
    model_b = rng.choice(_MODEL_B, size=n_jobs, p=_MODEL_SHARE)
    rank = rng.choice(len(_MAX_TOKENS), size=n_jobs, p=_MAX_TOKENS_SHARE)
    slo = _draw_slo(rng, n_jobs)
    heavy = rng.random(n_jobs) < _ROLLOUT_HEAVY_SHARE
    low, high = np.where(heavy, *(np.array(r)[:, None] for r in _TRAIN_SHARE_RANGES))
    share = rng.uniform(low, high)
    noise = rng.random(n_jobs)

    sync_s = model_estimates(model_b, cluster)["sync_s"]
    # t = f (N + s) >= 50 and r = N - t >= 50.
    least_s = np.maximum(
        SHORTEST_PHASE_S / share - sync_s,
        (SHORTEST_PHASE_S + share * sync_s) / (1.0 - share),
    )
    u = _TOKEN_WEIGHT * rank / (len(_MAX_TOKENS) - 1) + (1.0 - _TOKEN_WEIGHT) * noise
    non_sync_s = least_s * (np.maximum(LONGEST_NON_SYNC_S, least_s) / least_s) ** u
    train_s = share * (non_sync_s + sync_s)
    return Phases(
        model_b=model_b,
        max_tokens=_MAX_TOKENS[rank],
        slo=slo,
        rollout_s=np.round(non_sync_s - train_s, 3),
        train_s=np.round(train_s, 3),
        label=("production",) * n_jobs,
    )


def _draw_kind(rng: np.random.Generator, n_jobs: int, kind: str) -> Phases:
    kinds = tuple(PROFILE_TABLE) if kind == "mixed" else (kind,)
    rows = [(k, size) for k in kinds for size in PROFILE_TABLE[k]]
    drawn = rng.integers(len(rows), size=n_jobs)
    slo = _draw_slo(rng, n_jobs)
    table = {
        name: np.array([getattr(PROFILE_TABLE[k][size], name) for k, size in rows])
        for name in ("model_b", "max_tokens", "rollout_s", "train_s")
    }
    labels = [f"{k}/{size}" for k, size in rows]
    return Phases(
        model_b=table["model_b"][drawn],
        max_tokens=table["max_tokens"][drawn],
        slo=slo,
        rollout_s=np.round(table["rollout_s"][drawn] * rng.uniform(*_JITTER, n_jobs), 3),
        train_s=np.round(table["train_s"][drawn] * rng.uniform(*_JITTER, n_jobs), 3),
        label=tuple(labels[i] for i in drawn),
    )


def require_profile(profile: str) -> None:
    """Raise InputError when ``profile`` is not one of ``PROFILES``."""
    if profile not in PROFILES:
        raise InputError(
            f"Expected profile in {', '.join(PROFILES)}, got '{profile}'."
            f"{did_you_mean(profile, PROFILES)}"
        )


def draw_phases(rng: np.random.Generator, n_jobs: int, profile: str, cluster: Cluster) -> Phases:
    """Draw the profiles of ``n_jobs`` jobs.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of every draw.
    n_jobs : int
        Number of jobs.
    profile : str
        One of ``PROFILES``.
    cluster : Cluster
        Gives the sync seconds that the ``production`` train share includes.

    Raises
    ------
    InputError
        When ``profile`` is not one of ``PROFILES``.
    """
    require_profile(profile)
    if profile == "production":
        return _draw_production(rng, n_jobs, cluster)
    return _draw_kind(rng, n_jobs, profile)


@dataclass(frozen=True, kw_only=True)
class Stays:
    """When n jobs come, how long they would run alone and on how many nodes; ``(n,)`` each."""

    job_id: tuple[str, ...]
    arrival_s: FloatArray
    duration_s: FloatArray
    rollout_nodes: IntArray
    train_nodes: IntArray
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def build_jobs(stays: Stays, phases: Phases, cluster: Cluster) -> JobTable:
    """Join stays and profiles; the columns that follow from ``model_b`` are flagged estimated."""
    n_jobs = len(stays.job_id)
    estimates = model_estimates(phases.model_b, cluster)
    return JobTable(
        job_id=stays.job_id,
        arrival_s=stays.arrival_s,
        duration_s=stays.duration_s,
        slo=phases.slo,
        rollout_s=phases.rollout_s,
        train_s=phases.train_s,
        sync_s=estimates["sync_s"],
        rollout_nodes=stays.rollout_nodes,
        train_nodes=stays.train_nodes,
        rollout_state_gb=estimates["rollout_state_gb"],
        train_state_gb=estimates["train_state_gb"],
        rollout_switch_s=estimates["rollout_switch_s"],
        train_switch_s=estimates["train_switch_s"],
        sync_gb=estimates["sync_gb"],
        mode=("sync",) * n_jobs,
        optional={"model_b": phases.model_b, "max_tokens": phases.max_tokens},
        extra=stays.extra,
        estimated={name: np.ones(n_jobs, dtype=np.bool_) for name in estimates},
    )
