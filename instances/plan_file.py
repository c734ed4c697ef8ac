"""plan.json: write a :class:`~instances.plan.Plan`, and read one from outside.

Layout (``schema_version`` 1)::

    schema_version, policy, durations, pins_fixed, usd_total,
    limits     {max_group_size, max_rollout_nodes, max_train_nodes, max_rate}
    cluster    as instances.cluster_file writes it
    jobs       one list per column, named as in a trace; "estimated": {column: [job_id, ..]}
    groups     [{group_id, from_s, to_s, period_s, rollout_nodes, train_nodes,
                 placements: [{job_id, rollout_pins, train_pins, rate, starts_s}]}]
    dedicated  [{job_id, from_s, to_s, rollout_nodes, train_nodes}]
    pauses     [{job_id, from_s, to_s}]
    held       [{group_id, from_s, to_s, rollout_nodes, train_nodes}]
    fleet      {rollout_nodes, train_nodes}, or null
    starts     [{job_id, at_s}]
    losses     [{job_id, at_s, iterations, back_s}]
    outages    [{pool, from_s, to_s}]

Numbers are JSON numbers (never text or true), seconds may be whole, and whole numbers have no
decimal point. Every fault names the file, the place (``groups.0.period_s``) and the value.
``pauses``, ``held``, ``fleet``, ``starts``, ``losses`` and ``outages`` are always written, and may
be absent: there are none then.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from instances.cluster_file import cluster_from_dict, cluster_to_dict
from instances.errors import InputError, did_you_mean
from instances.input_files import refuse_device
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, OPTIONAL_FIELDS, JobTable
from instances.plan import (
    DedicatedNodes,
    Fleet,
    GroupVersion,
    HeldNodes,
    JobPlacement,
    Limits,
    Loss,
    Outage,
    Pause,
    Plan,
    Start,
)
from instances.schema_faults import MAX_SHOWN, refuse, say, shown

__all__ = ["SCHEMA_VERSION", "plan_from_dict", "plan_to_dict", "read_plan", "write_plan_json"]

SCHEMA_VERSION: Final = 1

_MOST: Final = 2**63 - 1  # node counts are kept as int64
#: JSON escapes of one half of a surrogate pair; without the other half they are no text.
_HALF_CHARACTER: Final = re.compile(r"\\u[dD][89a-fA-F]")


def _this_version(version: int) -> int:
    if version != SCHEMA_VERSION:
        raise ValueError(f"Expected schema_version {SCHEMA_VERSION}, got {shown(version)}")
    return version


T = TypeVar("T")
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Node = Annotated[int, Field(ge=0, le=_MOST)]
Whole = Annotated[int, Field(ge=1, le=_MOST)]
#: JSON has lists only; what is in them stays strict.
Many = Annotated[tuple[T, ...], Field(strict=False)]
StartPair = Annotated[tuple[Finite, Finite], Field(strict=False)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Placement(_Record):
    job_id: str
    rollout_pins: Many[Node]
    train_pins: Many[Node]
    starts_s: Many[StartPair]
    rate: Whole


class _Group(_Record):
    group_id: str
    from_s: Finite
    to_s: Finite
    period_s: Finite
    rollout_nodes: Many[Node]
    train_nodes: Many[Node]
    placements: Many[_Placement]


class _Dedicated(_Record):
    job_id: str
    from_s: Finite
    to_s: Finite
    rollout_nodes: Node
    train_nodes: Node


class _Pause(_Record):
    job_id: str
    from_s: Finite
    to_s: Finite


class _Held(_Record):
    group_id: str
    from_s: Finite
    to_s: Finite
    rollout_nodes: Node
    train_nodes: Node


class _Fleet(_Record):
    rollout_nodes: Node
    train_nodes: Node


class _Start(_Record):
    job_id: str
    at_s: Finite


class _Loss(_Record):
    job_id: str
    at_s: Finite
    iterations: Finite
    back_s: Finite


class _Outage(_Record):
    pool: Literal["rollout", "train"]
    from_s: Finite
    to_s: Finite


class _Limits(_Record):
    max_group_size: Node
    max_rollout_nodes: Whole | None
    max_train_nodes: Whole | None
    max_rate: Whole


class _Jobs(_Record):
    job_id: list[str]
    arrival_s: list[Finite]
    duration_s: list[Positive]
    slo: list[Annotated[float, Field(ge=1, allow_inf_nan=False)]]
    rollout_s: list[Positive]
    train_s: list[Positive]
    sync_s: list[NonNegative]
    rollout_nodes: list[Whole]
    train_nodes: list[Whole]
    rollout_state_gb: list[NonNegative]
    train_state_gb: list[NonNegative]
    rollout_switch_s: list[NonNegative]
    train_switch_s: list[NonNegative]
    sync_gb: list[NonNegative]
    mode: list[Literal["sync", "one-step", "async"]]
    optional: dict[str, list[Finite | None]] = {}
    extra: dict[str, list[str]] = {}
    estimated: dict[str, list[str]] = {}


class _Plan(_Record):
    schema_version: Annotated[int, AfterValidator(_this_version)]
    policy: str
    durations: Literal["work", "wallclock", "snapshot"]
    pins_fixed: bool
    usd_total: Finite
    limits: _Limits
    cluster: dict[str, Any]
    jobs: _Jobs
    groups: Many[_Group]
    dedicated: Many[_Dedicated]
    pauses: Many[_Pause] = ()
    held: Many[_Held] = ()
    fleet: _Fleet | None = None
    starts: Many[_Start] = ()
    losses: Many[_Loss] = ()
    outages: Many[_Outage] = ()


# --- Words for what is wrong ---------------------------------------------------------------

_KNOWN_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "": tuple(_Plan.model_fields),
    "limits": tuple(_Limits.model_fields),
    "jobs": tuple(_Jobs.model_fields),
    "groups": tuple(_Group.model_fields),
    "groups.placements": tuple(_Placement.model_fields),
    "dedicated": tuple(_Dedicated.model_fields),
    "pauses": tuple(_Pause.model_fields),
    "held": tuple(_Held.model_fields),
    "fleet": tuple(_Fleet.model_fields),
    "starts": tuple(_Start.model_fields),
    "losses": tuple(_Loss.model_fields),
    "outages": tuple(_Outage.model_fields),
}


def _place(*parts: int | str) -> str:
    """Return ``groups.0.period_s``; names of columns may hold anything, and are shortened."""
    return ".".join(shown(part)[1:-1] if isinstance(part, str) else str(part) for part in parts)


def _say(error: Any) -> str:
    """Return one fault of the layout as a line."""
    loc = error["loc"] or ("the plan",)
    table = ".".join(part for part in loc[:-1] if isinstance(part, str))
    return say({**error, "loc": loc}, lambda parts: _place(*parts), _KNOWN_KEYS.get(table, ()))


def _job_faults(jobs: _Jobs) -> list[str]:
    """Return what is wrong between columns: lengths, names and job ids."""
    n, ids = len(jobs.job_id), set(jobs.job_id)
    columns: dict[tuple[str, ...], Any]
    columns = {(name,): getattr(jobs, name) for name in (*FLOAT_FIELDS, *INT_FIELDS, "mode")}
    columns |= {("optional", name): values for name, values in jobs.optional.items()}
    columns |= {("extra", name): values for name, values in jobs.extra.items()}
    faults = [
        f"Expected {n} values in {_place('jobs', *name)}, one per job_id, got {len(values)}."
        for name, values in columns.items()
        if len(values) != n
    ]
    if len(ids) < n:
        job_id, times = Counter(jobs.job_id).most_common(1)[0]
        faults.append(f"Expected distinct jobs.job_id, got {shown(job_id)} {times} times.")
    for table, names, known in (
        ("optional", jobs.optional, OPTIONAL_FIELDS),
        ("estimated", jobs.estimated, (*FLOAT_FIELDS, *INT_FIELDS)),
    ):
        faults += [
            f"Unknown column '{_place('jobs', table, name)}'.{did_you_mean(name, known)}"
            for name in names
            if name not in known
        ]
    faults += [
        f"Expected {_place('jobs', 'optional', 'restart_s', i)} >= 0, got {shown(seconds)}."
        for i, seconds in enumerate(jobs.optional.get("restart_s", []))
        if seconds is not None and seconds < 0
    ]
    for name, marked in jobs.estimated.items():
        faults += [
            f"Unknown job {shown(job_id)} in {_place('jobs', 'estimated', name)}."
            for job_id in marked
            if job_id not in ids
        ]
    return faults


# --- Writing and reading ---------------------------------------------------------------------


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


def _jobs_from_record(record: _Jobs) -> JobTable:
    index = {job_id: i for i, job_id in enumerate(record.job_id)}
    estimated = {}
    for column, ids in record.estimated.items():
        estimated[column] = np.zeros(len(index), dtype=np.bool_)
        estimated[column][[index[job_id] for job_id in ids]] = True
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
        "pauses": [dataclasses.asdict(item) for item in plan.pauses],
        "held": [dataclasses.asdict(item) for item in plan.held],
        "fleet": None if plan.fleet is None else dataclasses.asdict(plan.fleet),
        "starts": [dataclasses.asdict(item) for item in plan.starts],
        "losses": [dataclasses.asdict(item) for item in plan.losses],
        "outages": [dataclasses.asdict(item) for item in plan.outages],
    }


def plan_from_dict(data: Any, source: str = "plan") -> Plan:
    """Build a :class:`Plan` from tables; whether it is *valid* is the checker's business.

    Raises
    ------
    InputError
        When a key is missing, unknown or of the wrong kind; each fault names its place and
        value, the first 20 are shown and all are counted.
    """
    if isinstance(data, dict) and "command" in data:
        raise InputError(
            f"{source}: Expected a plan.json, as --out writes it, got the document of "
            f"'{shown(data['command'])[1:-1]} --json'."
        )
    try:
        record = _Plan.model_validate(data)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        refuse([_say(e) for e in errors[:MAX_SHOWN]], len(errors), source)
    if faults := _job_faults(record.jobs):
        refuse(faults, len(faults), source)
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
        cluster=cluster_from_dict(record.cluster, f"{source}: cluster"),
        jobs=_jobs_from_record(record.jobs),
        groups=groups,
        dedicated=tuple(DedicatedNodes(**d.model_dump()) for d in record.dedicated),
        pauses=tuple(Pause(**p.model_dump()) for p in record.pauses),
        held=tuple(HeldNodes(**h.model_dump()) for h in record.held),
        fleet=None if record.fleet is None else Fleet(**record.fleet.model_dump()),
        starts=tuple(Start(**s.model_dump()) for s in record.starts),
        losses=tuple(Loss(**s.model_dump()) for s in record.losses),
        outages=tuple(Outage(**o.model_dump()) for o in record.outages),
    )


def write_plan_json(plan: Plan, path: str | Path) -> None:
    """Write plan.json to ``path``; atomic writing is the caller's business.

    Parameters
    ----------
    plan : Plan
        Any plan; it is not checked.
    path : str or Path
        A file that is there is replaced.
    """
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(plan_to_dict(plan), handle, ensure_ascii=False, allow_nan=False)
        handle.write("\n")


def read_plan(path: str | Path) -> Plan:
    """Read a plan.json.

    Parameters
    ----------
    path : str or Path
        Written by ``--out`` or :func:`write_plan_json`.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        When the file cannot be read, is not JSON or breaks the layout.
    """
    source = Path(path).name
    refuse_device(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: Not UTF-8 text: {error}.") from error
    except ValueError as error:  # a NUL in the path
        raise InputError(f"{shown(str(path))}: Not the path of a file: {error}.") from error
    try:
        return plan_from_dict(_parse(text, source), source)
    except RecursionError as error:
        raise InputError(f"{source}: Not a plan: lists or objects nested too deeply.") from error


def _parse(text: str, source: str) -> Any:
    """Return the JSON value; every key once, and nothing that could not be written again."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            key, times = Counter(key for key, _ in pairs).most_common(1)[0]
            raise InputError(f"{source}: Expected key {shown(key)} once, got it {times} times.")
        return table

    try:
        data = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source}: Not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})."
        ) from error
    except ValueError as error:  # more digits than Python turns into a whole number
        digits = max(re.findall(r"\d+", text), key=len)
        line = text.count("\n", 0, text.index(digits)) + 1
        raise InputError(
            f"{source}: Expected numbers of fewer digits, got {shown(digits)[1:-1]} "
            f"({len(digits)} digits, line {line})."
        ) from error
    if _HALF_CHARACTER.search(text):
        try:
            json.dumps(data, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            half = ascii(error.object[error.start])
            raise InputError(f"{source}: Not valid text: half a character, {half}.") from error
    return data
