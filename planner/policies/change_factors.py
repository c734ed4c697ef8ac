"""What may be otherwise than assumed: each factor, its levels, and how it changes a problem.

A *factor* has levels; a level turns the jobs and the options of a replay into others. All else
stays as it is, node prices included: a node with more host DRAM costs the same here.

=====================  ============================================================================
factor                 what a level does
=====================  ============================================================================
``host_dram_tb``       host DRAM of a node of either pool
``slo_scale``          scales the tolerated slack: ``sigma' = 1 + f (sigma - 1)``
``link_gbps``          ``inter_gbps``; ``sync_s`` anew from ``sync_gb`` (:mod:`instances.network`)
``links``              number of links: utilisation alone, nothing is placed anew
``sync_kind``          flat: one copy per receiving GPU crosses the link, in time and in traffic
``switch_times``       none, warm (as given) or cold
``max_group_size``     most jobs of a group, 0 for no limit
``max_rollout_nodes``  most rollout nodes of a group, 0 for no limit
=====================  ============================================================================

*Sync*. A ``sync_s`` is measured, and then stays at every level, where it was given in the trace:
where it is neither marked estimated nor what the link model makes of a given ``sync_gb``. When
``s_j`` changes, so does ``T_j``. The promise ``D_j`` stays in seconds, so that a slower link is
not rewarded with more slack: ``sigma' = D_j / T'_j``, or 1 where even alone the job is later than
promised; the row counts those. Under ``work`` the number of iterations is kept (``duration_s``
changes with ``T_j``), under ``wallclock`` the stay.

*Cold switches* are derived, not measured: warm seconds times the ratio of the longest published
cold start to the longest published warm one, both at 70B: 135.8 / 1.9 for rollout and 116 / 5.9
for train (as published).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.hardware import Cluster, Links
from instances.jobs import JobTable
from instances.network import sync_seconds, sync_seconds_flat
from planner.policies.policy import PolicyOptions

__all__ = [
    "COLD_OVER_WARM",
    "FACTORS",
    "Case",
    "Factor",
    "Level",
    "default_factors",
    "derived_sync",
    "factor_of",
    "group_rollout_nodes",
    "group_size",
    "host_dram",
    "link_count",
    "link_speed",
    "slo_scale",
    "switch_times",
    "sync_kind",
    "with_sync",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Cold start over warm switch, rollout and train: published maxima, 70B.
COLD_OVER_WARM: Final = {"rollout": 135.8 / 1.9, "train": 116.0 / 5.9}
_GB_PER_TB: Final = 1000.0
_BITS_PER_BYTE: Final = 8.0
#: Within this relative distance a given ``sync_s`` is what the link model says.
_SAME: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Case:
    """What is replayed, and what a reader must know of how it was made."""

    jobs: JobTable
    options: PolicyOptions
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Level:
    """One value of a factor and its words; labels identify a level."""

    value: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Factor:
    """One thing that may be otherwise.

    Attributes
    ----------
    name : str
    title : str
        The same in words.
    unit : str
        Of the levels' values; empty for a pure number or a kind.
    levels : tuple of Level
        In the order in which they are reported.
    base : callable
        The level that a case as given stands at.
    change : callable
        The case at another level.
    replays : bool
        Whether a level changes what is placed; else only link utilisation is counted anew.
    """

    name: str
    title: str
    unit: str
    levels: tuple[Level, ...]
    base: Callable[[Case], Level]
    change: Callable[[Case, float], Case]
    replays: bool = True

    def with_base(self, case: Case) -> tuple[tuple[Level, bool], ...]:
        """Return every level and whether it is the base's, which comes first if it is new."""
        base = self.base(case)
        marked = tuple((level, level.label == base.label) for level in self.levels)
        return marked if any(is_base for _, is_base in marked) else ((base, True), *marked)


def _require_levels(values: Sequence[float], name: str, least: float) -> None:
    for value in values:
        if not (least <= value < float("inf")):
            raise InputError(f"Expected levels of {name} >= {least:g}, got {value!r}.")
    if len(set(values)) < len(values):
        raise InputError(f"Expected distinct levels of {name}, got {list(values)}.")


def _with_cluster(case: Case, cluster: Cluster) -> Case:
    return dataclasses.replace(case, options=dataclasses.replace(case.options, cluster=cluster))


def _with_links(case: Case, **changes: Any) -> Case:
    cluster = case.options.cluster
    return _with_cluster(case, cluster.replace(links=dataclasses.replace(cluster.links, **changes)))


def _with_limits(case: Case, **changes: Any) -> Case:
    limits = dataclasses.replace(case.options.limits, **changes)
    return dataclasses.replace(case, options=dataclasses.replace(case.options, limits=limits))


# --- nodes --------------------------------------------------------------------------------------


def _dram_base(case: Case) -> Level:
    rollout, train = (
        node.host_dram_gb / _GB_PER_TB
        for node in (case.options.cluster.rollout, case.options.cluster.train)
    )
    label = f"{rollout:g} TB" if rollout == train else f"{rollout:g} / {train:g} TB"
    return Level(rollout, label)


def _dram_change(case: Case, value: float) -> Case:
    cluster = case.options.cluster
    pools = {
        pool: dataclasses.replace(getattr(cluster, pool), host_dram_gb=value * _GB_PER_TB)
        for pool in ("rollout", "train")
    }
    return _with_cluster(case, cluster.replace(**pools))


def host_dram(levels_tb: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 3.0)) -> Factor:
    """Return host DRAM of a node, both pools, TB (1e12 bytes)."""
    _require_levels(levels_tb, "host_dram_tb", 0)
    return Factor(
        name="host_dram_tb",
        title="host DRAM per node",
        unit="TB",
        levels=tuple(Level(tb, f"{tb:g} TB") for tb in levels_tb),
        base=_dram_base,
        change=_dram_change,
    )


# --- promises -----------------------------------------------------------------------------------


def _slo_change(case: Case, value: float) -> Case:
    slo = 1.0 + value * (case.jobs.slo - 1.0)
    return dataclasses.replace(case, jobs=case.jobs.replace(slo=slo))


def slo_scale(levels: Sequence[float] = (0.0, 0.5, 1.0, 1.5, 2.0)) -> Factor:
    """Return the tolerated slack, scaled: 0 tolerates no slowdown at all."""
    _require_levels(levels, "slo_scale", 0)
    return Factor(
        name="slo_scale",
        title="tolerated slack (slo - 1)",
        unit="x (slo - 1)",
        levels=tuple(Level(f, f"{f:g} x slack") for f in levels),
        base=lambda case: Level(1.0, "1 x slack"),
        change=_slo_change,
    )


# --- the link -----------------------------------------------------------------------------------


def derived_sync(jobs: JobTable, links: Links) -> BoolArray:
    """Return which jobs' ``sync_s`` follows from the link model, ``(n_jobs,)``.

    Those marked estimated, and those whose given size takes as long by the model. A size that
    was itself made from measured seconds agrees with the model too, and is left out.
    """
    none = np.zeros(len(jobs), dtype=np.bool_)
    by_model = sync_seconds(jobs.sync_gb, links)
    agrees = np.abs(jobs.sync_s - by_model) <= _SAME * np.maximum(by_model, 1.0)
    given_size = ~np.asarray(jobs.estimated.get("sync_gb", none))
    return np.asarray(jobs.estimated.get("sync_s", none)) | (agrees & given_size)


def with_sync(
    jobs: JobTable, sync_s: FloatArray, convention: str
) -> tuple[JobTable, tuple[str, ...]]:
    """Return the jobs with other sync seconds and the same promises, and whose are broken.

    Under ``work`` iterations are kept.
    """
    changed = jobs.replace(sync_s=sync_s)
    ratio = changed.solo_s / jobs.solo_s  # exactly 1 where nothing changes
    broken = int((ratio > jobs.slo * (1 + _SAME)).sum())
    changed = changed.replace(slo=np.maximum(jobs.slo / ratio, 1.0))
    if convention == "work":
        changed = changed.replace(duration_s=jobs.duration_s * ratio)
    if not broken:
        return changed, ()
    return changed, (f"{broken} of {len(jobs)} jobs are later than promised even alone",)


def _measured_note(jobs: JobTable, derived: BoolArray) -> tuple[str, ...]:
    measured = int((~derived).sum())
    if not measured:
        return ()
    return (f"sync_s of {measured} of {len(jobs)} jobs is measured and stays",)


def _link_change(case: Case, value: float) -> Case:
    jobs, links = case.jobs, case.options.cluster.links
    derived = derived_sync(jobs, links)
    other = _with_links(case, inter_gbps=value)
    by_model = sync_seconds(jobs.sync_gb, other.options.cluster.links)
    sync_s = np.where(derived, by_model, jobs.sync_s)
    changed, broken = with_sync(jobs, sync_s, case.options.convention)
    return Case(changed, other.options, case.notes + _measured_note(jobs, derived) + broken)


def link_speed(levels_gbps: Sequence[float] = (10.0, 20.0, 100.0, 400.0)) -> Factor:
    """Return the speed of a link between the two clusters, Gb/s."""
    _require_levels(levels_gbps, "link_gbps", 1e-9)
    return Factor(
        name="link_gbps",
        title="link between the clusters",
        unit="Gb/s",
        levels=tuple(Level(g, f"{g:g} Gb/s") for g in levels_gbps),
        base=lambda case: _gbps(case.options.cluster.links.inter_gbps),
        change=_link_change,
    )


def _gbps(value: float) -> Level:
    return Level(value, f"{value:g} Gb/s")


def _links_base(case: Case) -> Level:
    links = case.options.cluster.links.links
    if links is None:
        return Level(0.0, "one per 16 nodes of the larger pool")
    return _count(links)


def _count(links: int) -> Level:
    return Level(float(links), f"{links} link{'s' if links != 1 else ''}")


def link_count(levels: Sequence[int] = (1, 2, 4)) -> Factor:
    """Return the number of links between the two clusters; it changes utilisation alone."""
    _require_levels(levels, "links", 1)
    return Factor(
        name="links",
        title="number of links",
        unit="links",
        levels=tuple(_count(n) for n in levels),
        base=_links_base,
        change=lambda case, value: _with_links(case, links=int(value) if value else None),
        replays=False,
    )


_HIERARCHICAL: Final = Level(0.0, "hierarchical")
_FLAT: Final = Level(1.0, "flat")


def _sync_change(case: Case, value: float) -> Case:
    if value == _HIERARCHICAL.value:
        return case
    jobs, cluster = case.jobs, case.options.cluster
    derived = derived_sync(jobs, cluster.links)
    receiving = jobs.rollout_nodes * cluster.rollout.gpus_per_node
    flat_s = np.array(
        [
            sync_seconds_flat(float(gb), int(gpus), cluster.links)
            for gb, gpus in zip(jobs.sync_gb, receiving, strict=True)
        ]
    )
    # all that crosses the slow link: what it carries in the seconds of a flat sync
    crossing_gb = flat_s * cluster.links.inter_gbps / _BITS_PER_BYTE
    sync_s = np.where(derived, flat_s, jobs.sync_s)
    changed, broken = with_sync(jobs, sync_s, case.options.convention)
    changed = changed.replace(sync_gb=np.where(derived, crossing_gb, jobs.sync_gb))
    notes = ("flat sync by the simple model, which is known to fail at 16 GPUs and more",)
    if cluster.links.flat_over_hierarchical is not None:
        notes = ("flat sync by the measured ratio",)
    return Case(changed, case.options, case.notes + notes + _measured_note(jobs, derived) + broken)


def sync_kind() -> Factor:
    """Return flat against hierarchical sync."""
    return Factor(
        name="sync_kind",
        title="weight sync",
        unit="",
        levels=(_HIERARCHICAL, _FLAT),
        base=lambda case: _HIERARCHICAL,
        change=_sync_change,
    )


# --- switches -----------------------------------------------------------------------------------

_NO_SWITCH: Final = Level(0.0, "none")
_WARM: Final = Level(1.0, "warm")
_COLD: Final = Level(2.0, "cold")


def _switch_change(case: Case, value: float) -> Case:
    jobs = case.jobs
    if value == _WARM.value:
        return case
    if value == _NO_SWITCH.value:
        none = np.zeros(len(jobs))
        return dataclasses.replace(
            case, jobs=jobs.replace(rollout_switch_s=none, train_switch_s=none)
        )
    rollout, train = COLD_OVER_WARM["rollout"], COLD_OVER_WARM["train"]
    changed = jobs.replace(
        rollout_switch_s=jobs.rollout_switch_s * rollout,
        train_switch_s=jobs.train_switch_s * train,
    )
    note = f"cold derived: warm seconds x {rollout:.1f} (rollout), x {train:.1f} (train)"
    return dataclasses.replace(case, jobs=changed, notes=(*case.notes, note))


def switch_times() -> Factor:
    """Return what a switch between jobs takes: nothing, warm (as given), or a cold start."""
    return Factor(
        name="switch_times",
        title="switch times",
        unit="",
        levels=(_NO_SWITCH, _WARM, _COLD),
        base=lambda case: _WARM,
        change=_switch_change,
    )


# --- limits of a group --------------------------------------------------------------------------


def _limit(value: float, one: str) -> Level:
    """Return so many of something; 0 is no limit."""
    words = f"{value:g} {one}{'s' if value != 1 else ''}" if value else "no limit"
    return Level(float(value), words)


def group_size(levels: Sequence[int] = (1, 2, 3, 4, 5, 8, 0)) -> Factor:
    """Return the most jobs of a group; 0 is no limit."""
    _require_levels(levels, "max_group_size", 0)
    return Factor(
        name="max_group_size",
        title="jobs in a group at most",
        unit="jobs",
        levels=tuple(_limit(n, "job") for n in levels),
        base=lambda case: _limit(case.options.limits.max_group_size, "job"),
        change=lambda case, value: _with_limits(case, max_group_size=int(value)),
    )


def group_rollout_nodes(levels: Sequence[int] = (1, 2, 3, 4, 0)) -> Factor:
    """Return the most rollout nodes of a group; 0 is no limit."""
    _require_levels(levels, "max_rollout_nodes", 0)
    return Factor(
        name="max_rollout_nodes",
        title="rollout nodes in a group at most",
        unit="nodes",
        levels=tuple(_limit(n, "node") for n in levels),
        base=lambda case: _limit(case.options.limits.max_rollout_nodes or 0, "node"),
        change=lambda case, value: _with_limits(case, max_rollout_nodes=int(value) or None),
    )


#: Every factor, by the name of its rows, at its default levels.
FACTORS: Final[dict[str, Callable[[], Factor]]] = {
    "host_dram_tb": host_dram,
    "slo_scale": slo_scale,
    "link_gbps": link_speed,
    "links": link_count,
    "sync_kind": sync_kind,
    "switch_times": switch_times,
    "max_group_size": group_size,
    "max_rollout_nodes": group_rollout_nodes,
}


def factor_of(name: str) -> Factor:
    """Return a factor by name, at its default levels.

    Raises
    ------
    InputError
        For an unknown name, with the nearest known one.
    """
    if name not in FACTORS:
        raise InputError(
            f"Expected a factor in {', '.join(FACTORS)}, got '{name}'.{did_you_mean(name, FACTORS)}"
        )
    return FACTORS[name]()


def default_factors(names: Iterable[str] = tuple(FACTORS)) -> tuple[Factor, ...]:
    """Return factors at their default levels, all of them unless named."""
    return tuple(factor_of(name) for name in names)
