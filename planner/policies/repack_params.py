"""When ``repack`` moves running jobs: what a saving must earn, and how many moves there may be."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

from instances.errors import InputError, did_you_mean

__all__ = ["ORACLES", "RULES", "RepackParams"]

#: How long a saving is taken to last when nobody knows.
RULES: Final = ("residual", "break-even")
#: What of the future the trace may tell.
ORACLES: Final = ("none", "remaining")

_WHOLE: Final = ("max_moves_per_job_day", "max_scope", "scopes")
_OPTIONAL: Final = ("lasting_h", "review_h", "max_moves_per_job_day", "max_scope")


@dataclass(frozen=True, kw_only=True)
class RepackParams:
    """How ``repack`` decides (:mod:`planner.policies.repack`).

    Attributes
    ----------
    rule : {"residual", "break-even"}
        How long a saving is taken to last: until the first of the jobs planned together leaves,
        by the mean residual life fitted from departures so far; or as long as the groups
        concerned have been as they are (ski rental).
    oracle : {"none", "remaining"}
        ``remaining``: the remaining time of the jobs present is known, and a saving lasts until
        the first of the groups replaced would have ended by itself, or the job leaves for which
        moves are made. Arrivals are never known. It takes the place of the rule.
    lasting_h : float or None
        Hours a saving is taken to last, instead of a rule or an oracle.
    review_h : float or None
        Also think again every so many hours; ``None``: on arrivals and departures only, with
        ``break-even`` every hour.
    moves_per_job : float
        Most moves so far per job that has arrived so far; infinite: no limit.
    max_moves_per_job_day : int or None
        Most moves of one job within 24 hours; ``None``: no limit.
    min_gain_usd : float
        What every move must earn beyond its own cost, $.
    overlap_s : float
        Seconds that old nodes, once empty, go on being paid for.
    freeze : frozenset of str
        Ids of jobs that never move.
    max_scope : int or None
        Most jobs planned anew at once, by exact search; ``None``: as many as take it some tens of
        milliseconds, fewer of gangs and where groups have rates.
    scopes : int
        Parts of a larger fleet looked at per event.

    Raises
    ------
    InputError
        For a number out of its range, a part of a move or a job, or an unknown rule.
    """

    rule: str = "residual"
    oracle: str = "none"
    lasting_h: float | None = None
    review_h: float | None = None
    moves_per_job: float = 2.0
    max_moves_per_job_day: int | None = None
    min_gain_usd: float = 0.0
    overlap_s: float = 0.0
    freeze: frozenset[str] = frozenset()
    max_scope: int | None = None
    scopes: int = 4

    def __post_init__(self) -> None:
        for name, known in (("rule", RULES), ("oracle", ORACLES)):
            value = getattr(self, name)
            if value not in known:
                raise InputError(
                    f"Expected {name} in {', '.join(known)}, got '{value}'."
                    f"{did_you_mean(value, known)}"
                )
        for name, least, above in (
            ("lasting_h", 0.0, True),
            ("review_h", 0.0, True),
            ("moves_per_job", 0.0, False),
            ("max_moves_per_job_day", 0, False),
            ("min_gain_usd", 0.0, False),
            ("overlap_s", 0.0, False),
            ("max_scope", 2, False),
            ("scopes", 1, False),
        ):
            value = getattr(self, name)
            if (value is None and name in _OPTIONAL) or (value == inf and name == "moves_per_job"):
                continue
            if value is None or not (
                isfinite(value) and (least < value if above else least <= value)
            ):
                sign = ">" if above else ">="
                raise InputError(f"Expected {name} {sign} {least:g}, got {value!r}.")
            if name in _WHOLE and value != int(value):
                raise InputError(f"Expected a whole number of {name}, got {value!r}.")
