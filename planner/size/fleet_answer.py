"""What a search of fixed fleets (:mod:`planner.size.fleet_search`) is asked, and answers."""

from __future__ import annotations

from dataclasses import dataclass

from instances.errors import InputError
from instances.plan import Fleet
from models.sizing.wait_bound import WaitBound
from planner.policies.replay_result import ReplayResult
from planner.policies.wait_target import WaitTarget
from planner.replay.demand import Pool
from planner.size.fleet_replays import FleetFigures

__all__ = [
    "FleetAnswer",
    "FleetBox",
    "FrontierPoint",
    "NodeWorth",
    "PairOutOfOrder",
    "SearchBox",
]


@dataclass(frozen=True, kw_only=True)
class SearchBox:
    """What fleets to look at.

    Attributes
    ----------
    margin : int
        Nodes of each pool beyond the peak of the plain replay.
    most : Fleet or None
        Most nodes of each pool there may be, whatever the peak.

    Raises
    ------
    InputError
        When the margin is negative.
    """

    margin: int = 0
    most: Fleet | None = None

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise InputError(f"Expected margin >= 0 nodes, got {self.margin!r}.")


@dataclass(frozen=True, kw_only=True)
class FleetBox:
    """The fleets searched, and what became of them.

    Attributes
    ----------
    most : Fleet
        The box is ``0..most`` in each pool.
    plain_peak : Fleet
        Peak of the plain replay, where nobody waits.
    points : int
        Fleets in the box.
    excluded, given_up, replayed : int
        Of them: excluded by the bound, given up early, replayed to the end. The others are dearer
        than the answer and were not needed, unless the search was interrupted.
    cheaper : int
        Fleets of the box that come before the answer, in price and ties.
    cheaper_unexamined : int
        Of these, not excluded and not replayed: 0 when the answer is proved.
    """

    most: Fleet
    plain_peak: Fleet
    points: int
    excluded: int
    given_up: int
    replayed: int
    cheaper: int
    cheaper_unexamined: int


@dataclass(frozen=True, kw_only=True)
class PairOutOfOrder:
    """A fleet that meets the target, and one with no fewer nodes of either pool that misses it."""

    meets: Fleet
    misses: Fleet


@dataclass(frozen=True, kw_only=True)
class NodeWorth:
    """What one node more of a pool is worth at a waiting target.

    Attributes
    ----------
    fleet : Fleet or None
        With the node more, the fewest nodes of the other pool; ``None`` when even as many as
        before do not meet the target any more.
    saved : int
        Nodes of the other pool saved.
    worth_usd_per_hour : float
        Their price.
    node_usd_per_hour : float
        Price of the node more.
    """

    pool: Pool
    fleet: Fleet | None
    saved: int
    worth_usd_per_hour: float
    node_usd_per_hour: float


@dataclass(frozen=True, kw_only=True)
class FleetAnswer:
    """The cheapest fleet of a box that meets a waiting target, with the evidence.

    Attributes
    ----------
    first_pairs : tuple of PairOutOfOrder
        First pairs of fleets, if any, in which more nodes let more jobs wait.
    target : WaitTarget
        What was asked.
    fleet : Fleet
        The cheapest that meets it.
    usd_per_hour : float
        Its price.
    figures : FleetFigures
        Waits, SLOs and cost on that fleet.
    result : ReplayResult
        Its replay, every check passed.
    bound : WaitBound
        What excluded fleets without a replay.
    box : FleetBox
        Fleets searched.
    pairs_out_of_order : int
        Among the fleets replayed; ``first_pairs`` are up to five of them.
    worth : tuple of NodeWorth
        Of a train node and a rollout node more; empty when interrupted before, or not asked for.
    interrupted : bool
        Whether Ctrl-C cut the search: the fleet is the best found by then.
    """

    target: WaitTarget
    fleet: Fleet
    usd_per_hour: float
    figures: FleetFigures
    result: ReplayResult
    bound: WaitBound
    box: FleetBox
    pairs_out_of_order: int
    first_pairs: tuple[PairOutOfOrder, ...]
    worth: tuple[NodeWorth, ...]
    interrupted: bool

    @property
    def proved(self) -> bool:
        """Whether every cheaper fleet of the box is excluded, or was replayed and missed."""
        return self.box.cheaper_unexamined == 0


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """One fleet of the frontier of price against wait.

    Attributes
    ----------
    wait_s : float
        The wait that the stated share of the jobs stays within: the frontier's own axis.
    cheapest_for_s : tuple of float
        Targets of the ladder for which it is the answer; ``proved_for_s`` those of them whose
        evidence is complete.
    """

    fleet: Fleet
    usd_per_hour: float
    wait_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_max_s: float
    admitted_at_once: float
    slo_attainment: float
    slo_attainment_with_wait: float
    utilisation: dict[str, float | None]
    cheapest_for_s: tuple[float, ...] = ()
    proved_for_s: tuple[float, ...] = ()
