"""Loss of one node (N-1): can the jobs present go on, whichever node of a fixed fleet fails?

For every distinct state of a replay under a fixed fleet (who runs where) and each pool: have the
jobs present a valid plan on one node less? Nodes of a pool are alike, so a plan on ``N - 1`` nodes
serves the loss of *any* of the ``N``: if it was made for the loss of ``x`` and ``y`` fails instead,
``x`` takes over what the plan leaves on ``y``, and the jobs of ``y`` move with it. Whether a loss
is survived is hence a question of the state and the pool; which node fails only decides how many
jobs have to restart. Jobs that wait go on waiting, and nobody is admitted until the node is back. A
restart costs a job its restart seconds; whether its SLO bears them is not asked. A job of
``repack`` that restarts anyway counts as one that runs; old nodes held for it are free to take.

Answers are tried in this order; each is a plan, made and then checked by the independent checker
(:data:`HOW`):

1. ``spare``: a node of the pool is free. It takes over the lost one, pins renamed.
2. ``few``: the jobs pinned to one node are placed anew by the placer's rule on what is left,
   nobody else's pins changed; for each node of the pool in turn.
3. ``group``: the same with all jobs of one group.
4. ``all``: all jobs present are placed from nothing, in order of arrival.
5. ``search``: a plan of more jobs known from another state, or else one that an exact method for
   snapshots (:mod:`models.exact.methods`) finds within the nodes left and a limited time.

``none`` is what is left: *proved* where the volume bound or the search says that no valid plan
exists, else only not found. What is known of one state serves others: a plan of more jobs is, with
the others taken out, a plan of fewer (infeasibility is hereditary: FORMULATION section 3), and
where fewer jobs have none, more have none.

Two nodes of one group with the same jobs pinned are interchangeable: exchanging their names turns
the plan into itself, so one of them is tried for both.

**One spare node a pool is always enough** (:func:`n_minus_1_fleet`): the replay never uses more
than the ``N`` nodes it was run with, so of ``N + 1`` one is free whenever a node fails, and case 1
applies; the policy must leave it free, it does not place jobs on it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.plan import Fleet
from planner.policies.policy import PolicyOptions
from planner.policies.replay_result import ReplayResult
from planner.replay.demand import POOLS, Pool
from planner.size.loss_states import State, states_of
from planner.size.loss_tests import HOW, LossTester, NodeLoss

__all__ = [
    "HOW",
    "NMinus1Fleet",
    "NodeLoss",
    "NodeLossReport",
    "n_minus_1_fleet",
    "survives_loss",
]

Progress = Callable[[int, int], None]

#: Policies whose plans keep every rule, and whether their jobs share nodes.
_SHARES: Final = {"weave": True, "repack": True, "solo": False}
_NO_SPARE: Final = Fleet(0, 0)


@dataclass(frozen=True, kw_only=True)
class NodeLossReport:
    """Every distinct state of a replay with the loss of one node of each pool.

    Attributes
    ----------
    fleet : Fleet
        What the replay ran with.
    spare : Fleet
        Nodes beyond it, which nobody is placed on.
    states : int
        Distinct states with at least one job.
    losses : tuple of NodeLoss
        One per state and pool that somebody uses then, in order of time.
    """

    fleet: Fleet
    spare: Fleet
    states: int
    losses: tuple[NodeLoss, ...]

    @property
    def survived(self) -> bool:
        """Whether every loss of one node is survived."""
        return not self.failed

    @cached_property
    def failed(self) -> tuple[NodeLoss, ...]:
        """The losses that are not survived."""
        return tuple(loss for loss in self.losses if not loss.survived)

    def counts(self, pool: Pool) -> dict[str, int]:
        """Return how many losses of a pool are survived in each way, or not."""
        found = Counter(loss.how for loss in self.losses if loss.pool == pool)
        return {how: found[how] for how in HOW}

    def hours_failed(self, pool: Pool) -> float:
        """Return the hours in which a node of this pool could not be lost."""
        return sum(loss.hours for loss in self.failed if loss.pool == pool)

    @property
    def most_moved(self) -> NodeLoss | None:
        """The survived loss that moves most jobs; the earliest on ties."""
        there = [loss for loss in self.losses if loss.survived]
        return max(there, key=lambda loss: loss.jobs_moved, default=None)


@dataclass(frozen=True, kw_only=True)
class NMinus1Fleet:
    """The least spare nodes with which a fleet survives the loss of any one node.

    Attributes
    ----------
    fleet, spare : Fleet
        What the replay ran with, and what to own beside: 0 or 1 of each pool.
    spare_usd_per_hour : float
        Price of the spare nodes.
    report : NodeLossReport
        Of the fleet with the spare nodes.
    without : NodeLossReport
        Of the fleet alone.
    failed : tuple of (Fleet, int)
        Cheaper spares that were tried, with how many losses each does not survive.
    proved : bool
        Whether each of these has a loss that is proved not to be survived; if not, a plan may
        only not have been found.
    """

    fleet: Fleet
    spare: Fleet
    spare_usd_per_hour: float
    report: NodeLossReport
    without: NodeLossReport
    failed: tuple[tuple[Fleet, int], ...]
    proved: bool

    @property
    def total(self) -> Fleet:
        """The fleet with its spare nodes."""
        return _plus(self.fleet, self.spare)


def _plus(fleet: Fleet, spare: Fleet) -> Fleet:
    return Fleet(fleet.rollout_nodes + spare.rollout_nodes, fleet.train_nodes + spare.train_nodes)


# --- all losses ---------------------------------------------------------------------------------


def survives_loss(
    result: ReplayResult,
    options: PolicyOptions,
    *,
    spare: Fleet = _NO_SPARE,
    search_s: float = 2.0,
    progress: Progress | None = None,
) -> NodeLossReport:
    """Return what becomes of every loss of one node in a replay under a fixed fleet.

    Parameters
    ----------
    result : ReplayResult
        With its plan; policy ``weave``, ``repack``, or ``solo``, whose jobs are not made to share.
    options : PolicyOptions
        Cluster, limits and placing rule of the replay.
    spare : Fleet
        Nodes beyond the replay's fleet, which nobody is placed on until a node is lost.
    search_s : float
        Most seconds of one search, where the placer finds no plan; 0: none.
    progress : callable, optional
        Called with (losses tested, losses).

    Raises
    ------
    InputError
        When the replay had no fixed fleet, or its plan was dropped.
    UnsupportedError
        For another policy, or a replay in which nodes have failed already.
    CheckError
        When a plan breaks a rule: a fault of the program.
    """
    states, tests = _prepared(result)
    losses = _tested(result, options, tests, (spare, search_s), progress)
    return _report(result, spare, len(states), losses)


def _prepared(result: ReplayResult) -> tuple[list[State], list[tuple[State, Pool]]]:
    if result.fleet is None or result.plan is None:
        raise InputError("Expected a replay under a fixed fleet with its plan, got one without.")
    if result.policy not in _SHARES:
        raise UnsupportedError(
            f"Expected policy in {', '.join(_SHARES)} for the loss of a node, got "
            f"'{result.policy}'."
        )
    if result.plan.outages:
        raise UnsupportedError(
            "Expected a replay whose fleet is whole, got one with failed nodes: the loss of one "
            "more is asked of plans that have them all."
        )
    states = states_of(result.plan)
    return states, [(state, pool) for state in states for pool in POOLS]


def _tested(
    result: ReplayResult,
    options: PolicyOptions,
    tests: Sequence[tuple[State, Pool]],
    means: tuple[Fleet, float],
    progress: Progress | None,
) -> list[NodeLoss]:
    """Return the losses of these states and pools, with (spare nodes, seconds of a search)."""
    assert result.fleet is not None
    spare, search_s = means
    limits = options.limits
    if not _SHARES[result.policy]:
        limits = replace(limits, max_group_size=1)
    tester = LossTester(result, options, limits, _plus(result.fleet, spare), search_s)
    losses = []
    for done, (state, pool) in enumerate(tests):
        if progress is not None:
            progress(done, len(tests))
        loss = tester.loss(state, pool)
        if loss is not None:
            losses.append(loss)
    if progress is not None:
        progress(len(tests), len(tests))
    return losses


def _report(
    result: ReplayResult, spare: Fleet, states: int, losses: Sequence[NodeLoss]
) -> NodeLossReport:
    assert result.fleet is not None
    return NodeLossReport(fleet=result.fleet, spare=spare, states=states, losses=tuple(losses))


def n_minus_1_fleet(
    result: ReplayResult,
    options: PolicyOptions,
    *,
    price: Callable[[Fleet], float] | None = None,
    search_s: float = 2.0,
    progress: Progress | None = None,
) -> NMinus1Fleet:
    """Return the cheapest spare nodes, 0 or 1 of each pool, with which every loss is survived.

    A spare node of one pool can help when a node of the other is lost, so all four are tried in
    ascending price; a loss that is survived with fewer spare nodes is survived with more.

    Parameters
    ----------
    result, options, search_s, progress
        As for :func:`survives_loss`.
    price : callable, optional
        $/h of a fleet; default: the cluster's prices.
    """
    cluster = options.cluster
    usd = price or (lambda fleet: cluster.usd_per_hour(fleet.rollout_nodes, fleet.train_nodes))
    states, tests = _prepared(result)
    assert result.fleet is not None
    fleet = result.fleet
    own = usd(fleet)
    spares = [Fleet(rollout, train) for rollout in (0, 1) for train in (0, 1)]
    spares.sort(key=lambda s: (usd(_plus(fleet, s)), s.train_nodes, s.rollout_nodes))
    spares.remove(_NO_SPARE)
    without = _report(
        result,
        _NO_SPARE,
        len(states),
        _tested(result, options, tests, (_NO_SPARE, search_s), progress),
    )
    failed: list[tuple[Fleet, int]] = []
    proved = True
    spare, report = _NO_SPARE, without
    for other in spares:
        if report.survived:
            break
        failed.append((spare, len(report.failed)))
        proved = proved and any(loss.proved for loss in report.failed)
        spare = other
        report = _with_spare(result, options, (tests, without), (spare, search_s), progress)
    if not report.survived:  # one spare node of each pool is always enough
        raise InfeasibleError(
            f"Expected {fleet} to survive the loss of a node with one more of each pool, got "
            f"{len(report.failed)} losses that it does not. This is a fault of the program."
        )
    return NMinus1Fleet(
        fleet=fleet,
        spare=spare,
        spare_usd_per_hour=usd(_plus(fleet, spare)) - own,
        report=report,
        without=without,
        failed=tuple(failed),
        proved=proved,
    )


def _with_spare(
    result: ReplayResult,
    options: PolicyOptions,
    before: tuple[Sequence[tuple[State, Pool]], NodeLossReport],
    means: tuple[Fleet, float],
    progress: Progress | None,
) -> NodeLossReport:
    """Return the report with spare nodes: the losses that failed without are tested again."""
    tests, without = before
    wanted = {(loss.at_s, loss.pool) for loss in without.failed}
    again = [(state, pool) for state, pool in tests if (state.at_s, pool) in wanted]
    new = {
        (loss.at_s, loss.pool): loss for loss in _tested(result, options, again, means, progress)
    }
    losses = [new.get((loss.at_s, loss.pool), loss) for loss in without.losses]
    return _report(result, means[0], without.states, losses)
