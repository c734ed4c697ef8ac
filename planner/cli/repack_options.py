"""Options of ``repack``, shared by commands: when a job is moved, and what a move costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from instances.errors import InputError, did_you_mean
from planner.cli import completion
from planner.cli.options import names_of
from planner.policies.repack_params import RepackParams

if TYPE_CHECKING:
    from instances.trace import Trace

__all__ = [
    "FreezeOption",
    "LastingHoursOption",
    "MaxMovesPerJobDayOption",
    "MinGainUsdOption",
    "MoveOptions",
    "MovesPerJobOption",
    "OracleOption",
    "OverlapSecondsOption",
    "RepackRuleOption",
    "RestartSecondsOption",
    "ReviewHoursOption",
    "repack_params",
    "with_restarts",
]

#: Heading of these options in ``--help``.
PANEL: Final = "Moves (policy repack)"
_POLICY: Final = "repack"
#: Hours between two reviews at least: a restart takes minutes.
LEAST_REVIEW_H: Final = 0.01
#: Unknown jobs that an error names; all are counted.
_MOST_NAMED: Final = 5

RepackRuleOption = Annotated[
    str | None,
    typer.Option(
        "--repack-rule",
        autocompletion=completion.repack_rules,
        help="How long a saving is taken to last: residual (until its groups change, by what came "
        "and went so far) or break-even (as long as it was there to be taken).  [default: "
        "residual]",
        rich_help_panel=PANEL,
    ),
]
OracleOption = Annotated[
    str | None,
    typer.Option(
        "--oracle",
        autocompletion=completion.oracles,
        help="none, or remaining: it is known when jobs present leave.  [default: none]",
        rich_help_panel=PANEL,
    ),
]
LastingHoursOption = Annotated[
    float | None,
    typer.Option(
        "--lasting-hours",
        metavar="H",
        help="A saving is taken to last so long, instead of a rule.",
        rich_help_panel=PANEL,
    ),
]
ReviewHoursOption = Annotated[
    float | None,
    typer.Option(
        "--review-hours",
        metavar="H",
        help=f"Think again every so often (at least {LEAST_REVIEW_H:g}), not only when jobs come "
        "or go.",
        rich_help_panel=PANEL,
    ),
]
MovesPerJobOption = Annotated[
    float | None,
    typer.Option(
        "--moves-per-job",
        metavar="X",
        help="Most moves so far over jobs so far; 0: none, inf: no limit.  [default: "
        f"{RepackParams().moves_per_job:g}]",
        rich_help_panel=PANEL,
    ),
]
MaxMovesPerJobDayOption = Annotated[
    int | None,
    typer.Option(
        "--max-moves-per-job-day",
        metavar="N",
        help="Most moves of one job in 24 hours.",
        rich_help_panel=PANEL,
    ),
]
MinGainUsdOption = Annotated[
    float | None,
    typer.Option(
        "--min-gain-usd",
        metavar="USD",
        help="What each move must earn beyond its cost.",
        rich_help_panel=PANEL,
    ),
]
OverlapSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--overlap-seconds",
        metavar="S",
        help="Old nodes are held, and paid for, so much longer.",
        rich_help_panel=PANEL,
    ),
]
RestartSecondsOption = Annotated[
    float | None,
    typer.Option(
        "--restart-seconds",
        metavar="S",
        help="Pause of a moved job, for all jobs, instead of column restart_s.",
        rich_help_panel=PANEL,
    ),
]
FreezeOption = Annotated[
    str | None,
    typer.Option(
        "--freeze", metavar="A,B", help="Jobs that are never moved.", rich_help_panel=PANEL
    ),
]


@dataclass(frozen=True, kw_only=True)
class MoveOptions:
    """What was given on the command line; ``None``: nothing. See :class:`RepackParams`."""

    rule: str | None = None
    oracle: str | None = None
    lasting_h: float | None = None
    review_h: float | None = None
    moves_per_job: float | None = None
    max_moves_per_job_day: int | None = None
    min_gain_usd: float | None = None
    overlap_s: float | None = None
    restart_s: float | None = None
    freeze: str | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """Names of the options that were given."""
        return tuple(
            option for field, option in _OPTIONS.items() if getattr(self, field) is not None
        )

    @property
    def frozen(self) -> tuple[str, ...]:
        """Ids of the jobs that are never moved."""
        return names_of(self.freeze or "")


_OPTIONS: Final = {
    "rule": "--repack-rule",
    "oracle": "--oracle",
    "lasting_h": "--lasting-hours",
    "review_h": "--review-hours",
    "moves_per_job": "--moves-per-job",
    "max_moves_per_job_day": "--max-moves-per-job-day",
    "min_gain_usd": "--min-gain-usd",
    "overlap_s": "--overlap-seconds",
    "restart_s": "--restart-seconds",
    "freeze": "--freeze",
}


def repack_params(moves: MoveOptions, policies: Collection[str]) -> RepackParams:
    """Return the parameters of ``repack``; whatever was not given is at its default.

    Parameters
    ----------
    moves : MoveOptions
    policies : collection of str
        Those that are replayed.

    Raises
    ------
    InputError
        For options that concern nobody, contradict one another, or are out of their range.
    """
    if moves.given and _POLICY not in policies:
        raise InputError(
            f"Expected policy {_POLICY} with {', '.join(moves.given)}, got "
            f"{', '.join(policies)}: nobody else moves running jobs."
        )
    _refuse_two_rules(moves)
    _refuse_numbers(moves)
    values = dataclasses.asdict(moves)
    del values["restart_s"], values["freeze"]
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return RepackParams(**given, freeze=frozenset(moves.frozen))
    except InputError as error:
        raise InputError(_with_options(str(error))) from error


def _refuse_numbers(moves: MoveOptions) -> None:
    """Refuse numbers that no option takes; :class:`RepackParams` knows the other ranges."""
    for name in ("lasting_h", "review_h", "min_gain_usd", "overlap_s", "restart_s"):
        value = getattr(moves, name)
        if value is not None and not math.isfinite(value):
            raise InputError(f"Expected a finite number with {_OPTIONS[name]}, got {value!r}.")
    if moves.restart_s is not None and moves.restart_s < 0:
        raise InputError(f"Expected {_OPTIONS['restart_s']} >= 0, got {moves.restart_s!r}.")
    if moves.review_h is not None and 0 < moves.review_h < LEAST_REVIEW_H:
        raise InputError(
            f"Expected {_OPTIONS['review_h']} >= {LEAST_REVIEW_H:g} "
            f"({LEAST_REVIEW_H * 3600:g} s), got {moves.review_h!r}."
        )


def _with_options(text: str) -> str:
    """Return an error about a parameter that names its option instead."""
    for name, option in _OPTIONS.items():
        text = text.replace(f"Expected {name} ", f"Expected {option} ")
    return text


def _refuse_two_rules(moves: MoveOptions) -> None:
    """Refuse options that say differently how long a saving lasts."""
    rules = {
        "--lasting-hours": moves.lasting_h is not None,
        "--oracle remaining": moves.oracle == "remaining",
        "--repack-rule": moves.rule is not None,
    }
    named = [option for option, given in rules.items() if given]
    if len(named) > 1:
        raise InputError(
            f"Expected one of {' and '.join(named)}: each says how long a saving lasts."
        )


def with_restarts(moves: MoveOptions, trace: Trace) -> Trace:
    """Return the trace with ``--restart-seconds`` in its column ``restart_s``, where given.

    Raises
    ------
    InputError
        When ``--freeze`` names jobs that the trace does not have.
    """
    import numpy as np

    jobs = trace.jobs
    known = set(jobs.job_id)
    unknown = [name for name in moves.frozen if name not in known]
    if unknown:
        named = "; ".join(f"'{name}'{_guess(name, jobs.job_id)}" for name in unknown[:_MOST_NAMED])
        more = f" and {len(unknown) - _MOST_NAMED} more" if len(unknown) > _MOST_NAMED else ""
        raise InputError(f"Expected --freeze to name jobs of the trace, got {named}{more}.")
    if moves.restart_s is None:
        return trace
    seconds = np.full(len(jobs), moves.restart_s)
    jobs = jobs.replace(optional={**jobs.optional, "restart_s": seconds})
    return dataclasses.replace(trace, jobs=jobs)


def _guess(name: str, known: Collection[str]) -> str:
    """Return the nearest known id in brackets, where there is one."""
    guess = did_you_mean(name, known).strip().rstrip("?")
    return f" ({guess[0].lower()}{guess[1:]}?)" if guess else ""
