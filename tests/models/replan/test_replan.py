"""Re-planning against enumeration on small cases, and properties on larger ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from operator import attrgetter
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest

from instances.errors import InputError
from instances.generate import production
from instances.plan import Limits
from models.bounds.covering_lp import Ending
from models.exact import set_partition
from models.group.group_cost import GroupCost
from models.group.known_groups import KnownGroups
from models.problem.options import Deadline, SolveOptions
from models.problem.snapshot import Snapshot, solo_group
from models.replan.replanning import Host, SetMemory, replan
from replan_cases import Case, host_of, never, problems, random_case, replanned, stays
from small_snapshots import jobs_of, snapshot_of

PAIR_USD = 57.04  # $/h of one node of each kind: 14.80 + 42.24


def case_of(
    snapshot: Snapshot,
    hosts: Sequence[Host],
    *,
    lasting_h: float = 1.0,
    move_usd: float | Sequence[float] = 5.0,
    fixed: Sequence[int] = (),
    most_moves: int | None = None,
) -> Case:
    n = len(snapshot)
    return Case(
        snapshot=snapshot,
        hosts=tuple(hosts),
        lasting_h=lasting_h,
        move_usd=np.broadcast_to(np.asarray(move_usd, dtype=np.float64), (n,)).copy(),
        may_move=np.array([j not in fixed for j in range(n)], dtype=np.bool_),
        most_moves=most_moves,
    )


def alone(snapshot: Snapshot, *jobs: int) -> list[Host]:
    """Each of these jobs running alone."""
    return [host_of(solo_group(snapshot, job)) for job in jobs]


def three() -> Snapshot:
    """Three jobs that fit one node of each kind: 3 x 2 s in each pool, deadline 6 s."""
    return snapshot_of(jobs_of((2, 2, 2), (2, 2, 2), deadline_s=6))


# --- by hand --------------------------------------------------------------------------------


def test_two_jobs_move_when_the_nodes_saved_are_worth_it() -> None:
    """Two of three pairs of nodes are saved for two moves: 57.04 L against 10."""
    snapshot = three()
    long = replanned(case_of(snapshot, alone(snapshot, 0, 1, 2), lasting_h=1.0))
    assert (long.moves, long.value_usd) == (2, pytest.approx(PAIR_USD + 10))
    assert long.proved
    # each move alone saves 57.04 L as well, so below 5 / 57.04 h none is worth it
    short = replanned(case_of(snapshot, alone(snapshot, 0, 1, 2), lasting_h=0.087))
    assert (short.moves, short.value_usd) == (0, pytest.approx(3 * 0.087 * PAIR_USD))


def test_the_cheapest_to_move_do() -> None:
    """Whoever stays saves its own price: job 1, the dearest, stays."""
    snapshot = three()
    found = replanned(case_of(snapshot, alone(snapshot, 0, 1, 2), move_usd=(5, 9, 7)))
    assert found.groups[0].movers == (0, 2)
    assert found.groups[0].host == 1


@pytest.mark.parametrize(("most_moves", "pairs"), [(0, 3), (1, 2), (2, 1)])
def test_moves_are_limited(most_moves: int, pairs: int) -> None:
    """Each move saves one pair of nodes."""
    snapshot = three()
    found = replanned(
        case_of(snapshot, alone(snapshot, 0, 1, 2), most_moves=most_moves, lasting_h=2.0)
    )
    assert found.moves == most_moves
    assert found.value_usd == pytest.approx(2 * pairs * PAIR_USD + 5 * most_moves)


def test_a_job_that_may_not_move_stays() -> None:
    """Of three, 0 and 1 may not: only 2 joins one of them."""
    snapshot = three()
    found = replanned(case_of(snapshot, alone(snapshot, 0, 1, 2), fixed=(0, 1)))
    assert [group.movers for group in found.groups if group.movers] == [(2,)]
    assert found.value_usd == pytest.approx(2 * PAIR_USD + 5)


def test_a_newcomer_joins_for_nothing() -> None:
    snapshot = three()
    found = replanned(case_of(snapshot, alone(snapshot, 0, 1), lasting_h=0.01))
    assert found.moves == 0
    assert found.value_usd == pytest.approx(2 * 0.01 * PAIR_USD)
    assert [group.host for group in found.groups if 2 in group.members] == [0]


def test_a_member_that_left_lets_the_others_share() -> None:
    """Two jobs on two rollout nodes, after the third left: one of them moves to the other's.

    5 s of rollout fit one node within 6 s. The one on node 7 or 8 moves: a node less, 14.80 L.
    """
    snapshot = snapshot_of(jobs_of((2.5, 2.5), (2, 2), deadline_s=6))
    host = Host(
        members=(0, 1),
        rollout_pins=((7,), (8,)),
        train_pins=((3,), (3,)),
        rates=(1, 1),
        period_s=6.0,
        starts_s=(((0.0, 2.5),), ((2.0, 4.5),)),
        fresh_rollout=20,
        fresh_train=20,
    )
    found = replanned(case_of(snapshot, [host], lasting_h=1.0, move_usd=(5, 6)))
    (group,) = found.groups
    assert (group.movers, group.nodes) == ((0,), (1, 1))
    assert group.rollout_pins == ((8,), (8,))
    assert found.value_usd == pytest.approx(PAIR_USD + 5)
    # below 5 / 14.80 h that is not worth it; the group comes back as it was
    kept = replanned(case_of(snapshot, [host], lasting_h=0.3, move_usd=(5, 6)))
    assert kept.groups[0].starts_s == host.starts_s
    assert kept.groups[0].rollout_pins == host.rollout_pins


def test_who_is_left_keeps_its_pins_at_a_period_not_longer() -> None:
    """Job 2 leaves its group for another; 0 and 1 stay, and 4 s are enough for the two."""
    snapshot = snapshot_of(jobs_of((2, 2, 2), (2, 2, 2), deadline_s=6), size=3)
    cost_host = Host(
        members=(0, 1, 2),
        rollout_pins=((4,), (4,), (5,)),
        train_pins=((4,), (4,), (5,)),
        rates=(1, 1, 1),
        period_s=6.0,
        starts_s=(((0.0, 2.0),), ((2.0, 4.0),), ((0.0, 2.0),)),
        fresh_rollout=6,
        fresh_train=6,
    )
    found = replanned(case_of(snapshot, [cost_host]))
    (group,) = found.groups
    assert (group.movers, group.host) == ((2,), 0)
    assert set(group.rollout_pins) == {(4,)}
    without = snapshot_of(jobs_of((2, 2), (2, 2), deadline_s=6))
    host = replace(
        cost_host,
        members=(0, 1),
        rollout_pins=((4,), (4,)),
        train_pins=((4,), (4,)),
        rates=(1, 1),
        starts_s=cost_host.starts_s[:2],
    )
    same = replanned(case_of(without, [host]))
    assert same.groups[0].period_s == 6.0  # untouched: identical


def test_no_jobs_and_no_hosts() -> None:
    empty = replanned(case_of(Snapshot.of([]), []))
    assert (empty.groups, empty.value_usd, empty.proved) == ((), 0.0, True)
    snapshot = three()
    first = replanned(case_of(snapshot, []))
    assert (first.moves, first.value_usd) == (0, pytest.approx(PAIR_USD))


# --- against enumeration ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_enumeration_agrees(seed: int) -> None:
    """The value lies between those over all groups and over connected ones (module docstring)."""
    case = random_case(random.Random(seed), 4)
    found = replanned(case)
    assert found.proved
    least = case.oracle()
    assert found.value_usd >= least - 1e-3
    if found.value_usd > least + 1e-3:
        assert found.value_usd <= case.oracle(connected=True) + 1e-3
    assert found.bound_usd is not None
    assert found.bound_usd <= found.value_usd + 1e-3


@pytest.mark.parametrize("seed", range(15))
def test_enumeration_agrees_with_rates(seed: int) -> None:
    case = random_case(random.Random(1000 + seed), 3, max_rate=2)
    found = replanned(case)
    assert found.value_usd == pytest.approx(case.oracle(), abs=1e-3)


# --- properties on larger cases ---------------------------------------------------------------


def running(
    n: int, seed: int, *, gangs: bool = False, size: int = 5, max_rate: int = 1
) -> tuple[Snapshot, list[Host]]:
    """Production jobs in groups of a good plan of other jobs, some of which left."""
    jobs = list(production(n_jobs=n + n // 3, seed=seed, concurrent=True, gangs=gangs))
    limits = Limits(max_group_size=size, max_rate=max_rate)
    before = Snapshot.of(jobs[:n], limits=limits)
    first = replan(
        before,
        [],
        lasting_h=1.0,
        move_usd=np.zeros(n),
        may_move=np.ones(n, dtype=np.bool_),
        node_limit=500,
        deadline=never(),
    )
    gone = set(range(0, n, 3))
    later = [j for j in range(n) if j not in gone]
    snapshot = Snapshot.of([jobs[j] for j in later] + jobs[n : n + 2], limits=limits)
    index = {old: new for new, old in enumerate(later)}
    hosts = []
    for group in first.groups:
        at = [i for i, j in enumerate(group.members) if j not in gone]
        if at:
            hosts.append(
                Host(
                    members=tuple(index[group.members[i]] for i in at),
                    rollout_pins=tuple(group.rollout_pins[i] for i in at),
                    train_pins=tuple(group.train_pins[i] for i in at),
                    rates=tuple(group.rates[i] for i in at),
                    period_s=group.period_s,
                    starts_s=tuple(group.starts_s[i] for i in at),
                    fresh_rollout=30,
                    fresh_train=30,
                )
            )
    return snapshot, hosts


@pytest.fixture(scope="module")
def fragmented() -> tuple[Snapshot, list[Host]]:
    return running(18, 9)


@pytest.fixture(scope="module")
def refuted() -> Case:
    """Several columns chosen turn out to be no groups, before the choice stands."""
    return case_of(*running(24, 0), lasting_h=8.0)


def test_nothing_moves_when_nothing_lasts(fragmented: tuple[Snapshot, list[Host]]) -> None:
    found = replanned(case_of(*fragmented, lasting_h=0.0))
    assert (found.moves, found.value_usd) == (0, 0.0)


def test_free_moves_reach_the_optimum_of_the_snapshot(
    fragmented: tuple[Snapshot, list[Host]],
) -> None:
    snapshot, hosts = fragmented
    found = replanned(case_of(snapshot, hosts, move_usd=0.0))
    best = set_partition.solve(snapshot, SolveOptions())
    assert found.proved
    assert found.value_usd == pytest.approx(best.usd_per_hour)


def test_value_falls_with_time_and_moves_allowed(
    fragmented: tuple[Snapshot, list[Host]],
) -> None:
    """Each value is at most that of keeping all, and a looser limit never costs more."""
    snapshot, hosts = fragmented
    values = []
    for most_moves in (0, 1, 2, 4, None):
        case = case_of(snapshot, hosts, lasting_h=8.0, most_moves=most_moves)
        found = replanned(case)
        assert found.value_usd <= case.kept_usd() + 1e-6
        assert found.proved
        values.append(found.value_usd)
    assert values == sorted(values, reverse=True)
    assert values[0] > values[-1]  # the case is not empty


def test_same_input_same_answer(fragmented: tuple[Snapshot, list[Host]]) -> None:
    case = case_of(*fragmented, lasting_h=8.0)
    first = replanned(case)
    assert replanned(case) == first
    # nor does what is remembered change its value
    known, memory = KnownGroups(), SetMemory()
    values = [replanned(case, known=known, memory=memory).value_usd for _ in range(2)]
    assert values == pytest.approx([first.value_usd] * 2)


@pytest.mark.parametrize(
    ("gangs", "size", "max_rate"),
    [(True, 4, 1), (False, 4, 2), (True, 3, 2)],
)
def test_gangs_and_rates(gangs: bool, size: int, max_rate: int) -> None:
    """Free moves reach the optimum of the snapshot; priced ones cost more, keeping all the most."""
    snapshot, hosts = running(9, 5, gangs=gangs, size=size, max_rate=max_rate)
    best = set_partition.solve(snapshot, SolveOptions()).usd_per_hour
    free = replanned(case_of(snapshot, hosts, lasting_h=8.0, move_usd=0.0))
    assert free.proved
    assert best is not None
    assert free.value_usd == pytest.approx(8 * best)
    case = case_of(snapshot, hosts, lasting_h=8.0)
    assert 8 * best - 1e-6 <= replanned(case).value_usd <= case.kept_usd()


def test_maximal_sets_stand_for_their_subsets() -> None:
    """One node of each kind and no limit of size: no group of the optimum has six jobs, so it is
    that of size 5, whose sets are all tabulated."""
    snapshot, hosts = running(12, 1)
    values = []
    for size in (0, 5):
        limits = Limits(max_group_size=size, max_rollout_nodes=1, max_train_nodes=1)
        few = [host for host in hosts if len(set(host.rollout_pins + host.train_pins)) <= 2]
        few = [
            host for host in few if len(set(host.rollout_pins)) == len(set(host.train_pins)) == 1
        ]
        found = replanned(case_of(replace(snapshot, limits=limits), few, lasting_h=8.0))
        assert found.proved
        assert all(len(group.members) <= 5 for group in found.groups)
        values.append(found.value_usd)
    assert values[0] == pytest.approx(values[1])


def one_node_each(jobs: Sequence[Any]) -> Snapshot:
    """No limit of size, one node of each kind: the sets are maximal ones."""
    return Snapshot.of(jobs, limits=Limits(max_rollout_nodes=1, max_train_nodes=1))


@pytest.mark.parametrize("node_limit", [0, None])
def test_newcomers_alone_are_no_maximal_set(node_limit: int | None) -> None:
    """All jobs are new and none of them alone is a set of the table."""
    snapshot = one_node_each(list(production(n_jobs=14, seed=0, concurrent=True)))
    case = case_of(snapshot, [])
    found = replanned(case, node_limit=node_limit)
    best = set_partition.solve(snapshot, SolveOptions()).usd_per_hour
    assert best is not None
    assert best - 1e-6 <= found.value_usd < case.kept_usd()
    if node_limit is None:
        assert found.proved
        assert found.value_usd == pytest.approx(best)


def test_a_host_is_kept_beside_sets_that_cover_its_jobs() -> None:
    """Only (0, 1), (0, 2), (1, 3) and (4, 5) fit one node, by two kinds of state; 0 and 1 run so.

    2 and 3 have one maximal set each, which cover 0 and 1 as well. One of the two stays in its
    set, the other's move is 60: more than the pair of nodes that (0, 1) beside them costs. So
    four pairs of nodes, and 4 or 5 moves to the other.
    """
    jobs = jobs_of(
        (1, 1, 1, 1, 20, 20),
        (1, 1, 1, 1, 20, 20),
        slo=(2.5,) * 4 + (1.5,) * 2,
        rollout_state_gb=(400, 800, 1400, 400, 400, 400),
        train_state_gb=(800, 400, 800, 1400, 400, 400),
    )
    snapshot = one_node_each(jobs)
    together = GroupCost(snapshot).decide((0, 1), (1, 1))
    assert together is not None
    hosts = [host_of(together), *alone(snapshot, 4, 5)]
    found = replanned(case_of(snapshot, hosts, move_usd=(60, 60, 1, 1, 1, 1)))
    assert found.proved
    assert found.value_usd == pytest.approx(4 * PAIR_USD + 1)


def spread() -> Host:
    """Jobs 0 to 2 on rollout node 7, 3 on node 8, each 2 s of 8 s."""
    return Host(
        members=(0, 1, 2, 3),
        rollout_pins=((7,), (7,), (7,), (8,)),
        train_pins=((3,),) * 4,
        rates=(1,) * 4,
        period_s=8.0,
        starts_s=(((0.0, 2.0),), ((2.0, 4.0),), ((4.0, 6.0),), ((6.0, 8.0),)),
        fresh_rollout=20,
        fresh_train=20,
    )


@pytest.mark.parametrize("node_limit", [0, None])
def test_two_moves_of_the_three_needed_are_none(node_limit: int | None) -> None:
    """Job 3 may not move; a node is saved by three moves, two thirds of which are allowed.

    So the LP takes two thirds of the column, and fixing it to 1 is infeasible.
    """
    snapshot = snapshot_of(jobs_of((2,) * 4, (2,) * 4, deadline_s=8))
    case = case_of(snapshot, [spread()], move_usd=1.0, fixed=(3,), most_moves=2)
    found = replanned(case, node_limit=node_limit)
    assert found.ending is (Ending.OPTIMAL if node_limit is None else Ending.NODES)
    assert found.value_usd == pytest.approx(2 * 14.80 + 42.24)
    assert replanned(replace(case, most_moves=3)).value_usd == pytest.approx(PAIR_USD + 3)


def test_a_price_beyond_all_others_is_a_job_that_may_not_move() -> None:
    """The price of job 0, 10^12 $, does not hide what the others save."""
    snapshot = three()
    found = replanned(case_of(snapshot, alone(snapshot, 0, 1, 2), move_usd=(1e12, 5, 5)))
    assert found.proved
    assert found.value_usd == pytest.approx(PAIR_USD + 10)


# --- limits and faults ------------------------------------------------------------------------


def test_no_time_keeps_everything(fragmented: tuple[Snapshot, list[Host]]) -> None:
    snapshot, hosts = fragmented
    case = case_of(snapshot, hosts)
    found = replan(
        snapshot,
        hosts,
        lasting_h=1.0,
        move_usd=case.move_usd,
        may_move=case.may_move,
        deadline=Deadline(lambda: 0.0, 0.0),
    )
    assert (found.ending, found.proved, found.moves) == (Ending.TIME, False, 0)
    assert found.value_usd == pytest.approx(case.kept_usd())


@pytest.mark.parametrize("ticks", [1, 3, 10, 20, 40, 80])
def test_time_may_pass_at_any_moment(fragmented: tuple[Snapshot, list[Host]], ticks: int) -> None:
    """A clock that goes on with every look at it: whenever that ends, the plan held is valid."""
    snapshot, hosts = fragmented
    case = case_of(snapshot, hosts, lasting_h=8.0)
    clock = count()
    found = replan(
        snapshot,
        hosts,
        lasting_h=8.0,
        move_usd=case.move_usd,
        may_move=case.may_move,
        deadline=Deadline(lambda: float(next(clock)), ticks),
    )
    assert problems(snapshot, hosts, found) == []
    assert found.value_usd <= case.kept_usd() + 1e-6
    assert found.proved == (found.ending is Ending.OPTIMAL)
    if found.bound_usd is not None:
        assert found.bound_usd <= replanned(case).value_usd + 1e-3


def test_no_nodes_of_search_still_hold_a_plan(fragmented: tuple[Snapshot, list[Host]]) -> None:
    case = case_of(*fragmented, lasting_h=8.0)
    found = replanned(case, node_limit=0)
    best = replanned(case)
    assert best.value_usd <= found.value_usd <= case.kept_usd()
    assert found.bound_usd is not None
    assert found.bound_usd <= best.value_usd + 1e-3


def test_sets_left_out_are_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """With effort limited and too many sets, groups of two only: valid, unproved, no bound."""
    snapshot, hosts = running(9, 5, gangs=True, size=0)
    case = case_of(snapshot, hosts, lasting_h=8.0)
    monkeypatch.setattr("models.replan.sets._SMALLER", (2,))
    monkeypatch.setattr("models.replan.sets._FEW_SETS", 15)
    memory = SetMemory()
    for _ in range(2):
        found = replanned(case, node_limit=3000, memory=memory)
        assert (found.ending, found.proved, found.bound_usd) == (Ending.NODES, False, None)
        assert found.value_usd <= case.kept_usd() + 1e-6
    # what is remembered of them is not taken for all sets
    assert replanned(case, memory=memory) == replanned(case)


def test_ctrl_c_keeps_what_is_held(
    fragmented: tuple[Snapshot, list[Host]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("models.replan.replanning.set_table", interrupted)
    found = replanned(case_of(*fragmented))
    assert (found.ending, found.moves) == (Ending.INTERRUPT, 0)


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize(
    "function",
    [
        "models.replan.replanning.Choice",
        "models.replan.replanning.extended",
        "models.replan.replanning.SetMemory.put",
        "models.replan.replanning._Search._hold",
        "models.replan.replanning._Search._refute",
        "models.replan.choice.HighsModel.run",
        "models.replan.choice.search_choices",
        "models.replan.choice.Choice.expand",
        "models.replan.choice.Choice._keep",
        "models.replan.sets._GrownPool",
        "models.replan.sets.SetTable.refute",
    ],
)
def test_ctrl_c_at_any_moment(
    refuted: Case, monkeypatch: pytest.MonkeyPatch, function: str, call: int
) -> None:
    """A valid plan comes back (checked by the helper), and the memory is as good as before.

    Only what is not called so often ends as without Ctrl-C.
    """
    best = replanned(refuted)
    assert best.counts["refuted"] > 1
    memory = SetMemory()
    owner, _, name = function.rpartition(".")
    true = attrgetter(name)(resolve_name(owner))
    calls = count(1)

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise KeyboardInterrupt
        return true(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(function, interrupted)
        found = replanned(refuted, memory=memory)
    if next(calls) > call:
        assert found.ending is Ending.INTERRUPT
    assert best.value_usd - 1e-6 <= found.value_usd <= refuted.kept_usd() + 1e-6
    again = replanned(refuted, memory=memory)
    assert (again.proved, again.value_usd) == (True, pytest.approx(best.value_usd))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lasting_h": -1.0}, "lasting_h >= 0"),
        ({"lasting_h": float("nan")}, "lasting_h >= 0"),
        ({"move_usd": np.zeros(2)}, "of 3 jobs"),
        ({"move_usd": np.array([1.0, -1.0, 0.0])}, "move_usd >= 0"),
        ({"most_moves": -1}, "most_moves >= 0"),
        ({"hosts": "twice"}, "disjoint hosts"),
    ],
)
def test_faults_are_named(change: dict[str, Any], words: str) -> None:
    snapshot = three()
    hosts = alone(snapshot, 0, 1)
    if change.pop("hosts", None):
        hosts = [*hosts, hosts[0]]
    given: dict[str, Any] = {
        "lasting_h": 1.0,
        "move_usd": np.zeros(3),
        "may_move": np.ones(3, dtype=np.bool_),
        "deadline": never(),
    }
    with pytest.raises(InputError, match=words):
        replan(snapshot, hosts, **(given | change))


def test_stays_are_read_from_pins() -> None:
    """The helper of these tests: a member on another node of its host has moved."""
    snapshot = three()
    hosts = alone(snapshot, 0, 1, 2)
    found = replanned(case_of(snapshot, hosts))
    assert sum(len(stays(group, hosts)) for group in found.groups) == 1
