"""A published figure beside ours: the row that every comparison gives, and its verdicts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from planner.policies.replay_result import Convention
from planner.replay.interval import Interval

__all__ = ["AGREES", "DIFFERS", "NOT_COMPARED", "Row", "Verdict"]


Verdict = Literal["agrees within the interval", "differs for a stated reason", "cannot be compared"]
AGREES: Final[Verdict] = "agrees within the interval"
DIFFERS: Final[Verdict] = "differs for a stated reason"
NOT_COMPARED: Final[Verdict] = "cannot be compared"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the reproduction table.

    Attributes
    ----------
    ours : dict of str to Interval
        By convention, empty where not computed.
    over : {"seeds", "inputs"}
        What low and high of ``ours`` span: 95 % of the mean over seeds, or all of the values over
        inputs that are not published.
    """

    study: str
    item: str
    published: str
    unit: str
    ours: dict[Convention, Interval] = field(default_factory=dict)
    verdict: Verdict
    why: str
    over: Literal["seeds", "inputs"] = "seeds"
