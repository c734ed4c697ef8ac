"""A self-check of seconds: one tiny problem solved by every method, and what else a day needs.

Each check stands alone: what goes wrong in one is its row, and the others go on. No expected
number is written down here. Methods that prove an optimum must agree on it, and so must the model
file that HiGHS reads back; what a method only bounds must be on the right side of it.
"""

from __future__ import annotations

import dataclasses
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from instances.errors import CheckError
from planner.first_run.machine import one_line, solvers_together

if TYPE_CHECKING:
    from instances.plan import Plan
    from instances.trace import Trace
    from planner.replay.moment import Problem
    from planner.snapshot.solving import SnapshotReport

__all__ = ["PROBLEM", "Outcome", "method_names", "self_check"]

#: Five gangs that need 34 s where the loads of their nodes say 31 s: no method can guess it.
PROBLEM: Final = "tiny-gang"
#: A method that needs longer for five jobs has failed.
_LIMIT_S: Final = 30.0
_REL: Final = 1e-6

Clock = Callable[[], float]
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one check found.

    Attributes
    ----------
    what : str
        What is checked.
    found : str
        What was found, or what went wrong, on one line.
    usd_per_hour, bound_usd_per_hour : float or None
        Cost of the plan found and what is proved about it, $/h, where the check has them.
    advice : str
        What to do next where it failed.
    details : str
        The traceback of a failure.
    """

    name: str
    what: str
    ok: bool
    found: str
    usd_per_hour: float | None = None
    bound_usd_per_hour: float | None = None
    advice: str = ""
    details: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What a check that went well has to say."""

    words: str
    usd: float | None = None
    bound: float | None = None


@dataclass
class _Bench:
    """What the checks share: one trace, its snapshot, and what was found so far."""

    folder: Path
    reports: dict[str, SnapshotReport] = field(default_factory=dict)

    def trace(self) -> Trace:
        """Return the tiny trace."""
        from instances.catalog import catalog_path
        from instances.trace import read_trace

        return read_trace(catalog_path(PROBLEM))

    def problem(self) -> Problem:
        """Return its snapshot, all jobs present."""
        from instances.hardware import DEFAULT_CLUSTER
        from instances.plan import Limits
        from models.problem.snapshot import FleetCaps
        from planner.replay.moment import Selection, problem_of

        select = Selection.all_jobs()
        return problem_of(self.trace(), select, DEFAULT_CLUSTER, Limits(), FleetCaps())

    def plan(self) -> Plan:
        """Return a plan of the snapshot that was made before.

        Raises
        ------
        CheckError
            When there is none.
        """
        for report in self.reports.values():
            if report.plan is not None:
                return report.plan
        raise CheckError("No method before this check made a plan.")

    def proved(self) -> dict[str, float]:
        """Return the costs that were proved least, by method."""
        return {
            name: report.usd_per_hour
            for name, report in self.reports.items()
            if report.result.termination.value == "optimal" and report.usd_per_hour is not None
        }


# --- the checks -----------------------------------------------------------------------------------


def method_names() -> tuple[str, ...]:
    """Return every method of ``planner snapshot`` but the one that chooses among them."""
    from planner.snapshot.solving import AUTO, SNAPSHOT_METHODS

    return tuple(name for name in SNAPSHOT_METHODS if name != AUTO)


def _valid(plan: Plan) -> None:
    """Raise CheckError unless a plan keeps every rule, its price re-derived."""
    from instances.checker import check_plan

    report = check_plan(plan)
    if not report.ok:
        rules = ", ".join(report.counts)
        raise CheckError(f"The plan breaks {rules}: {report.violations[0].message}")


def _together(_bench: _Bench) -> _Found:
    faults = {order: fault for order, fault in solvers_together().items() if fault}
    if len(faults) > 1 and len(set(faults.values())) == 1:
        raise CheckError(f"In either order: {next(iter(faults.values()))}")
    if faults:
        raise CheckError("; ".join(f"{order}: {fault}" for order, fault in faults.items()))
    return _Found(words="both fit, in either order")


def _method(name: str) -> Callable[[_Bench], _Found]:
    def check(bench: _Bench) -> _Found:
        from planner.replay.moment import Selection
        from planner.snapshot.solving import solve_snapshot

        report = solve_snapshot(
            bench.trace(), select=Selection.all_jobs(), method=name, time_limit_s=_LIMIT_S
        )
        bench.reports[name] = report
        if report.plan is None:
            raise CheckError(f"Expected a plan, got {report.result.termination.value}.")
        _valid(report.plan)
        return _Found(
            words="proved least" if name in bench.proved() else "valid plan",
            usd=report.usd_per_hour,
            bound=report.bound_usd_per_hour,
        )

    return check


def _agreement(bench: _Bench) -> _Found:
    proved = bench.proved()
    if not proved:
        raise CheckError("No method proved an optimum.")
    least, most = min(proved.values()), max(proved.values())
    if most - least > _REL * most:
        raise CheckError(f"Optima differ: {', '.join(f'{k} {v:g}' for k, v in proved.items())}.")
    for name, report in bench.reports.items():
        cost, bound = report.usd_per_hour, report.bound_usd_per_hour
        if cost is not None and cost < least * (1 - _REL):
            raise CheckError(f"{name} costs {cost:g}, less than the optimum {least:g}.")
        if bound is not None and bound > least * (1 + _REL):
            raise CheckError(f"The bound of {name}, {bound:g}, is above the optimum {least:g}.")
    words = f"{len(proved)} proofs of one optimum" if len(proved) > 1 else "one proof"
    return _Found(words=words, usd=least, bound=least)


def _placer(bench: _Bench) -> _Found:
    from planner.placement.warm_start import warm_start

    plan = warm_start(bench.problem().snapshot)
    if plan is None:
        raise CheckError("Expected a plan of the placer, got none.")
    _valid(plan)
    return _Found(words="valid plan", usd=plan.usd_total)


def _replay(bench: _Bench) -> _Found:
    from planner.plan.planning import plan_trace

    result = plan_trace(bench.trace(), policy="weave", baselines=("solo",)).result("weave")
    if result.plan is None:
        raise CheckError("Expected the plan of a replay, got none.")
    _valid(result.plan)
    return _Found(words="valid plan over time", usd=result.usd_per_hour_mean)


def _checker(bench: _Bench) -> _Found:
    """Two plans that are wrong must be found wrong: in their price, and in their period."""
    from instances.checker import check_plan

    plan = bench.plan()
    _valid(plan)
    dearer = dataclasses.replace(plan, usd_total=plan.usd_total + 1.0)
    squeezed = tuple(dataclasses.replace(g, period_s=0.5 * g.period_s) for g in plan.groups)
    for wrong in (dearer, dataclasses.replace(plan, groups=squeezed)):
        if check_plan(wrong).ok:
            raise CheckError("The checker accepts a plan that is wrong.")
    return _Found(words="2 wrong plans refused")


def _export(bench: _Bench) -> _Found:
    from models.backends.highs_model import Ended, HighsModel
    from models.exact.milp import write

    path = bench.folder / "model.mps"
    write(bench.problem().snapshot, path, "mps")
    model = HighsModel()
    model.read(path)
    ended = model.run(_LIMIT_S, lp=False)
    if ended is not Ended.OPTIMAL:
        raise CheckError(f"HiGHS ended the file as {ended.value}.")
    for name, usd in bench.proved().items():
        if abs(model.objective - usd) > _REL * usd:
            raise CheckError(f"The file's optimum is {model.objective:g}, that of {name} {usd:g}.")
    return _Found(words="MPS file read and solved", usd=model.objective, bound=model.objective)


def _picture(bench: _Bench) -> _Found:
    from instances.hardware import DEFAULT_CLUSTER
    from planner.snapshot.gantt import choose_group, write_gantt

    plan, path = bench.plan(), bench.folder / "group.svg"
    write_gantt(choose_group(plan, None), plan.jobs, DEFAULT_CLUSTER, path)
    text = path.read_text(encoding="utf-8")
    if "<svg" not in text or "<path" not in text:
        raise CheckError("Expected an SVG with marks in it.")
    return _Found(words=f"a Gantt chart, {len(text) / 1000:.0f} kB of SVG")


def _files(bench: _Bench) -> _Found:
    from instances.plan_file import read_plan, write_plan_json
    from planner.output.single_file import write_file

    plan, path = bench.plan(), bench.folder / "plan.json"
    write_file(path, "--out", lambda temporary: write_plan_json(plan, temporary), force=False)
    _valid(read_plan(path))
    return _Found(words="written whole and read back")


_Check = tuple[str, str, str, Callable[[_Bench], _Found]]
_REINSTALL: Final = "Install the planner again: python -m pip install --force-reinstall ."
_TOGETHER: Final = "python -m pip install 'highspy>=1.16' 'ortools>=9.15'"
_TEMPORARY: Final = "Set TMPDIR to a folder with room that may be written to."


def _checks(methods: tuple[str, ...]) -> Iterator[_Check]:
    """Yield name, what is checked, advice and the check itself, in order."""
    yield "solvers", "HiGHS and CP-SAT in one process", _TOGETHER, _together
    for name in methods:
        yield name, "method", "Other methods go on: planner snapshot --method NAME.", _method(name)
    yield "agreement", "every bound <= the optimum <= every cost", _REINSTALL, _agreement
    yield "placer", "jobs placed as they arrive", _REINSTALL, _placer
    yield "replay", "a trace replayed by two policies", _REINSTALL, _replay
    yield "checker", "right and wrong plans told apart", _REINSTALL, _checker
    yield "export", "the problem as an MPS file", _REINSTALL, _export
    yield "picture", "a Gantt chart as SVG", _REINSTALL, _picture
    yield "files", "a file written in the temporary folder", _TEMPORARY, _files


def _outcome(check: _Check, bench: _Bench, clock: Clock) -> Outcome:
    name, what, advice, function = check
    began = clock()
    try:
        found = function(bench)
    except Exception as error:  # whatever it is, it is this row's, and the others go on
        return Outcome(
            name=name,
            what=what,
            ok=False,
            found=one_line(error),
            advice=advice,
            details="".join(traceback.format_exception(error)),
            seconds=clock() - began,
        )
    return Outcome(
        name=name,
        what=what,
        ok=True,
        found=found.words,
        usd_per_hour=found.usd,
        bound_usd_per_hour=found.bound,
        seconds=clock() - began,
    )


def self_check(*, clock: Clock, progress: Progress | None = None) -> tuple[Outcome, ...]:
    """Run every check, each alone, in a temporary folder that is gone afterwards.

    Parameters
    ----------
    clock : callable
        Seconds from an arbitrary origin.
    progress : callable, optional
        Called with (label, done, total).
    """
    checks = list(_checks(method_names()))
    out = []
    with tempfile.TemporaryDirectory() as folder:
        bench = _Bench(folder=Path(folder))
        for number, check in enumerate(checks):
            if progress is not None:
                progress(f"Self-check: {check[0]}", number, len(checks))
            out.append(_outcome(check, bench, clock))
    return tuple(out)
