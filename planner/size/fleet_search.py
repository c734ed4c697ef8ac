"""The cheapest fixed fleet that keeps waits within a target, and the evidence that it is.

A fleet of ``N_R`` rollout and ``N_T`` train nodes is owned, nothing can be rented, and jobs wait
in a queue. Whether at least a share of the jobs wait no longer than ``W`` is told by a replay.

**Box.** All fleets of ``0..H_R`` by ``0..H_T`` nodes, ``H`` the peak of the plain replay (where
nobody waits) plus the margin. The fleet at ``peak + max a_j`` repeats the plain replay, so it
meets every target: by induction over events both hold the same groups, at most ``peak`` nodes, so
at least ``max a_j`` are free; no candidate of the placer buys more, so none is skipped for want of
room. With ``peak`` nodes alone the candidate the plain replay takes still has room; one that was
tried in vain may be skipped, and then another is tried that the limit on attempts kept out. That
fleet is therefore replayed; in the rare case that it misses, the box is widened by ``max a_j``.

**Evidence.** A first fleet is found as if waits only fell with more nodes: for each ``N_T`` by
bisection in ``N_R``. They need not: the placer is greedy, and so is the queue. So then *every*
fleet of the box that is cheaper is looked at, in ascending price (ties: fewer train nodes, then
fewer rollout nodes), until one meets the target: each is excluded by
:mod:`models.sizing.wait_bound`, or replayed, and given up once too many jobs have waited too long.
What is said is about the box: a fleet beyond it, with more nodes of one pool than anybody ever
used, might in principle be cheaper in the other.

**Pairs out of order.** Of the fleets replayed, the pairs ``A <= B`` (in both pools) such that ``A``
meets the target and ``B`` misses it are counted. To find what a buyer of a few nodes more would
run into, the fleets up to two nodes larger than the answer are replayed as well.

**What a node more is worth.** Nodes of a fixed fleet are sunk, so a node has no price of its own
there: given one train node more than the answer, the fewest rollout nodes that meet the target are
looked for, and the price of those saved is its worth, at this target; the same with the pools
exchanged. Inside the box it is never above the price of the node, or the answer were not cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from instances.errors import InfeasibleError, UnsupportedError
from instances.jobs import JobTable
from instances.plan import Fleet
from models.sizing.wait_bound import Sharing, WaitBound, wait_bound
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import Convention
from planner.policies.wait_target import WaitTarget
from planner.replay.demand import POOLS, Pool
from planner.size.fleet_answer import (
    FleetAnswer,
    FleetBox,
    FrontierPoint,
    NodeWorth,
    PairOutOfOrder,
    SearchBox,
)
from planner.size.fleet_replays import FleetFigures, FleetReplays

__all__ = [
    "LADDER_S",
    "FleetAnswer",
    "FleetBox",
    "FrontierPoint",
    "NodeWorth",
    "PairOutOfOrder",
    "SearchBox",
    "bound_of",
    "cheapest_fleet",
    "cheapest_fleets",
    "undominated",
    "wait_frontier",
]

Price = Callable[[Fleet], float]
Progress = Callable[[int, int], None]

_OPTIONS: Final = PolicyOptions()
_TARGET: Final = WaitTarget(1800.0)
#: Waiting targets of a frontier, seconds: 0, 10 and 30 min, 1, 2, 4 and 8 h.
LADDER_S: Final = (0.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
#: What the plans of a policy keep, for the bound.
_SHARING: Final[dict[str, Sharing]] = {
    "weave": "valid",
    "repack": "valid",
    "solo": "alone",
    "colocated": "train-only",
    "random": "room",
    "most-idle": "room",
    "gavel": "valid",
}
#: How much larger than the answer fleets are replayed to see whether they meet the target too.
_ABOVE: Final = 2
#: Most pairs out of order that are listed.
_LISTED: Final = 5
#: Prices are equal up to this many decimals, $/h: sums of the same prices in another order.
_DECIMALS: Final = 9


def bound_of(
    jobs: JobTable,
    policy: str,
    options: PolicyOptions,
    target: WaitTarget,
    convention: Convention = "work",
) -> WaitBound:
    """Return which fleets cannot meet a target under a policy, proved without a replay."""
    if policy not in _SHARING:
        raise UnsupportedError(
            f"Expected policy in {', '.join(_SHARING)} for a fixed fleet, got '{policy}': no bound "
            "says which fleets are too small for it."
        )
    shorter = options.colocated_factor if (policy, convention) == ("colocated", "work") else 1.0
    return wait_bound(
        jobs,
        options.cluster,
        options.limits,
        wait_s=target.wait_s,
        late_allowed=target.late_allowed(len(jobs)),
        sharing=_SHARING[policy],
        stay_factor=shorter,
    )


# --- the search ---------------------------------------------------------------------------------


@dataclass
class _Search:
    """One search in the middle: the box, and the best fleet so far."""

    replays: FleetReplays
    target: WaitTarget
    price: Price
    bound: WaitBound
    most: Fleet
    progress: Progress | None
    best: Fleet | None = None
    prices: dict[Fleet, float] = field(default_factory=dict)

    def usd(self, fleet: Fleet) -> float:
        """Return the price of a fleet, $/h."""
        found = self.prices.get(fleet)
        if found is None:
            found = self.prices[fleet] = self.price(fleet)
        return found

    def key(self, fleet: Fleet) -> tuple[float, int, int]:
        """Return what fleets are ordered by: price, then train nodes, then rollout nodes."""
        return round(self.usd(fleet), _DECIMALS), fleet.train_nodes, fleet.rollout_nodes

    def meets(self, fleet: Fleet) -> bool:
        """Return whether a fleet meets the target, and keep it if it is the best so far."""
        if self.excluded(fleet) or not self.replays.meets(fleet, self.target):
            return False
        if self.best is None or self.key(fleet) < self.key(self.best):
            self.best = fleet
        return True

    def excluded(self, fleet: Fleet) -> bool:
        """Return whether the bound excludes a fleet."""
        return self.bound.excludes(fleet.rollout_nodes, fleet.train_nodes)

    def points(self) -> Iterator[Fleet]:
        """Yield the fleets of the box."""
        for train in range(self.most.train_nodes + 1):
            for rollout in range(self.most.rollout_nodes + 1):
                yield Fleet(rollout, train)

    def better(self) -> list[Fleet]:
        """Return the fleets of the box that come before the best, in their order."""
        if self.best is None:
            return sorted(self.points(), key=self.key)
        least = self.key(self.best)
        return sorted((f for f in self.points() if self.key(f) < least), key=self.key)

    def walk(self) -> None:
        """Find a good fleet as if waits only fell with more nodes: bisect for each ``N_T``."""
        self.meets(self.most)
        for train in range(self.most.train_nodes, -1, -1):
            row = [
                fleet
                for rollout in range(self.most.rollout_nodes + 1)
                if not self.excluded(fleet := Fleet(rollout, train))
                and (self.best is None or self.key(fleet) < self.key(self.best))
            ]
            if not row or not self.meets(row[-1]):
                continue
            low, high = 0, len(row) - 1  # row[high] meets
            while low < high:
                middle = (low + high) // 2
                if self.meets(row[middle]):
                    high = middle
                else:
                    low = middle + 1

    def prove(self) -> None:
        """Look at every fleet that comes before the best until one meets the target."""
        before = [fleet for fleet in self.better() if not self.excluded(fleet)]
        for done, fleet in enumerate(before):
            if self.progress is not None:
                self.progress(done, len(before))
            if self.meets(fleet):
                break  # those after it are dearer
        if self.progress is not None:
            self.progress(len(before), len(before))

    def look_above(self) -> None:
        """Replay the fleets a little larger than the best: greedy as it is, one may miss."""
        assert self.best is not None
        for rollout in range(_ABOVE + 1):
            for train in range(_ABOVE + 1):
                larger = Fleet(self.best.rollout_nodes + rollout, self.best.train_nodes + train)
                self.replays.meets(larger, self.target)

    def worth(self) -> tuple[NodeWorth, ...]:
        """Return what one node more of each pool is worth."""
        assert self.best is not None
        out = []
        for pool in POOLS[::-1]:
            own, other = _counts(self.best, pool)
            more = _fleet(pool, own + 1, other)
            found = None
            for count in range(other + 1):
                fleet = _fleet(pool, own + 1, count)
                if not self.excluded(fleet) and self.replays.meets(fleet, self.target):
                    found = fleet
                    break
            saved = 0 if found is None else other - _counts(found, pool)[1]
            out.append(
                NodeWorth(
                    pool=pool,
                    fleet=found,
                    saved=saved,
                    worth_usd_per_hour=self.usd(more) - self.usd(found) if found else 0.0,
                    node_usd_per_hour=self.usd(more) - self.usd(self.best),
                )
            )
        return tuple(out)


def _counts(fleet: Fleet, pool: Pool) -> tuple[int, int]:
    """Return the nodes of a pool, and of the other one."""
    pair = fleet.rollout_nodes, fleet.train_nodes
    return pair if pool == "rollout" else pair[::-1]


def _fleet(pool: Pool, own: int, other: int) -> Fleet:
    return Fleet(own, other) if pool == "rollout" else Fleet(other, own)


def cheapest_fleet(  # noqa: PLR0913 - one argument per question of the command
    jobs: JobTable,
    policy: str = "weave",
    options: PolicyOptions = _OPTIONS,
    target: WaitTarget = _TARGET,
    *,
    convention: Convention = "work",
    price: Price | None = None,
    progress: Progress | None = None,
    box: SearchBox | None = None,
    replays: FleetReplays | None = None,
    with_worth: bool = True,
) -> FleetAnswer:
    """Return the cheapest fleet of a box that meets a waiting target, with the evidence.

    Parameters
    ----------
    jobs : JobTable
        Of the trace.
    policy : str
        Who places them.
    options : PolicyOptions
        Its ``queue`` decides who starts; its ``fleet`` is of no concern.
    target : WaitTarget
        Waits that are to be kept.
    convention : {"work", "wallclock"}
        What ends a stay.
    price : callable, optional
        $/h of a fleet, never falling with more nodes; default: the cluster's prices of all nodes,
        all the time.
    progress : callable, optional
        Called with (cheaper fleets looked at, cheaper fleets).
    box : SearchBox, optional
        Fleets to search; by default up to what nobody would wait on.
    replays : FleetReplays, optional
        Of the same jobs, policy, options and convention: what it remembers is not replayed again.
    with_worth : bool
        Whether to look at fleets a little larger too, and at what a node more of a pool is worth.

    Returns
    -------
    FleetAnswer
        At Ctrl-C the best fleet found by then, marked so.

    Raises
    ------
    InfeasibleError
        When no fleet of the box meets the target, saying why.
    InputError
        For an unknown policy, or when there are no jobs.
    KeyboardInterrupt
        At Ctrl-C before any fleet was found.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> answer = cheapest_fleet(read_trace(catalog_path("tiny-open-shop")).jobs)
    >>> str(answer.fleet), answer.box.cheaper_unexamined
    ('1 rollout + 1 train nodes', 0)
    """
    box = box or SearchBox()
    replays = replays or FleetReplays(jobs, policy, options, convention=convention)
    peak = replays.plain_peak  # first: it refuses what no fleet can run
    bound = bound_of(jobs, policy, options, target, convention)
    search = _Search(
        replays, target, price or _cluster_price(options), bound, _box(peak, box), progress
    )
    _require_room(search, box)
    interrupted = False
    worth: tuple[NodeWorth, ...] = ()
    try:
        if not search.meets(search.most) and box.most is None:
            search.most = _wider(search.most, jobs)
        search.walk()
        search.prove()
        if search.best is not None and with_worth:
            search.look_above()
            worth = search.worth()
    except KeyboardInterrupt:
        if search.best is None:
            raise
        interrupted = True
    if search.best is None:
        raise _nothing(search)
    return _answer(search, peak, worth, interrupted=interrupted)


def _cluster_price(options: PolicyOptions) -> Price:
    cluster = options.cluster
    return lambda fleet: cluster.usd_per_hour(fleet.rollout_nodes, fleet.train_nodes)


def _box(peak: Fleet, box: SearchBox) -> Fleet:
    """Return the most nodes of each pool that are looked at."""
    rollout, train = peak.rollout_nodes + box.margin, peak.train_nodes + box.margin
    if box.most is not None:
        rollout, train = min(rollout, box.most.rollout_nodes), min(train, box.most.train_nodes)
    return Fleet(rollout, train)


def _wider(most: Fleet, jobs: JobTable) -> Fleet:
    """Return the box in which the plain replay is sure to be repeated (module docstring)."""
    return Fleet(
        most.rollout_nodes + int(jobs.rollout_nodes.max()),
        most.train_nodes + int(jobs.train_nodes.max()),
    )


def _require_room(search: _Search, box: SearchBox) -> None:
    """Refuse a box all of whose fleets are excluded, saying by what."""
    most = search.most
    why = search.bound.why(most.rollout_nodes, most.train_nodes)
    if why is not None:
        limit = "most nodes allowed" if box.most is not None else "peak of the plain replay"
        raise InfeasibleError(
            f"No fleet of at most {most} ({limit}) meets the waiting target of "
            f"{_target_words(search.target)}. {why}"
        )


def _nothing(search: _Search) -> InfeasibleError:
    points = list(search.points())
    excluded = sum(search.excluded(fleet) for fleet in points)
    return InfeasibleError(
        f"No fleet of at most {search.most} meets the waiting target of "
        f"{_target_words(search.target)}: of {len(points)} fleets {excluded} are excluded by a "
        f"bound, and {len(points) - excluded} were replayed and missed it. Allow more nodes, or a "
        "longer wait."
    )


def _target_words(target: WaitTarget) -> str:
    return f"{target.wait_s / 3600.0:.4g} h for {target.share:.4g} of the jobs"


def _answer(
    search: _Search, peak: Fleet, worth: tuple[NodeWorth, ...], *, interrupted: bool
) -> FleetAnswer:
    assert search.best is not None
    replays, target = search.replays, search.target
    pairs, first = _out_of_order(search)
    return FleetAnswer(
        target=target,
        fleet=search.best,
        usd_per_hour=search.usd(search.best),
        figures=replays.ended[search.best],
        result=replays.result(search.best),
        bound=search.bound,
        box=_counted(search, peak),
        pairs_out_of_order=pairs,
        first_pairs=first,
        worth=worth,
        interrupted=interrupted,
    )


def _counted(search: _Search, peak: Fleet) -> FleetBox:
    """Return the box with what became of its fleets."""
    excluded = given_up = replayed = points = 0
    for fleet in search.points():
        points += 1
        if search.excluded(fleet):
            excluded += 1
        elif fleet in search.replays.ended:
            replayed += 1
        elif search.replays.known(fleet, search.target) is not None:
            given_up += 1
    before = search.better()
    unexamined = [
        fleet
        for fleet in before
        if not search.excluded(fleet) and search.replays.known(fleet, search.target) is None
    ]
    return FleetBox(
        most=search.most,
        plain_peak=peak,
        points=points,
        excluded=excluded,
        given_up=given_up,
        replayed=replayed,
        cheaper=len(before),
        cheaper_unexamined=len(unexamined),
    )


def _out_of_order(search: _Search) -> tuple[int, tuple[PairOutOfOrder, ...]]:
    """Return how many pairs are out of order among the fleets replayed, and the smallest few."""
    verdicts: dict[bool, list[Fleet]] = {True: [], False: []}
    for fleet in search.replays.replayed():
        known = search.replays.known(fleet, search.target)
        if known is not None:
            verdicts[known].append(fleet)
    if not verdicts[True] or not verdicts[False]:
        return 0, ()
    meets, misses = (sorted(verdicts[v], key=search.key) for v in (True, False))
    low = np.array([(f.rollout_nodes, f.train_nodes) for f in meets])
    high = np.array([(f.rollout_nodes, f.train_nodes) for f in misses])
    wrong = (low[:, None, :] <= high[None, :, :]).all(axis=2)
    first = np.argwhere(wrong)[:_LISTED].tolist()
    pairs = tuple(PairOutOfOrder(meets=meets[a], misses=misses[b]) for a, b in first)
    return int(wrong.sum()), pairs


# --- the frontier -------------------------------------------------------------------------------


def cheapest_fleets(  # noqa: PLR0913 - as cheapest_fleet
    jobs: JobTable,
    policy: str = "weave",
    options: PolicyOptions = _OPTIONS,
    targets_s: Sequence[float] = LADDER_S,
    *,
    share: float = 0.95,
    convention: Convention = "work",
    price: Price | None = None,
    progress: Progress | None = None,
    box: SearchBox | None = None,
    replays: FleetReplays | None = None,
    with_worth: bool = False,
) -> tuple[FleetAnswer, ...]:
    """Return the cheapest fleet of each waiting target, shortest wait first.

    The longest wait is searched first: a fleet given up there misses all the others too, and one
    replayed to the end is known at every target, so no fleet is replayed twice.

    Parameters
    ----------
    jobs, policy, options, convention, price, box, replays, with_worth
        As of :func:`cheapest_fleet`.
    targets_s : sequence of float
        Waits, seconds.
    share : float
        Of the jobs that must not wait longer.
    progress : callable, optional
        Called with (targets done, targets).

    Raises
    ------
    InfeasibleError
        When no fleet of the box meets the longest target; stricter ones without a fleet are left
        out.
    KeyboardInterrupt
        At Ctrl-C; what was replayed by then is in ``replays``.

    Examples
    --------
    >>> from planner import catalog_path, read_trace
    >>> len(cheapest_fleets(read_trace(catalog_path("tiny-open-shop")).jobs))  # one a wait
    7
    """
    replays = replays or FleetReplays(jobs, policy, options, convention=convention)
    answers: list[FleetAnswer] = []
    waits = sorted(set(targets_s), reverse=True)
    for done, wait_s in enumerate(waits):
        if progress is not None:
            progress(done, len(waits))
        try:
            answer = cheapest_fleet(
                jobs,
                policy,
                options,
                WaitTarget(wait_s, share),
                convention=convention,
                price=price,
                box=box,
                replays=replays,
                with_worth=with_worth,
            )
        except InfeasibleError:
            if not answers:
                raise
            break  # nor is any shorter wait met
        if answer.interrupted:
            raise KeyboardInterrupt
        answers.append(answer)
    if progress is not None:
        progress(len(waits), len(waits))
    return tuple(answers[::-1])


def wait_frontier(  # noqa: PLR0913 - as cheapest_fleet
    jobs: JobTable,
    policy: str,
    options: PolicyOptions,
    targets_s: Sequence[float] = LADDER_S,
    *,
    share: float = 0.95,
    convention: Convention = "work",
    price: Price | None = None,
    progress: Progress | None = None,
    box: SearchBox | None = None,
    replays: FleetReplays | None = None,
) -> tuple[FrontierPoint, ...]:
    """Return the undominated fleets in price and wait, cheapest first.

    Among all fleets replayed to the end while the cheapest one of each target was looked for:
    fleets such that no other is as cheap and waits as little.

    Parameters
    ----------
    jobs, policy, options, targets_s, share, convention, price, progress, box, replays
        As of :func:`cheapest_fleets`, and so are exceptions.
    """
    replays = replays or FleetReplays(jobs, policy, options, convention=convention)
    answers = cheapest_fleets(
        jobs,
        policy,
        options,
        targets_s,
        share=share,
        convention=convention,
        price=price,
        progress=progress,
        box=box,
        replays=replays,
    )
    return undominated(replays, share=share, price=price, answers=answers)


def undominated(
    replays: FleetReplays,
    *,
    share: float = 0.95,
    price: Price | None = None,
    answers: Sequence[FleetAnswer] = (),
) -> tuple[FrontierPoint, ...]:
    """Return the frontier of the fleets replayed to the end so far, cheapest first."""
    usd = price or _cluster_price(replays.options)
    points = [_point(figures, usd, share, answers) for figures in replays.ended.values()]
    points.sort(key=lambda p: (round(p.usd_per_hour, _DECIMALS), p.wait_s, p.fleet.train_nodes))
    frontier: list[FrontierPoint] = []
    for point in points:
        if not frontier or point.wait_s < frontier[-1].wait_s:
            frontier.append(point)
    return tuple(frontier)


def _point(
    figures: FleetFigures, price: Price, share: float, answers: Sequence[FleetAnswer]
) -> FrontierPoint:
    mine = [answer for answer in answers if answer.fleet == figures.fleet]
    return FrontierPoint(
        fleet=figures.fleet,
        usd_per_hour=price(figures.fleet),
        wait_s=figures.wait_quantile(share),
        wait_p50_s=figures.wait_quantile(0.5),
        wait_p95_s=figures.wait_quantile(0.95),
        wait_max_s=float(figures.waits_s[-1]),
        admitted_at_once=figures.admitted_at_once,
        slo_attainment=figures.slo_attainment,
        slo_attainment_with_wait=figures.slo_attainment_with_wait,
        utilisation=figures.utilisation,
        cheapest_for_s=tuple(answer.target.wait_s for answer in mine),
        proved_for_s=tuple(answer.target.wait_s for answer in mine if answer.proved),
    )
