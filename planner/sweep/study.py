"""Read a study of many replays from TOML.

::

    name = "prices"               # left out: the name of the file
    policies = ["weave", "solo"]
    conventions = ["wallclock"]   # what ends a stay: work, wallclock or both
    seeds = [0, 1]                # of policies that draw (random); others run once
    cluster = "cluster.toml"      # left out: the default cluster
    coefficients = "a100.toml"    # of the phase estimator
    replications = 20             # bootstrapped copies of each trace; 0: the trace as it is
    runtime_replications = 5      # runs of each plan with sampled lengths; 0: none

    [[trace]]
    file = "jobs.csv"             # relative to the study
    [[trace]]
    generator = "production"      # or profiles, tiny-open-shop, ...
    jobs = 200
    seeds = [0, 1, 2]             # one trace each

    [axes]                        # one value or a list each; all are combined
    max_group_size = [2, 5]
    host_dram_gb = [1000, 2000]   # of both pools
    price_ratio = [2.0, 2.85]     # price of a train GPU over that of a rollout GPU
    slo_scale = [1, 1.5]          # scales the tolerated slack: 1 + f (slo - 1)
    inter_gbps = [20, 100]        # sync seconds that the trace leaves out follow
    fleet = ["none", "24,12"]     # rollout and train nodes that there are; the rest waits

    [bootstrap]                   # how copies are drawn (replications above 0)
    seed = 0
    block_h = 24

    [[case]]                      # left out: one case, the study as it stands
    name = "no pairs"
    max_group_size = 1            # takes the place of that axis; policies and conventions, too

Every combination of trace, policy, convention and axis values is one run; with cases, of each
case. Runs are expanded by :mod:`planner.sweep.expand`. All faults are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from instances.errors import InputError, did_you_mean
from instances.file_kinds import refuse_other_kind
from instances.generate import GENERATORS
from instances.plan import DURATION_CONVENTIONS
from instances.schema_faults import MAX_SHOWN, refuse, say, shown
from instances.toml_file import read_toml
from planner.placement.placer import OBJECTIVES, TIE_RULES
from planner.policies.policy import QUEUES
from planner.policies.registry import POLICIES

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = [
    "AXES",
    "AxesTable",
    "BootstrapTable",
    "CaseTable",
    "StudyFile",
    "TraceTable",
    "read_study",
    "study_from_dict",
]
__all__ += ["read_study", "study_from_dict"]


_MAX_VALUES: Final = 100_000
_KINDS: Final = ("balanced", "rollout-heavy", "train-heavy", "mixed")
_FLEET: Final = re.compile(r"\s*(\d{1,6})\s*,\s*(\d{1,6})\s*", re.ASCII)
#: Keys of ``[[trace]]`` that each generator takes, beside ``generator`` and ``name``.
_TAKES: Final = {
    "production": ("jobs", "seeds", "gangs", "concurrent"),
    "profiles": ("jobs", "seeds", "kind"),
}


def _listed(value: Any) -> Any:
    """Take one value for a list of one."""
    return value if isinstance(value, list) else [value]


def _one_of(known: Collection[str]) -> AfterValidator:
    """Return a rule: one of these words."""

    def rule(word: str) -> str:
        if word not in known:
            raise PydanticCustomError("one_of", "one of", {"known": tuple(known)})
        return word

    return AfterValidator(rule)


def _fleet(text: str) -> str:
    match = _FLEET.fullmatch(text)
    if text.strip() == "none":
        return "none"
    if match is None:
        raise PydanticCustomError("rule", 'rollout and train nodes such as "24,12", or "none"')
    return f"{int(match[1])},{int(match[2])}"


def _printable(text: str) -> str:
    """Require one line of text: names are cells of a table whose rows are lines."""
    if not text.isprintable():
        raise PydanticCustomError("rule", "printable text on one line")
    return text


Positive = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False, strict=True)]
NonNegative = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Rate = Annotated[int, Field(ge=1, le=16, strict=True)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=80, strict=True), AfterValidator(_printable)]
PathText = Annotated[str, Field(min_length=1, strict=True), AfterValidator(_printable)]
Text = Annotated[str, Field(strict=True)]
_Some = (BeforeValidator(_listed), Field(min_length=1, max_length=_MAX_VALUES))

Positives = Annotated[list[Positive], *_Some]
NonNegatives = Annotated[list[NonNegative], *_Some]
Counts = Annotated[list[Count], *_Some]
Rates = Annotated[list[Rate], *_Some]
Seeds = Annotated[list[Seed], *_Some]
Fleets = Annotated[list[Annotated[Text, AfterValidator(_fleet)]], *_Some]
Policies = Annotated[list[Annotated[Text, _one_of(POLICIES)]], *_Some]
Conventions = Annotated[list[Annotated[Text, _one_of(DURATION_CONVENTIONS)]], *_Some]
Objectives = Annotated[list[Annotated[Text, _one_of(OBJECTIVES)]], *_Some]
TieRules = Annotated[list[Annotated[Text, _one_of(TIE_RULES)]], *_Some]
Queues = Annotated[list[Annotated[Text, _one_of(QUEUES)]], *_Some]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class TraceTable(_Table):
    """One trace: a file, or a generator with its arguments."""

    name: Name | None = None
    file: PathText | None = None
    generator: Annotated[Text, _one_of(GENERATORS)] | None = None
    jobs: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = None
    seeds: Seeds | None = None
    gangs: Annotated[bool, Field(strict=True)] | None = None
    concurrent: Annotated[bool, Field(strict=True)] | None = None
    kind: Annotated[Text, _one_of(_KINDS)] | None = None

    def faults(self) -> Iterator[str]:
        """Yield what the keys given do not say together."""
        given = set(self.model_dump(exclude_none=True)) - {"name"}
        if len(given & {"file", "generator"}) != 1:
            yield "Expected file or generator, " + ("not both." if "file" in given else "got none.")
            return
        source = "a file" if self.file is not None else f"generator '{self.generator}'"
        takes = _TAKES.get(self.generator or "", ())
        for key in sorted(given - {"file", "generator", *takes}):
            yield f"Key {key} does not apply to {source}."


class AxesTable(_Table):
    """Values of each axis; one left out has its default."""

    max_group_size: Counts | None = None
    max_rate: Rates | None = None
    host_dram_gb: Positives | None = None
    rollout_host_dram_gb: Positives | None = None
    train_host_dram_gb: Positives | None = None
    rollout_usd_per_gpu_hour: NonNegatives | None = None
    train_usd_per_gpu_hour: NonNegatives | None = None
    price_ratio: Positives | None = None
    slo_scale: NonNegatives | None = None
    inter_gbps: Positives | None = None
    objective: Objectives | None = None
    tie_rule: TieRules | None = None
    fleet: Fleets | None = None
    queue: Queues | None = None
    growth: Positives | None = None


AXES: Final = tuple(AxesTable.model_fields)


class CaseTable(AxesTable):
    """What one case has in place of the study's policies, conventions and axes."""

    name: Name
    policies: Policies | None = None
    conventions: Conventions | None = None


class BootstrapTable(_Table):
    """How bootstrapped copies of a trace are drawn; copy ``i`` (from 1) by ``seed + i - 1``."""

    seed: Annotated[int, Field(ge=0, le=2**62, strict=True)] = 0
    block_h: Positive = 24.0


class _StudyTable(_Table):
    name: Name | None = None
    cluster: PathText | None = None
    coefficients: PathText | None = None
    policies: Policies
    conventions: Conventions = ["work"]
    seeds: Seeds = [0]
    replications: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    runtime_replications: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    trace: Annotated[list[TraceTable], Field(min_length=1)]
    axes: AxesTable = AxesTable()
    bootstrap: BootstrapTable = BootstrapTable()
    case: Annotated[list[CaseTable], Field(min_length=1)] | None = None


_KNOWN_KEYS: Final = {
    "": tuple(_StudyTable.model_fields),
    "trace": tuple(TraceTable.model_fields),
    "axes": AXES,
    "bootstrap": tuple(BootstrapTable.model_fields),
    "case": tuple(CaseTable.model_fields),
}


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """A study as declared, its tables valid each and together; no file but it was read.

    Attributes
    ----------
    name : str
    folder : Path
        What relative paths are relative to.
    source : str
        Name of the file, for errors.
    cases : tuple of CaseTable
        Each with every axis that it has, its own or the study's.
    """

    name: str
    folder: Path
    source: str
    cluster: str | None
    coefficients: str | None
    seeds: tuple[int, ...]
    replications: int
    runtime_replications: int
    bootstrap: BootstrapTable
    traces: tuple[TraceTable, ...]
    cases: tuple[CaseTable, ...]


def _place(parts: Sequence[int | str]) -> str:
    """Return ``[axes] max_rate #2``, or ``[trace #1] file``: what an editor's reader looks for."""
    if not parts:
        return "the file"
    first, rest = str(parts[0]), list(parts[1:])
    table = ""
    if first in ("trace", "case") and rest and isinstance(rest[0], int):
        table = f"[{first} #{int(rest.pop(0)) + 1}]"
    elif first in ("axes", "bootstrap") and rest:
        table = f"[{first}]"
    else:
        rest = [first, *rest]
    words = [f"#{part + 1}" if isinstance(part, int) else part for part in rest]
    return " ".join(filter(None, (table, *words)))


def _say(error: Any) -> str:
    """Return one fault as a line."""
    place, value = _place(error["loc"]), error["input"]
    if error["type"] == "one_of":
        known = error["ctx"]["known"]
        guess = did_you_mean(value, known)
        return f"Expected {place} in {', '.join(known)}, got {shown(value)}.{guess}"
    if error["type"] == "rule":
        return f"Expected {place} to be {error['msg']}, got {shown(value)}."
    table = str(error["loc"][0]) if len(error["loc"]) > 1 else ""
    known = _KNOWN_KEYS.get(table, ())
    line = say(error, _place, known)
    return f"{line} Known keys: {', '.join(known)}." if error["type"] == "extra_forbidden" else line


def _merged(axes: AxesTable, case: CaseTable, study: _StudyTable) -> CaseTable:
    """Return a case with the study's values where it has none of its own.

    An axis gives way to one that says the same thing in another way.
    """
    own = case.model_dump(exclude_none=True)
    base = axes.model_dump(exclude_none=True)
    for keys in (
        ("host_dram_gb", "rollout_host_dram_gb"),
        ("host_dram_gb", "train_host_dram_gb"),
        ("price_ratio", "train_usd_per_gpu_hour"),
    ):
        for mine, other in (keys, keys[::-1]):
            if mine in own and other not in own:
                base.pop(other, None)
    lists = {"policies": study.policies, "conventions": study.conventions}
    return CaseTable.model_validate({**lists, **base, **own})


def _axis_faults(axes: AxesTable, replications: int) -> Iterator[str]:
    """Yield what the axes of a case do not say together."""
    for one, other in (
        ("host_dram_gb", "rollout_host_dram_gb"),
        ("host_dram_gb", "train_host_dram_gb"),
        ("price_ratio", "train_usd_per_gpu_hour"),
    ):
        if getattr(axes, one) is not None and getattr(axes, other) is not None:
            yield f"Expected {one} or {other}, not both."
    if axes.queue is not None and set(axes.fleet or ["none"]) == {"none"}:
        yield "Expected queue only with fleet: without one no job waits."
    if axes.growth is not None and not replications:
        yield "Expected replications >= 1 with growth: it is drawn with bootstrapped copies."


def _faults(table: _StudyTable, cases: Sequence[CaseTable]) -> Iterator[str]:
    """Yield what is wrong with tables that are right each."""
    for number, trace in enumerate(table.trace, 1):
        yield from (f"[trace #{number}] {fault}" for fault in trace.faults())
    for number, case in enumerate(cases, 1):
        place = f"[case #{number}]" if table.case else "[axes]"
        yield from (f"{place} {fault}" for fault in _axis_faults(case, table.replications))
    names = [case.name for case in cases]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"Expected distinct names of [[case]], got {shown(name)} twice."
    if not table.replications and "bootstrap" in table.model_fields_set:
        yield "Expected replications >= 1 with [bootstrap], got 0."


def study_from_dict(data: Any, source: str, folder: Path) -> StudyFile:
    """Build a :class:`StudyFile` from nested tables, as read from TOML.

    Parameters
    ----------
    source : str
        File name, put in front of every error; without its suffix the default name.
    folder : Path
        What relative paths are relative to.

    Raises
    ------
    InputError
        One line per fault.
    """
    try:
        table = _StudyTable.model_validate(data)
    except ValidationError as error:
        refuse_other_kind(data, "study", source)
        errors = error.errors(include_url=False)
        refuse([_say(e) for e in errors[:MAX_SHOWN]], len(errors), source)
    given = table.case or [CaseTable(name="study")]
    cases = [_merged(table.axes, case, table) for case in given]
    faults = list(_faults(table, cases))
    if faults:
        refuse(faults, len(faults), source)
    return StudyFile(
        name=table.name or Path(source).stem,
        folder=folder,
        source=source,
        cluster=table.cluster,
        coefficients=table.coefficients,
        seeds=tuple(dict.fromkeys(table.seeds)),
        replications=table.replications,
        runtime_replications=table.runtime_replications,
        bootstrap=table.bootstrap,
        traces=tuple(table.trace),
        cases=tuple(cases),
    )


def read_study(path: str | Path) -> StudyFile:
    """Read the declaration of a study.

    Raises
    ------
    InputError
        When the file cannot be read, is not TOML, or breaks a rule.
    """
    path = Path(path)
    data = read_toml(path)
    if not data:
        raise InputError(f"{path.name}: Expected a study, got an empty file.")
    return study_from_dict(data, path.name, path.absolute().parent)
