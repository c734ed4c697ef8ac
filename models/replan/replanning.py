"""Re-planning running groups: the least-cost groups of all jobs when every move has its price.

Sets and parameters
-------------------
Jobs ``j`` of a snapshot; running groups ``h`` (*hosts*), disjoint, each with the pins of its
members; jobs in none are *newcomers*. ``L`` hours that a plan lasts; ``c^P`` $/h of a node;
``m_j`` $ for moving job ``j``, once, wherever to (a newcomer moves for nothing); jobs that may not
move; perhaps the most moves, and the most nodes of each pool.

A plan is a set of groups that hold every job once. A group may *continue* one host: members of
that host whose pins do not change are *stayers*, all other running members are *movers*. Two
groups never continue the same host. A group without stayers is on new nodes.

Problem
-------
``min L sum_g (c^R n^R_g + c^T n^T_g) + sum_{movers} m_j``, every group valid.

Method
------
1. Columns (:mod:`models.replan.columns`) on node counts that loads admit: a relaxation, so the
   least choice (:mod:`models.replan.choice`) is a bound.
2. The chosen columns are *materialised* (:mod:`models.replan.kept_pins`): parts of a host by its
running
   schedule, groups on new nodes by :class:`models.group.group_cost.GroupCost`, others by pinning
   the movers beside the stayers, failing that by renaming the nodes of a decided group.
3. A column that fails is *refuted*: with all that hold it, it gives way to columns with a stayer
   less or a node more (:meth:`_Search._refute`); a set without a group on so many nodes gives
   way in the table (:meth:`models.replan.sets.SetTable.refute`). The choice is made again.

When every chosen column stands, or no choice is worth less than the plan held, the plan is the
best one within the candidates; *proved* if moreover every refutation was a proof. Candidates
are all groups whose sharing graph is connected, and parts of a host as they are (all of them for
up to six members, else the whole and without one or two). So a group of several unconnected
parts, of which at least two have stayers and one has movers or newcomers, is not looked at; nor
are sets of stayers out of more than six of a host but the whole and those with one job less.

A move that costs as much as keeping every host and each newcomer alone is in no better plan: such
jobs are taken as ones that may not move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from instances.errors import InputError, UnsupportedError
from models.backends.highs_model import INFINITY
from models.bounds.covering_lp import EPS, Ending, StoppedError
from models.group.group_cost import GroupCost, Nodes
from models.group.known_groups import KnownGroups, RememberingCost
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.snapshot import Snapshot, solo_group
from models.replan.choice import Choice
from models.replan.columns import (
    BoolArray,
    Columns,
    FloatArray,
    HostArrays,
    IntArray,
    first_columns,
)
from models.replan.kept_pins import extended, fresh_group, kept, relabelled, remaining
from models.replan.running import Host, NewGroup, Replan
from models.replan.sets import SetMemory, SetTable, few_sets, set_table

__all__ = ["Host", "NewGroup", "Replan", "SetMemory", "replan"]

#: Seconds after the deadline in which groups already chosen may still be decided.
_GRACE_S: Final = 0.25
#: Times that a choice is made.
_ROUNDS: Final = 60
#: Times that it is made again when the search was cut short.
_SHORT_ROUNDS: Final = 2
#: Sets of the table, beyond which there is no choosing.
_MOST_SETS: Final = 2_000_000

#: A column: its host, jobs, stayers and nodes.
_Key = tuple[int, tuple[int, ...], tuple[int, ...], Nodes]


def replan(  # noqa: PLR0913 - the problem, what is known, and limits
    snapshot: Snapshot,
    hosts: Sequence[Host],
    *,
    lasting_h: float,
    move_usd: FloatArray,
    may_move: BoolArray,
    most_moves: int | None = None,
    most_nodes: Nodes | None = None,
    known: KnownGroups | None = None,
    memory: SetMemory | None = None,
    seed: int = 0,
    node_limit: int | None = None,
    deadline: Deadline,
) -> Replan:
    """Return the best plan of all jobs, moves priced; the best one found at a limit.

    The worst answer is every host as it is and each newcomer alone, on more than ``most_nodes``
    perhaps: no plan that keeps to these and is worth as little was found then. Ctrl-C ends the
    search, and the plan held is returned; before there is one, it is raised.

    The same input has the same answer. What is known and remembered may change which of several
    plans of the least value is found, and at a limit how good it is.

    Parameters
    ----------
    hosts : sequence of Host
        Running groups, disjoint; connected ones, or two parts that share no node can only stay
        together.
    lasting_h : float
        Hours that the plan is expected to last.
    move_usd : (n,) float64
        Price of moving each job, $; of no meaning for newcomers.
    may_move : (n,) bool
    most_moves : int, optional
    most_nodes : (int, int), optional
        Rollout and train nodes of the whole plan.
    known : KnownGroups, optional
        Verdicts on groups of earlier snapshots of the trace; new ones are added.
    memory : SetMemory, optional
        Candidate sets of the last snapshot of the trace; replaced by this one's.
    seed : int
        Of HiGHS and CP-SAT.
    node_limit : int, optional
        Effort of each choice beyond its first LP and a quick improvement: nodes of its search, a
        later run of the LP counted as 150. The table of sets is limited too, where it is slow to
        make, by taking smaller groups only: no bound is known then. Left out: until proved.
    deadline : Deadline

    Raises
    ------
    InputError
        When a number is out of its range, or hosts are not disjoint sets of jobs.
    """
    _require(snapshot, hosts, lasting_h, move_usd, may_move, most_moves)
    cost = RememberingCost(
        snapshot,
        KnownGroups() if known is None else known,
        seed=seed,
        deadline=deadline.later(_GRACE_S),
    )
    search = _Search(
        snapshot,
        hosts,
        lasting_h=lasting_h,
        move_usd=move_usd,
        may_move=may_move,
        most_moves=most_moves,
        most_nodes=most_nodes,
        cost=cost,
        deadline=deadline,
        seed=seed,
        node_limit=node_limit,
    )
    ending = Ending.OPTIMAL
    try:
        search.run(memory)
    except OutOfTimeError:
        ending = Ending.TIME
    except KeyboardInterrupt:
        ending = Ending.INTERRUPT
    except StoppedError as stop:
        ending = stop.ending
    except UnsupportedError:  # too many candidates
        ending = Ending.NODES
    return search.answer(ending)


def _require(
    snapshot: Snapshot,
    hosts: Sequence[Host],
    lasting_h: float,
    move_usd: FloatArray,
    may_move: BoolArray,
    most_moves: int | None,
) -> None:
    n = len(snapshot)
    if not (np.isfinite(lasting_h) and lasting_h >= 0):
        raise InputError(f"Expected lasting_h >= 0, got {lasting_h}.")
    if move_usd.shape != (n,) or may_move.shape != (n,):
        raise InputError(
            f"Expected move_usd and may_move of {n} jobs, got shapes {move_usd.shape} and "
            f"{may_move.shape}."
        )
    seen: set[int] = set()
    for number, host in enumerate(hosts):
        jobs = set(host.members)
        if len(jobs) < len(host.members) or jobs & seen or not jobs <= set(range(n)) or not jobs:
            raise InputError(
                f"Expected disjoint hosts of jobs 0 to {n - 1}, got {host.members} (host {number})."
            )
        seen |= jobs
    running = sorted(seen)
    if not (np.isfinite(move_usd[running]).all() and (move_usd[running] >= 0).all()):
        raise InputError("Expected move_usd >= 0 of every running job.")
    if most_moves is not None and most_moves < 0:
        raise InputError(f"Expected most_moves >= 0, got {most_moves}.")


class _Search:
    """One re-planning: the plan held, columns, and what they were found to be.

    ``running``, ``may_move`` and ``credit`` are those of :class:`HostArrays` as lists.
    """

    def __init__(  # noqa: PLR0913 - as of replan
        self,
        snapshot: Snapshot,
        hosts: Sequence[Host],
        *,
        lasting_h: float,
        move_usd: FloatArray,
        may_move: BoolArray,
        most_moves: int | None,
        most_nodes: Nodes | None,
        cost: GroupCost,
        deadline: Deadline,
        seed: int,
        node_limit: int | None,
    ) -> None:
        self.snapshot, self.hosts, self.lasting_h = snapshot, tuple(hosts), lasting_h
        # groups already chosen are decided all the same when the time is over
        self.cost, self.deadline, self.later = cost, deadline, deadline.later(_GRACE_S)
        self.seed, self.node_limit, self.most_moves = seed, node_limit, most_moves
        home = {j for host in hosts for j in host.members}
        self.running = [j in home for j in range(len(snapshot))]
        newcomers = [j for j in range(len(snapshot)) if j not in home]
        alone = [fresh_group(solo_group(snapshot, j), self.running) for j in newcomers]
        self.groups = (*[kept(h, host) for h, host in enumerate(hosts)], *alone)
        self.most_nodes = (INFINITY, INFINITY) if most_nodes is None else most_nodes
        self.within = self._within(self.groups)
        self.value = self._value(self.groups)
        # a move as dear as this plan is in no better one; nor does its price set the unit then
        self.arrays = HostArrays(snapshot, hosts, move_usd, may_move & (move_usd < self.value))
        self.may_move: list[bool] = (~self.arrays.fixed[:-1]).tolist()
        self.credit: list[float] = self.arrays.credit.tolist()
        self.proved = False
        self.exact = True  # whether all sets are there, and every refutation so far was a proof
        self.bound: float | None = None
        self.counts = dict.fromkeys(("sets", "columns", "left", "rounds", "refuted", "nodes"), 0)
        self._found: dict[_Key, NewGroup | None] = {}
        self._refuted: list[_Key] = []
        self._seen: set[_Key] = set()

    # --- plans ------------------------------------------------------------------------------

    def _value(self, groups: Iterable[NewGroup]) -> float:
        """Return what a plan is worth, $."""
        nodes = [0, 0]
        moved = 0.0
        for group in groups:
            rollout, train = group.nodes
            nodes[0] += rollout
            nodes[1] += train
            moved += sum([self.credit[j] for j in group.movers])
        return self.lasting_h * self.snapshot.usd_per_hour(nodes[0], nodes[1]) + moved

    def _within(self, groups: Iterable[NewGroup]) -> bool:
        """Return whether a plan keeps to the most nodes."""
        nodes = np.array([group.nodes for group in groups], dtype=np.int64).reshape(-1, 2)
        return bool((nodes.sum(axis=0) <= self.most_nodes).all())

    def _hold(self, groups: Sequence[NewGroup]) -> None:
        """Keep a plan within the moves and nodes if it is better.

        One that is as good will do where the plan held has too many nodes.
        """
        moves = sum(len(group.movers) for group in groups)
        value = self._value(groups)
        allowed = self.most_moves is None or moves <= self.most_moves
        tolerance = EPS * self.choice.unit * (1 if self.within else -1)
        if allowed and self._within(groups) and value < self.value - tolerance:
            self.groups, self.value, self.within = tuple(groups), value, True

    def answer(self, ending: Ending) -> Replan:
        """Return the plan held."""
        groups = tuple(sorted(self.groups, key=lambda group: group.members))
        if ending is Ending.OPTIMAL and not self.proved:
            ending = Ending.NODES
        return Replan(
            groups=groups,
            value_usd=self.value,
            moves=sum(len(group.movers) for group in groups),
            ending=ending,
            proved=self.proved,
            bound_usd=self.bound,
            counts=self.counts,
        )

    # --- the loop ---------------------------------------------------------------------------

    def run(self, memory: SetMemory | None) -> None:
        """Choose and materialise until the choice stands."""
        if not len(self.snapshot):
            self.proved = True
            return
        options = SolveOptions(max_groups=_MOST_SETS, seed=self.seed)
        given = self.snapshot, self.cost, options, self.deadline, memory
        limited = self.snapshot
        if self.node_limit is None:
            table = set_table(*given)
        else:
            table, limited = few_sets(*given)
        self.exact = limited is self.snapshot
        self.counts["sets"] = len(table)
        if memory is not None:
            memory.put(limited, table)
        first = first_columns(self.snapshot, self.hosts, self.arrays)
        node_usd = self.lasting_h * np.array(
            [self.snapshot.usd_per_hour(1, 0), self.snapshot.usd_per_hour(0, 1)]
        )
        pi_usd = (
            self._guess(node_usd)
            if memory is None
            else memory.duals(self.snapshot, self._guess(node_usd))
        )
        self.choice = Choice(
            table,
            self.arrays,
            first,
            pi_usd=pi_usd,
            node_usd=node_usd,
            most_moves=self.most_moves,
            most_nodes=self.most_nodes,
            deadline=self.deadline,
            seed=self.seed,
        )
        try:
            self._rounds()
        except (OutOfTimeError, StoppedError):
            self._remember(memory, table, limited)
            raise
        # not after Ctrl-C, which may come half way through a refutation
        self._remember(memory, table, limited)

    def _remember(self, memory: SetMemory | None, table: SetTable, limited: Snapshot) -> None:
        self.counts["columns"] = len(self.choice.columns)
        self.counts["nodes"] = self.choice.nodes
        if memory is not None:
            memory.put(limited, table, self.choice.pi_usd)

    def _guess(self, node_usd: FloatArray) -> FloatArray:
        """Return what jobs may cost, $: their share of the time of a node, and a third more."""
        jobs = self.snapshot.table
        share = np.stack((
            jobs.rollout_nodes * jobs.rollout_s / jobs.deadline_s,
            jobs.train_nodes * jobs.train_s / jobs.deadline_s,
        ))  # fmt: skip
        out: FloatArray = (4 / 3) * (node_usd @ share)
        return out

    def _rounds(self) -> None:
        choice = self.choice
        total = float(sum(self.credit))
        short = 0
        for _ in range(_ROUNDS):
            self.counts["rounds"] += 1
            held = (self.value - total) / choice.unit + (0.0 if self.within else 2 * EPS)
            best = choice.best(held, self.node_limit)
            self.counts["left"] = max(self.counts["left"], choice.left)
            if self.exact and best.bound is not None:
                bound = best.bound * choice.unit + total
                self.bound = bound if self.bound is None else max(self.bound, bound)
            stands = best.chosen is None or self._materialise(best.chosen)
            if best.ending not in (Ending.OPTIMAL, Ending.NODES):
                raise StoppedError(best.ending)
            short += best.ending is Ending.NODES
            if stands or short > _SHORT_ROUNDS:
                self.proved = stands and self.exact and best.ending is Ending.OPTIMAL
                return

    # --- materialising ----------------------------------------------------------------------

    def _materialise(self, chosen: Sequence[int]) -> bool:
        """Make groups of the chosen columns and hold the plan; return whether all stood."""
        groups: list[NewGroup] = []
        whole, stands = True, True
        failed: list[tuple[_Key, bool]] = []
        for key in self._keys(chosen):
            group = self._group(key, failed)
            if group is None:
                whole = stands = False
            else:
                groups.append(group)
                stands = stands and key in self._found and self._found[key] is not None
        if whole:
            self._hold(groups)
        for key, proved in failed:
            self._refute(key, proved)
        return stands

    def _keys(self, chosen: Sequence[int]) -> list[_Key]:
        """Return the columns chosen with every job in one of them: where it stays, else the first.

        See :mod:`models.replan.choice`.
        """
        columns = self.choice.columns
        owner: dict[int, int] = {}
        for stay in (True, False):
            for at in chosen:
                for job, keeps in zip(
                    columns.members[at].tolist(), columns.keep[at].tolist(), strict=True
                ):
                    if job < len(self.snapshot) and (keeps or not stay):
                        owner.setdefault(job, at)
        out: list[_Key] = []
        for at in chosen:
            jobs = tuple(sorted([job for job, own in owner.items() if own == at]))
            if jobs:
                _, _, stayers, nodes = self._key(at)
                out.append((int(columns.host[at]), jobs, stayers, nodes))
        return out

    def _key(self, at: int) -> _Key:
        columns = self.choice.columns
        members, keep = columns.members[at], columns.keep[at]
        rollout, train = columns.nodes[at].tolist()
        return (
            int(columns.host[at]),
            tuple([j for j in members.tolist() if j < len(self.snapshot)]),
            tuple(members[keep].tolist()),
            (rollout, train),
        )

    def _group(self, key: _Key, failed: list[tuple[_Key, bool]]) -> NewGroup | None:
        """Return a group of one column, a dearer one where it fails; ``None`` where none is."""
        found = self._found.get(key)
        if found is not None:
            return found
        h, members, stayers, nodes = key
        proved = False
        if h >= 0:
            host = self.hosts[h]
            if stayers == members:
                found = remaining(self.snapshot, h, host, members)
            else:
                found, proved = extended(
                    self.snapshot, members, stayers, h, host, nodes, self.running,
                    deadline=self.later,
                )  # fmt: skip
            if found is not None:
                self._found[key] = found
                return found
        group = self.cost.decide(members, nodes)
        if group is None:
            failed.append(((-1, members, (), nodes), True))
            return None
        if h < 0:
            self._found[key] = fresh_group(group, self.running)
            return self._found[key]
        failed.append((key, proved))
        return relabelled(group, h, self.hosts[h], self.credit, self.may_move, self.running)

    # --- refutation -------------------------------------------------------------------------

    def _refute(self, key: _Key, proved: bool) -> None:
        """Let columns that hold a refuted one give way to those that may be groups still.

        By heredity these are all of the same host with its jobs, its stayers and no more nodes.
        """
        self.counts["refuted"] += 1
        choice = self.choice
        h, members, _, nodes = key
        self.exact = self.exact and proved
        if h < 0:
            gone = self._holding(np.arange(len(choice.columns)), key)
            added = choice.table.refute(members, nodes)
            fresh = choice.replace(gone, added)
        else:
            self._refuted.append(key)
            gone = self._holding(np.arange(len(choice.columns)), key)
            choice.leave_out(gone)
            fresh = self._successors(gone)
        self._drop_refuted(fresh)

    def _holding(self, at: IntArray, key: _Key) -> IntArray:
        """Return which of these columns hold a refuted one; parts of hosts are none."""
        h, members, stayers, nodes = key
        columns = self.choice.columns.take(at)
        holds = self.choice.alive[at] & (columns.nodes <= np.array(nodes)).all(axis=1)
        holds &= ((columns.members == self.choice.n) | columns.keep).all(axis=1) == 0
        if h >= 0:
            holds &= columns.host == h
        for member in members:
            here = columns.members == member
            holds &= (here & columns.keep if member in stayers else here).any(axis=1)
        return at[holds]

    def _successors(self, gone: IntArray) -> IntArray:
        """Add the columns with a stayer less or a node more."""
        columns = self.choice.columns
        rows: list[_Key] = []
        for at in gone.tolist():
            h, members, stayers, nodes = self._key(at)
            more = self.cost.most_nodes(members)
            for pool in (0, 1):
                if nodes[pool] < more[pool]:
                    rollout, train = nodes[0] + (pool == 0), nodes[1] + (pool == 1)
                    rows.append((h, members, stayers, (rollout, train)))
            for gone_job in stayers if len(stayers) > 1 else ():
                left = tuple([j for j in stayers if j != gone_job])
                rows.append((h, members, left, nodes))
        rows = [key for key in dict.fromkeys(rows) if key not in self._seen]
        self._seen |= set(rows)
        width = columns.members.shape[1]
        members_of = np.full((len(rows), width), self.choice.n, dtype=np.int64)
        keep = np.zeros((len(rows), width), dtype=np.bool_)
        for row, (_, jobs, stayers, _) in enumerate(rows):
            members_of[row, : len(jobs)] = jobs
            keep[row, : len(jobs)] = [j in stayers for j in jobs]
        return self.choice.append(
            Columns(
                members_of,
                keep,
                np.array([key[3] for key in rows], dtype=np.int64).reshape(-1, 2),
                np.array([key[0] for key in rows], dtype=np.int64),
            )
        )

    def _drop_refuted(self, fresh: IntArray) -> None:
        """Leave out those of new columns that were refuted already, down to what may stand."""
        while len(fresh):
            gone = [self._holding(fresh, key) for key in self._refuted]
            out = np.unique(np.concatenate([*gone, np.zeros(0, dtype=np.int64)]))
            self.choice.leave_out(out)
            fresh = self._successors(out)
