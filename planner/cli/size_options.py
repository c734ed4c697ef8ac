"""Options of ``planner size``, and the lists of numbers they take."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from instances.errors import InputError
from planner.cli import completion
from planner.cli.options import (
    OUTPUT_PANEL,
    split_names,
)
from planner.output.report_parts import parts_in_order
from planner.size.params import PARTS

if TYPE_CHECKING:
    from instances.hardware import Cluster
    from planner.size.pool_costs import CostModel

__all__ = [
    "CHANGES_PANEL",
    "BlockHoursOption",
    "Bursts",
    "BurstsOption",
    "ConfidenceOption",
    "CostsOption",
    "CoverageOption",
    "DetailsOption",
    "DramOption",
    "FormatOption",
    "GroupSizesOption",
    "GrowthOption",
    "GrowthYearsOption",
    "LadderOption",
    "LinkGbpsOption",
    "LinksOption",
    "MaxFleetOption",
    "MaxWaitOption",
    "MomentsOption",
    "NearOption",
    "OnlyOption",
    "PerfectOption",
    "PerfectSystem",
    "PlanAtOption",
    "PriceRatiosOption",
    "ReplicationsOption",
    "SamplesOption",
    "SkipOption",
    "SloScalesOption",
    "SwitchesOption",
    "SyncKindsOption",
    "TableFormat",
    "WaitShareOption",
    "WarmUpOption",
    "costs_of",
    "counts_of",
    "growth_years_of",
    "numbers_of",
    "parts_of",
    "percents_of",
    "ratios_of",
    "wait_share_of",
]

_FLEET: Final = "Fixed fleet (nothing to rent)"
CHANGES_PANEL: Final = "What changes the answer"
_UNCERTAIN: Final = "Uncertainty"
_MOST_RATIO: Final = 1e3


class PerfectSystem(StrEnum):
    """What stands beside the policies as a perfect system."""

    bound = "bound"
    optimum = "optimum"
    none = "none"


class TableFormat(StrEnum):
    """Files of the tables."""

    csv = "csv"
    parquet = "parquet"


class Bursts(StrEnum):
    """Whether the jobs of growth come when those of the trace do."""

    independent = "independent"
    coincident = "coincident"


CostsOption = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        metavar="TOML",
        help="What nodes cost to own and to rent ($, W, years), budgets, caps, leases, growth.",
    ),
]
PerfectOption = Annotated[
    PerfectSystem,
    typer.Option(
        "--perfect",
        help="A perfect system in the demand table: its proven bound, or the least-cost plan of "
        "every moment (long).",
    ),
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        "--only",
        autocompletion=completion.listed(completion.size_parts),
        metavar="A,B",
        help=f"Only these parts: {', '.join(PARTS)}.",
    ),
]
SkipOption = Annotated[
    str | None,
    typer.Option(
        "--skip",
        autocompletion=completion.listed(completion.size_parts),
        metavar="A,B",
        help="All parts but these.",
    ),
]
NearOption = Annotated[
    str,
    typer.Option(
        "--near", metavar="%,%", help="Fleets that cost so many % above the least are shown too."
    ),
]
DetailsOption = Annotated[
    bool,
    typer.Option(
        "--details",
        help="Print every level, not what changes most alone.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
FormatOption = Annotated[
    TableFormat,
    typer.Option(
        "--format",
        help="Of the tables in --out (Parquet: extra parquet).",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
MaxWaitOption = Annotated[
    str,
    typer.Option(
        "--max-p95-wait",
        metavar="T",
        help="95 % of the jobs start within 90, 90s, 30m or 1.5h.",
        rich_help_panel=_FLEET,
    ),
]
WaitShareOption = Annotated[
    float,
    typer.Option(
        "--wait-share", help="Another share of the jobs than 0.95.", rich_help_panel=_FLEET
    ),
]
LadderOption = Annotated[
    str,
    typer.Option(
        "--waits",
        metavar="T,T",
        help="Further waiting targets, for the frontier of cost against wait.",
        rich_help_panel=_FLEET,
    ),
]
MaxFleetOption = Annotated[
    str | None,
    typer.Option(
        "--max-fleet",
        metavar="R,T",
        help="Most rollout and train nodes there may be.  [default: the peak when nobody waits]",
        rich_help_panel=_FLEET,
    ),
]
PriceRatiosOption = Annotated[
    str,
    typer.Option(
        "--price-ratios",
        metavar="X,X",
        help="Rental price of a train GPU over a rollout GPU, from-to or a list.",
        rich_help_panel=CHANGES_PANEL,
    ),
]
DramOption = Annotated[
    str,
    typer.Option(
        "--dram-tb", metavar="TB,TB", help="Host DRAM per node.", rich_help_panel=CHANGES_PANEL
    ),
]
SloScalesOption = Annotated[
    str,
    typer.Option(
        "--slo-scales",
        metavar="X,X",
        help="Tolerated slack, slo - 1, times this.",
        rich_help_panel=CHANGES_PANEL,
    ),
]
LinkGbpsOption = Annotated[
    str,
    typer.Option(
        "--links-gbps", metavar="GBPS", help="Speed of a link.", rich_help_panel=CHANGES_PANEL
    ),
]
LinksOption = Annotated[
    str,
    typer.Option("--links", metavar="N,N", help="Number of links.", rich_help_panel=CHANGES_PANEL),
]
GroupSizesOption = Annotated[
    str,
    typer.Option(
        "--group-sizes",
        metavar="N,N",
        help="Most jobs in a group; 0: no limit.",
        rich_help_panel=CHANGES_PANEL,
    ),
]
SyncKindsOption = Annotated[
    str,
    typer.Option(
        "--sync-kinds",
        metavar="A,B",
        help="How weights cross the link: hierarchical (one copy) or flat (one per GPU).",
        rich_help_panel=CHANGES_PANEL,
    ),
]
SwitchesOption = Annotated[
    str,
    typer.Option(
        "--switches",
        metavar="A,B",
        help="Start of a phase on a shared node: none, warm (as given) or cold.",
        rich_help_panel=CHANGES_PANEL,
    ),
]
PlanAtOption = Annotated[
    str,
    typer.Option(
        "--plan-at",
        autocompletion=completion.listed(completion.levels),
        metavar="A,B",
        help="Plan for rollouts of p50, p95, p99 or max tokens, and sample what that risks.",
        rich_help_panel=CHANGES_PANEL,
    ),
]
SamplesOption = Annotated[
    int,
    typer.Option(
        "--samples",
        min=1,
        help="Sampled executions of each plan made at p50, p95, p99 or max tokens.",
        rich_help_panel=CHANGES_PANEL,
    ),
]
MomentsOption = Annotated[
    int,
    typer.Option(
        "--moments",
        min=1,
        help="Moments solved exactly for shadow prices.",
        rich_help_panel=CHANGES_PANEL,
    ),
]
GrowthOption = Annotated[
    str,
    typer.Option(
        "--growth", metavar="X,X", help="Arrivals times this.", rich_help_panel=_UNCERTAIN
    ),
]
GrowthYearsOption = Annotated[
    str | None,
    typer.Option(
        "--growth-in",
        metavar="T",
        help="When the last growth is reached, such as 2y or 18mo: buy step by step or at once?",
        rich_help_panel=_UNCERTAIN,
    ),
]
ReplicationsOption = Annotated[
    int,
    typer.Option(
        "--replications", min=1, help="Traces drawn like this one.", rich_help_panel=_UNCERTAIN
    ),
]
BlockHoursOption = Annotated[
    float,
    typer.Option(
        "--block-hours",
        metavar="H",
        help="Arrivals are redrawn in blocks so long.",
        rich_help_panel=_UNCERTAIN,
    ),
]
BurstsOption = Annotated[
    Bursts,
    typer.Option(
        "--bursts",
        help="Growth is more customers (independent), or the same ones sending more at the same "
        "moments (coincident).",
        rich_help_panel=_UNCERTAIN,
    ),
]
WarmUpOption = Annotated[
    float | None,
    typer.Option(
        "--warm-up-hours",
        metavar="H",
        help="Leave out so many hours while drawn traces fill, and the time in which they drain.",
        rich_help_panel=_UNCERTAIN,
    ),
]
ConfidenceOption = Annotated[
    float,
    typer.Option(
        "--confidence",
        help="Share of the futures in which the fleet is to be enough.",
        rich_help_panel=_UNCERTAIN,
    ),
]
CoverageOption = Annotated[
    float,
    typer.Option(
        "--coverage",
        help="Share of the time for which; 1: always.",
        rich_help_panel=_UNCERTAIN,
    ),
]


def numbers_of(text: str, option: str) -> tuple[float, ...]:
    """Return the numbers of ``0.5,1,2``; an empty text gives none.

    Raises
    ------
    InputError
        Naming the option and the part that is no finite number, or a number given twice.
    """
    out: list[float] = []
    for part in split_names(text):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise InputError(f"Expected {option} a list of numbers such as 1,2.5, got '{part}'.")
        if value in out:
            raise InputError(f"Expected distinct numbers with {option}, got '{part}' twice.")
        out.append(value)
    return tuple(out)


def costs_of(path: Path | None, cluster: Cluster) -> CostModel:
    """Return the costs of a file, or the default ones."""
    from planner.size.cost_file import read_costs
    from planner.size.pool_costs import default_costs

    return default_costs(cluster) if path is None else read_costs(path, cluster)


def counts_of(text: str, option: str) -> tuple[int, ...]:
    """Return the whole numbers of ``1,2,4``.

    Raises
    ------
    InputError
        Naming the option and what is no whole number.
    """
    numbers = numbers_of(text, option)
    for number in numbers:
        if number != int(number):
            raise InputError(f"Expected {option} a list of whole numbers, got '{number:g}'.")
    return tuple(int(number) for number in numbers)


def wait_share_of(share: float) -> float:
    """Return a share of jobs.

    Raises
    ------
    InputError
        When it is not above 0 and at most 1.
    """
    if not 0 < share <= 1:
        raise InputError(f"Expected --wait-share > 0 and <= 1, got {share:g}.")
    return share


def percents_of(text: str, option: str) -> tuple[float, ...]:
    """Return shares from percents, ``1,5``."""
    return tuple(sorted(number / 100 for number in numbers_of(text, option)))


def growth_years_of(text: str | None, option: str) -> float | None:
    """Return years from ``2y``, ``18mo`` or ``2`` (years).

    Raises
    ------
    InputError
        Naming the option, when the text is something else.
    """
    if text is None:
        return None
    plain = text.strip().lower()
    number, per_year = plain, 1.0
    for unit, count in (("months", 12.0), ("mo", 12.0), ("years", 1.0), ("y", 1.0)):
        if plain.endswith(unit):
            number, per_year = plain[: -len(unit)].strip(), count
            break
    try:
        years = float(number) / per_year
    except ValueError:
        years = math.nan
    if not 0 < years < math.inf:
        raise InputError(f"Expected {option} a time such as 2y or 18mo, got '{text}'.")
    return years


def parts_of(only: str | None, skip: str | None) -> tuple[str, ...]:
    """Return the parts that ``--only`` and ``--skip`` leave.

    Raises
    ------
    InputError
        For an unknown part, or both options.
    """
    if only is not None and skip is not None:
        raise InputError("Expected one of --only and --skip, got both.")
    if skip is not None:
        left_out = parts_in_order(split_names(skip), PARTS)
        return tuple(
            part
            for part in PARTS
            if part not in left_out and not (part == "loss" and "fleet" in left_out)
        )
    if only is None:
        return PARTS
    wanted = parts_in_order(split_names(only), PARTS)
    # the fleet that loses a node has to be found first
    return parts_in_order((*wanted, "fleet"), PARTS) if "loss" in wanted else wanted


def ratios_of(text: str, option: str) -> tuple[float, ...]:
    """Return the increasing ratios of ``1-8`` (steps of a quarter) or of a list.

    Raises
    ------
    InputError
        Naming the option, for fewer than two, or one not above 0.
    """
    low, dash, high = text.partition("-")
    if dash:
        ends = numbers_of(f"{low},{high}", option)
        if len(ends) != 2 or not 0 < ends[0] < ends[1] <= _MOST_RATIO:
            raise InputError(
                f"Expected {option} from-to with 0 < from < to <= {_MOST_RATIO:g}, got '{text}'."
            )
        steps = math.ceil((ends[1] - ends[0]) * 4)
        return tuple(ends[0] + (ends[1] - ends[0]) * i / steps for i in range(steps + 1))
    ratios = tuple(sorted(numbers_of(text, option)))
    if len(ratios) < 2 or ratios[0] <= 0:
        raise InputError(f"Expected {option} at least two ratios > 0, got '{text}'.")
    return ratios
