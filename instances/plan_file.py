"""plan.json: write a :class:`~instances.plan.Plan`, and read one from outside.

Layout (``schema_version`` 1)::

    schema_version, policy, durations, pins_fixed, usd_total,
    limits     {max_group_size, max_rollout_nodes, max_train_nodes, max_rate}
    cluster    as instances.cluster_file writes it
    jobs       one list per column, design section 2 names; "estimated": {column: [job_id, ..]}
    groups     [{group_id, from_s, to_s, period_s, rollout_nodes, train_nodes,
                 placements: [{job_id, rollout_pins, train_pins, rate, starts_s}]}]
    dedicated  [{job_id, from_s, to_s, rollout_nodes, train_nodes}]
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from instances.cluster_file import cluster_from_dict, cluster_to_dict
from instances.errors import InputError
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, JobTable
from instances.plan import DedicatedNodes, GroupVersion, JobPlacement, Limits, Plan

__all__ = ["SCHEMA_VERSION", "plan_from_dict", "plan_to_dict", "read_plan", "write_plan_json"]

SCHEMA_VERSION: Final = 1

Finite = Annotated[float, Field(allow_inf_nan=False)]
Node = Annotated[int, Field(ge=0, strict=True)]
Whole = Annotated[int, Field(ge=1, strict=True)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Placement(_Record):
    job_id: str
    rollout_pins: tuple[Node, ...]
    train_pins: tuple[Node, ...]
    starts_s: tuple[tuple[Finite, Finite], ...]
    rate: Whole


class _Group(_Record):
    group_id: str
    from_s: Finite
    to_s: Finite
    period_s: Finite
    rollout_nodes: tuple[Node, ...]
    train_nodes: tuple[Node, ...]
    placements: tuple[_Placement, ...]


class _Dedicated(_Record):
    job_id: str
    from_s: Finite
    to_s: Finite
    rollout_nodes: Node
    train_nodes: Node


class _Limits(_Record):
    max_group_size: Annotated[int, Field(ge=0, strict=True)]
    max_rollout_nodes: Whole | None
    max_train_nodes: Whole | None
    max_rate: Whole


class _Jobs(_Record):
    job_id: list[str]
    arrival_s: list[Finite]
    duration_s: list[Annotated[Finite, Field(gt=0)]]
    slo: list[Annotated[Finite, Field(ge=1)]]
    rollout_s: list[Annotated[Finite, Field(gt=0)]]
    train_s: list[Annotated[Finite, Field(gt=0)]]
    sync_s: list[Annotated[Finite, Field(ge=0)]]
    rollout_nodes: list[Whole]
    train_nodes: list[Whole]
    rollout_state_gb: list[Annotated[Finite, Field(ge=0)]]
    train_state_gb: list[Annotated[Finite, Field(ge=0)]]
    rollout_switch_s: list[Annotated[Finite, Field(ge=0)]]
    train_switch_s: list[Annotated[Finite, Field(ge=0)]]
    sync_gb: list[Annotated[Finite, Field(ge=0)]]
    mode: list[Literal["sync", "one-step", "async"]]
    optional: dict[str, list[float | None]] = {}
    extra: dict[str, list[str]] = {}
    estimated: dict[str, list[str]] = {}

    @model_validator(mode="after")
    def _same_lengths(self) -> _Jobs:
        n = len(self.job_id)
        columns = {name: getattr(self, name) for name in (*FLOAT_FIELDS, *INT_FIELDS, "mode")}
        for name, values in {**columns, **self.optional, **self.extra}.items():
            if len(values) != n:
                raise ValueError(f"Expected {n} values in jobs.{name}, got {len(values)}")
        if len(set(self.job_id)) != n:
            raise ValueError("Expected distinct jobs.job_id")
        return self


class _Plan(_Record):
    schema_version: Literal[1]
    policy: str
    durations: Literal["work", "wallclock", "snapshot"]
    pins_fixed: bool
    usd_total: Finite
    limits: _Limits
    cluster: dict[str, Any]
    jobs: _Jobs
    groups: tuple[_Group, ...]
    dedicated: tuple[_Dedicated, ...]


def _jobs_to_dict(jobs: JobTable) -> dict[str, Any]:
    def text(values: Any) -> list[float | None]:
        return [None if np.isnan(v) else v for v in values.tolist()]

    return {
        "job_id": list(jobs.job_id),
        **{name: getattr(jobs, name).tolist() for name in (*FLOAT_FIELDS, *INT_FIELDS)},
        "mode": list(jobs.mode),
        "optional": {k: text(v) for k, v in jobs.optional.items()},
        "extra": {k: list(v) for k, v in jobs.extra.items()},
        "estimated": {
            k: [jobs.job_id[i] for i in np.flatnonzero(v)]
            for k, v in jobs.estimated.items()
            if v.any()
        },
    }


def _jobs_from_record(record: _Jobs, source: str) -> JobTable:
    index = {job_id: i for i, job_id in enumerate(record.job_id)}
    estimated = {}
    for column, ids in record.estimated.items():
        mask = np.zeros(len(index), dtype=np.bool_)
        for job_id in ids:
            if job_id not in index:
                raise InputError(f"{source}: Unknown job '{job_id}' in jobs.estimated.{column}.")
            mask[index[job_id]] = True
        estimated[column] = mask
    return JobTable(
        job_id=tuple(record.job_id),
        mode=tuple(record.mode),
        optional={
            k: np.array([np.nan if v is None else v for v in values])
            for k, values in record.optional.items()
        },
        extra={k: tuple(v) for k, v in record.extra.items()},
        estimated=estimated,
        **{name: np.array(getattr(record, name)) for name in (*FLOAT_FIELDS, *INT_FIELDS)},
    )


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Return plain tables that :func:`plan_from_dict` reads back unchanged."""
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": plan.policy,
        "durations": plan.durations,
        "pins_fixed": plan.pins_fixed,
        "usd_total": plan.usd_total,
        "limits": dataclasses.asdict(plan.limits),
        "cluster": cluster_to_dict(plan.cluster),
        "jobs": _jobs_to_dict(plan.jobs),
        "groups": [dataclasses.asdict(group) for group in plan.groups],
        "dedicated": [dataclasses.asdict(item) for item in plan.dedicated],
    }


def plan_from_dict(data: Any, source: str = "plan") -> Plan:
    """Build a :class:`Plan` from tables; whether it is *valid* is the checker's business.

    Raises
    ------
    InputError
        When a key is missing, unknown or of the wrong kind; each fault names its place.
    """
    try:
        record = _Plan.model_validate(data)
    except ValidationError as error:
        faults = error.errors()
        lines = [
            f"{source}: {'.'.join(map(str, e['loc'])) or 'plan'}: {e['msg']}." for e in faults[:20]
        ]
        if len(faults) > len(lines):
            lines.append(f"{source}: ... {len(faults)} faults in all.")
        raise InputError("\n".join(lines)) from error
    groups = tuple(
        GroupVersion(
            placements=tuple(
                JobPlacement(**{n: getattr(p, n) for n in _Placement.model_fields})
                for p in group.placements
            ),
            **{n: getattr(group, n) for n in _Group.model_fields if n != "placements"},
        )
        for group in record.groups
    )
    return Plan(
        policy=record.policy,
        durations=record.durations,
        pins_fixed=record.pins_fixed,
        usd_total=record.usd_total,
        limits=Limits(**record.limits.model_dump()),
        cluster=cluster_from_dict(record.cluster, source),
        jobs=_jobs_from_record(record.jobs, source),
        groups=groups,
        dedicated=tuple(DedicatedNodes(**d.model_dump()) for d in record.dedicated),
    )


def write_plan_json(plan: Plan, path: str | Path) -> None:
    """Write plan.json to ``path``; atomic writing is the caller's business."""
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(plan_to_dict(plan), handle, ensure_ascii=False, allow_nan=False)
        handle.write("\n")


def read_plan(path: str | Path) -> Plan:
    """Read a plan.json.

    Raises
    ------
    InputError
        When the file cannot be read, is not JSON or breaks the layout.
    """
    source = Path(path).name
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: Not UTF-8 text: {error}.") from error
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source}: Not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from error
    return plan_from_dict(data, source)
