"""Published figures of the run time beside ours: micro-benchmarks, migration and drift.

They are no part of the default table of ``planner reproduce`` where they take long. What a part is
not asked for stays in the table as *cannot be compared*, with how to ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from instances.generate import production
from instances.hardware import Cluster
from planner.output.report_parts import parts_in_order
from planner.replay.published import NOT_COMPARED, Row
from planner.reproduce.micro_benchmarks import micro_benchmark_rows
from planner.simulate.drift import DriftParams, DriftStudy, drift_rows, drift_study
from planner.simulate.migration_study import each_migration_row

__all__ = ["STUDIES", "require_studies", "runtime_rows"]

Progress = Callable[[str, int, int], None]

#: Studies beyond placement, in the order of the table.
STUDIES: Final = ("micro", "migration", "drift")
#: Most seeds of a study that takes minutes.
_FEW: Final = 3
_SETTINGS: Final = ("increasing", "decreasing", "mixed")
_MIGRATION: Final = "long-tail migration"


def require_studies(names: Sequence[str]) -> tuple[str, ...]:
    """Return studies in their own order.

    Raises
    ------
    InputError
        For an unknown name, with the nearest known one.
    """
    return parts_in_order(names, STUDIES, ("study", "studies"))


def runtime_rows(
    studies: Sequence[str], *, seeds: int, cluster: Cluster, progress: Progress | None = None
) -> list[Row]:
    """Return the rows of the run time.

    Parameters
    ----------
    studies : sequence of str
        Of :data:`STUDIES`; the rows of the others say how to ask for them.
    seeds : int
        At most three of them where a seed takes a minute (migration, drift).
    progress : callable, optional
        Called with (label, done, total).
    """
    few = range(min(seeds, _FEW))
    rows: list[Row] = []
    if "micro" in studies:
        rows += micro_benchmark_rows(cluster=cluster, progress=progress)
    if "migration" in studies:
        rows += each_migration_row(seeds=few, cluster=cluster, progress=_told(progress, _MIGRATION))
    else:
        rows.append(
            _not_run(_MIGRATION, "long-tail migration, throughput", "1.06-1.28", "x", "migration")
        )
    found: dict[str, DriftStudy] = {}
    if "drift" in studies:
        for setting in _SETTINGS:
            found[setting] = drift_study(
                lambda seed: production(seed=seed, cluster=cluster),
                setting,
                ("weave", "regroup"),
                few,
                DriftParams(cluster=cluster),
                progress=progress,
            )
        rows += drift_rows(found)
    else:
        rows += [
            _not_run("drift", "drift, static over hourly optimum", "1.08-1.11", "x", "drift"),
            _not_run("drift", "drift, SLOs met", "95.6-98.7", "%", "drift"),
        ]
    return rows


def _not_run(study: str, item: str, published: str, unit: str, name: str) -> Row:
    return Row(
        study=study,
        item=item,
        published=published,
        unit=unit,
        verdict=NOT_COMPARED,
        why=f"takes minutes: --studies micro,{name}",
    )


def _told(progress: Progress | None, label: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(label, done, total)
