"""When ``repack`` moves a job, to the second and the cent; fleets of a few twins.

Two twins alone hold two pairs of nodes. Together one pair is enough, for one move: it saves
``PAIR_USD`` an hour and costs 360 s of a pair, ``PAIR_USD / 10``. So it pays when the saving is
taken to last a tenth of an hour.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from math import exp, inf, nextafter
from typing import Any

import pytest

import models.replan.replanning
from builders import PAIR_USD, job_of, options_of, table_of
from gap_cases import HOUR
from instances.errors import InfeasibleError, InputError, UnsupportedError
from instances.jobs import Job
from instances.plan import Limits
from models.bounds.covering_lp import Ending
from models.replan.replanning import Replan
from moving_cases import group_of
from planner.placement.group_state import GroupState
from planner.policies.policy import Change, NodesToHold
from planner.policies.repack import Repack
from planner.replay.replaying import replay
from repack_cases import MOVE_USD, RESTART_S, twin
from repack_policy_cases import (
    NOW_S,
    answers,
    fleet,
    homes,
    new_group,
    repack_of,
    watched,
)

TENTH_H = 0.1
LONG_S = 20 * HOUR


def pair(*jobs: Job, **more: Any) -> Repack:
    """Return a fleet of two twins, each alone."""
    a, b = jobs or (twin("a", duration_s=LONG_S), twin("b", duration_s=LONG_S))
    return fleet([a], [b], **more)


def merged(policy: Repack, now_s: float = NOW_S) -> bool:
    """Review a fleet of two, and return whether they were put together."""
    change = policy.review(now_s)
    assert len(change.moved) == policy.ledger.moves == 2 - len(policy.groups)
    return len(policy.groups) == 1


# --- what a move has to earn ----------------------------------------------------------------------


def test_a_move_costs_its_restart_the_overlap_and_the_gain() -> None:
    """Its own nodes, for 360 s and for 180 s: 2 rollout nodes and a train node."""
    policy = repack_of(overlap_s=180.0, min_gain_usd=7.0)
    price = policy.move_price(twin("w", rollout_nodes=2))
    own = PAIR_USD + 8 * 1.85
    assert price.restart_usd == pytest.approx(own / 10)
    assert price.overlap_usd == pytest.approx(own / 20)
    assert price.gain_usd == 7
    assert price.usd == pytest.approx(own * 0.15 + 7)
    assert pytest.approx(PAIR_USD / 10) == MOVE_USD


@pytest.mark.parametrize(("lasting_h", "pays"), [(0.0999, False), (0.1001, True)])
def test_a_merge_pays_when_its_saving_lasts_as_long_as_the_restart(
    lasting_h: float, pays: bool
) -> None:
    assert merged(pair(lasting_h=lasting_h)) is pays


def test_a_merge_puts_two_on_the_nodes_of_one() -> None:
    policy = pair(lasting_h=1.0)
    before = dict(policy.groups)
    change = policy.review(NOW_S)
    (state,) = change.groups
    (ended,) = change.ended
    (moved,) = change.moved
    assert change == Change((state,), (ended,), None, (moved,))
    stays = before[state.number].jobs[0].job_id
    assert {stays, moved} == {"a", "b"}
    assert {ended, state.number} == {1, 2}
    assert (state.rollout_nodes, state.train_nodes, state.period_s) == ((0,), (0,), 20)
    assert policy.ledger[moved].paused_until_s == NOW_S + RESTART_S
    assert policy.ledger[stays].moved_s == []


@pytest.mark.parametrize(("slack", "pays"), [(-1e-4, True), (1e-4, False)])
def test_the_least_gain_comes_on_top(slack: float, pays: bool) -> None:
    """In an hour the merge earns PAIR_USD - MOVE_USD."""
    least = (PAIR_USD - MOVE_USD) * (1 + slack)
    assert merged(pair(lasting_h=1.0, min_gain_usd=least)) is pays


@pytest.mark.parametrize(("lasting_h", "pays"), [(0.1499, False), (0.1501, True)])
def test_an_overlap_is_paid_for_once(lasting_h: float, pays: bool) -> None:
    """180 s of the old nodes and 360 s of restart: 0.15 h of a pair."""
    policy = pair(lasting_h=lasting_h, overlap_s=180.0)
    old = dict(policy.groups)
    change = policy.review(NOW_S)
    if not pays:
        assert change == Change()
        return
    (ended,) = change.ended
    assert change.held == (NodesToHold(old[ended].group_id, 180.0, 1, 1),)


def test_an_overlap_longer_than_savings_last_keeps_no_newcomer_out() -> None:
    """It joins a group that runs, which costs no move; nobody else moves for an hour's overlap."""
    policy = pair(lasting_h=0.5, overlap_s=HOUR)
    change = policy.arrive(twin("c"), NOW_S)
    assert (change.admission, change.moved) == ("direct", ())
    assert [len(ids) for ids in homes(policy)] in ([1, 2], [2, 1])


def test_old_nodes_are_held_only_where_nobody_stays() -> None:
    """b leaves a's nodes for c: they are still a's, so nothing is held."""
    a, b, c = (twin(name, slo=10.0) for name in "abc")
    policy = fleet([a, b], [c], lasting_h=1.0, overlap_s=60.0)
    old = dict(policy.groups)
    ledger = policy.ledger
    now = {1: GroupState.alone(a, 1), 2: group_of([c, b], 2)}
    policy.groups = {n: state for n, state in now.items() if state is not None}
    ledger.move("b", NOW_S)
    assert policy._overlap(old, frozenset({"b"})) == ()
    assert policy._overlap(old, frozenset({"a", "b"})) == ()  # b left, a elsewhere: node 0 stays
    del policy.groups[1]
    assert policy._overlap(old, frozenset({"a", "b"})) == (NodesToHold("g1", 60.0, 1, 1),)


def test_without_a_saving_nobody_moves_though_it_costs_nothing() -> None:
    """Three twins of D = 25 need two pairs however they are put: 3 x 10 > 25."""
    jobs = [twin(name, slo=1.25, restart_s=0.0) for name in "abc"]
    policy = fleet(jobs[:2], jobs[2:], lasting_h=100.0)
    assert policy.review(NOW_S) == Change()


# --- how long a saving lasts ----------------------------------------------------------------------


@pytest.mark.parametrize(("slack", "pays"), [(-1e-4, True), (1e-4, False)])
def test_residual_life_until_the_first_of_both_leaves(slack: float, pays: bool) -> None:
    """Nothing was seen: at age x both have 24 h - x left, so the first leaves after half of it."""
    lasting_h = (24 - NOW_S / HOUR) / 2
    least = (PAIR_USD * lasting_h - MOVE_USD) * (1 + slack)
    policy = pair(min_gain_usd=least)
    assert policy.search_h(NOW_S) == pytest.approx(lasting_h)
    assert merged(policy) is pays


@pytest.mark.parametrize(("waited_s", "pays"), [(359.9, False), (360.0, True)])
def test_break_even_waits_until_it_would_have_paid(waited_s: float, pays: bool) -> None:
    """A tenth of an hour after the groups changed last."""
    assert merged(pair(rule="break-even", since_s=NOW_S - waited_s)) is pays


def test_break_even_waits_from_the_last_change_of_any_group_concerned() -> None:
    policy = pair(rule="break-even")
    policy._changed_s[2] = NOW_S - 100
    assert not merged(policy)
    assert merged(policy, nextafter(NOW_S + 260, NOW_S + 261))


def test_break_even_is_not_put_off_by_what_happens_elsewhere() -> None:
    """A job that can share with nobody (D = T = 1000) comes and goes meanwhile."""
    policy = pair(rule="break-even", since_s=NOW_S)
    alone = job_of("x", 500, 500, 1.0)
    assert policy.arrive(alone, NOW_S + 200).admission == "isolated"
    assert policy.depart(alone, NOW_S + 300).moved == ()
    assert policy._changed_s == {1: NOW_S, 2: NOW_S}
    assert not merged(policy, NOW_S + 359)
    assert merged(policy, NOW_S + 360)


def test_break_even_counts_from_a_departure() -> None:
    """c leaves a at NOW_S: they wait from then, though b has been alone for long."""
    a, b, c = (twin(name, slo=1.25, duration_s=LONG_S) for name in "abc")
    policy = fleet([a, c], [b], rule="break-even")
    # C = T here: a fifth of 10,000 s is gained, enough for a restart
    assert policy.depart(c, NOW_S).moved == ()
    assert not merged(policy, NOW_S + 359)
    assert merged(policy, NOW_S + 360)


def test_break_even_moves_nobody_for_a_newcomer() -> None:
    policy = repacking(rule="break-even")
    change = policy.arrive(large(), NOW_S)
    assert (change.admission, change.moved) == ("isolated", ())


def test_reviews_come_every_hour_with_break_even_or_as_asked() -> None:
    assert repack_of().review_s is None
    assert repack_of(rule="break-even").review_s == 3600
    assert repack_of(rule="break-even", review_h=0.5).review_s == 1800
    assert repack_of(review_h=2.0).review_s == 7200


@pytest.mark.parametrize(("slack", "pays"), [(-1e-4, True), (1e-4, False)])
def test_the_oracle_knows_when_a_group_would_have_ended(slack: float, pays: bool) -> None:
    """b leaves 3 h from now, so that its nodes would have been free by themselves then."""
    a = twin("a", duration_s=LONG_S)
    b = twin("b", duration_s=NOW_S + 3 * HOUR)
    least = (PAIR_USD * 3 - MOVE_USD) * (1 + slack)
    policy = pair(a, b, oracle="remaining", min_gain_usd=least)
    # both planned together: half the mean of what is left, for the search alone
    mean_h = ((LONG_S - NOW_S) / HOUR + 3) / 2
    assert policy.search_h(NOW_S) == pytest.approx(mean_h / 2)
    assert mean_h / 2 > 3
    assert merged(policy) is pays


def test_the_oracle_looks_at_whole_groups() -> None:
    """a and c end after 5 h, when c does; b alone after 9 h; a newcomer after 4 h."""
    a, b, c = (
        twin(name, slo=10.0, duration_s=NOW_S + hours * HOUR)
        for name, hours in (("a", 2), ("b", 9), ("c", 5))
    )
    policy = fleet([a, c], [b], oracle="remaining")
    seen: list[float] = []

    def noted(proposal: Any, now_s: float) -> float:
        seen.append(Repack.lasting_h(policy, proposal, now_s))
        return seen[-1]

    policy.lasting_h = noted  # type: ignore[method-assign]
    assert policy.review(NOW_S).moved == ("b",)
    assert seen == pytest.approx([5.0])


# --- who may move ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("now_s", "pays"), [(RESTART_S - 0.1, False), (RESTART_S, True)])
def test_the_slo_comes_first(now_s: float, pays: bool) -> None:
    """With D = 2 T a second alone earns a second; a restart needs 360 of them."""
    assert merged(pair(lasting_h=1000.0), now_s) is pays


@pytest.mark.parametrize(("freeze", "moved"), [("a", ("b",)), ("b", ("a",)), ("ab", ())])
def test_frozen_jobs_stay(freeze: str, moved: tuple[str, ...]) -> None:
    policy = pair(lasting_h=10.0, freeze=frozenset(freeze))
    assert policy.review(NOW_S).moved == moved


def test_a_job_that_moved_today_stays() -> None:
    policy = pair(lasting_h=10.0, max_moves_per_job_day=1)
    for job_id in "ab":
        policy.ledger[job_id].moved_s.append(NOW_S - 24 * HOUR + 1)
    assert not merged(policy)
    assert merged(policy, NOW_S + 1)


def test_no_moves_a_day_means_none() -> None:
    assert not merged(pair(lasting_h=10.0, max_moves_per_job_day=0))


@pytest.mark.parametrize(
    ("moves_per_job", "moves"), [(0.0, 0), (0.16, 0), (1 / 6, 1), (0.49, 2), (0.5, 3), (5.0, 3)]
)
def test_no_more_moves_than_allowed_by_now(moves_per_job: float, moves: int) -> None:
    """Six twins of D = 20 to 25, alone: three merges, one move each."""
    jobs = [twin(name, slo=1.25) for name in "abcdef"]
    policy = fleet(*([job] for job in jobs), lasting_h=10.0, moves_per_job=moves_per_job)
    assert len(policy.review(NOW_S).moved) == moves
    assert policy.review(NOW_S + 1).moved == ()


def test_moves_get_dearer_while_too_many_are_made_and_cheaper_again() -> None:
    """One move per job allowed: after three moves for one arrival its price is exp(0.1 x 2)."""
    policy = repack_of(moves_per_job=1.0, overlap_s=360.0)

    def price() -> float:
        return policy.move_price(twin("z")).usd / (2 * MOVE_USD)

    assert price() == 1
    policy.arrive(twin("a"), 0.0)
    assert price() == 1  # nobody moved; never below its cost
    policy.ledger.moves = 3
    policy.arrive(twin("b"), 0.0)
    assert price() == pytest.approx(exp(0.2))
    policy.arrive(twin("c"), 0.0)
    assert price() == pytest.approx(exp(0.1))
    policy.ledger.moves = 4
    policy.arrive(twin("d"), 0.0)
    assert price() == pytest.approx(exp(0.1))


def test_without_a_limit_the_price_of_a_move_is_its_cost() -> None:
    policy = repack_of(moves_per_job=inf)
    policy.arrive(twin("a"), 0.0)
    policy.ledger.moves = 300
    policy.arrive(twin("b"), 0.0)
    assert policy.move_price(twin("z")).usd == pytest.approx(MOVE_USD)


# --- newcomers ------------------------------------------------------------------------------------


def sized(job_id: str, seconds: float, **more: Any) -> Job:
    """Return a job with both phases so long, and D = 100 s."""
    return job_of(
        job_id, seconds, seconds, 50 / seconds, **{"duration_s": LONG_S, "restart_s": 360.0, **more}
    )


def large(**more: Any) -> Job:
    """Return a newcomer of 45 s; beside two of 30 s it is 5 s too many for D = 100."""
    return sized("n", 45, **more)


def repacking(**params: Any) -> Repack:
    """Return two pairs with two jobs of 30 s each: one of them may hold three, the other n."""
    a, b, c, d = (sized(name, 30) for name in "abcd")
    return fleet([a, b], [c, d], **params)


def test_admission_by_what_it_takes() -> None:
    policy = repack_of(lasting_h=1.0)
    assert policy.arrive(twin("a"), 0.0).admission == "isolated"
    assert policy.arrive(twin("b"), 0.0).admission == "direct"
    # two rollouts of 15 s and D = 25: a node of its own for its rollouts, room beside trains of 10
    tight = job_of("c", 18, 2, 1.25)
    assert policy.arrive(tight, 0.0).admission == "rollout_scaled"
    assert len(policy.groups) == 1


def test_a_newcomer_for_whom_another_moves_is_repacked() -> None:
    """One of 30 s goes to the other pair, and n takes its place: a pair for one move."""
    change = repacking(lasting_h=0.11).arrive(large(), NOW_S)
    assert (change.admission, len(change.moved)) == ("repacked", 1)
    assert "n" not in change.moved


def test_a_newcomer_for_whom_no_move_pays_is_placed_without() -> None:
    policy = repacking(lasting_h=0.09)
    change = policy.arrive(large(), NOW_S)
    assert (change.admission, change.moved) == ("isolated", ())
    assert homes(policy) == [["a", "b"], ["c", "d"], ["n"]]


def test_a_saving_for_a_newcomer_lasts_as_long_as_it_stays() -> None:
    """The oracle: n stays 0.09 h, or 0.11 h; the others for long."""
    stays = [large(duration_s=hours * HOUR, arrival_s=NOW_S) for hours in (0.09, 0.11)]
    found = [repacking(oracle="remaining").arrive(job, NOW_S).admission for job in stays]
    assert found == ["isolated", "repacked"]


def test_jobs_that_are_none_of_its_are_refused_by_name() -> None:
    policy = repack_of()
    policy.arrive(twin("a"), 0.0)
    with pytest.raises(InputError, match="'a' is already placed"):
        policy.arrive(twin("a"), 1.0)
    with pytest.raises(UnsupportedError, match="'s' has mode 'async'"):
        policy.arrive(twin("s", mode="async"), 1.0)
    with pytest.raises(InfeasibleError, match="'fat'"):
        policy.arrive(twin("fat", train_state_gb=1e6), 1.0)
    assert homes(policy) == [["a"]]
    assert policy.ledger.arrived == 1


# --- the answer of the search, part by part -------------------------------------------------------


def told(*groups: Any, moves: int = 0, ending: Ending = Ending.OPTIMAL) -> Replan:
    return Replan(groups=groups, value_usd=0.0, moves=moves, ending=ending, proved=True)


def test_a_refused_newcomer_and_a_new_group_get_two_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """a and b go to new nodes together, which is taken; c does so with n, which is refused.

    Then n is alone on new nodes: in both plans of the search that is the first new group.
    """
    jobs = {name: twin(name, slo=4.0, duration_s=LONG_S) for name in "abcn"}
    policy = fleet([jobs["a"]], [jobs["b"]], [jobs["c"]], rule="break-even")

    def group(names: str, host: int | None, movers: str = "") -> Any:
        state = group_of([jobs[name] for name in names], 9)
        assert state is not None
        return new_group(state, "abcn", host, movers)

    best = told(group("ab", None, "ab"), group("cn", None, "c"), moves=3)
    still = told(group("a", 0), group("b", 1), group("c", 2), group("n", None))
    answers(monkeypatch, lambda most: still if most == 0 else best)
    change = policy.arrive(jobs["n"], NOW_S)
    assert (set(change.moved), change.admission) == ({"a", "b"}, "isolated")
    assert homes(policy) == [["c"], ["a", "b"], ["n"]]
    assert change.ended == (1, 2)
    assert {state.number for state in change.groups} == {4, 5}
    assert policy._home == {"a": 4, "b": 4, "c": 3, "n": 5}
    answers(
        monkeypatch, lambda most: told(*(group(names, i) for i, names in enumerate(("c", "ab"))))
    )
    policy.depart(jobs["n"], NOW_S + 1)
    assert homes(policy) == [["c"], ["a", "b"]]


def test_a_newcomer_is_never_placed_dearer_than_without_the_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search cut short leaves it alone while a and b merge; without moves it joins c."""
    jobs = {name: twin(name, slo=4.0, duration_s=LONG_S) for name in "abcn"}
    policy = fleet([jobs["a"]], [jobs["b"]], [jobs["c"]], lasting_h=1.0)

    def group(names: str, host: int | None, movers: str = "") -> Any:
        state = group_of([jobs[name] for name in names], 9)
        assert state is not None
        return new_group(state, "abcn", host, movers)

    best = told(group("ab", 0, "b"), group("c", 2), group("n", None), moves=1)
    still = told(group("a", 0), group("b", 1), group("cn", 2))
    answers(monkeypatch, lambda most: still if most == 0 else best)
    change = policy.arrive(jobs["n"], NOW_S)
    assert (change.moved, change.admission) == (("b",), "direct")
    assert homes(policy) == [["a", "b"], ["c", "n"]]


def test_new_starts_alone_are_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (twin(name, slo=4.0) for name in "ab")
    policy = fleet([a, b], lasting_h=1.0)
    state = policy.groups[1]
    slower = replace(state, period_s=30.0)
    answers(monkeypatch, lambda _: told(new_group(slower, "ab", 0)))
    assert policy.review(NOW_S) == Change()
    assert policy.groups[1] is state
    assert policy._changed_s[1] == 0.0


def test_the_search_is_asked_again_when_it_takes_too_many_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = watched(monkeypatch)
    jobs = [twin(name, slo=1.25) for name in "abcdef"]
    policy = fleet(*([job] for job in jobs), lasting_h=10.0, moves_per_job=1 / 3)
    policy.review(NOW_S)
    assert [found.moves for found in seen] == [3, 2]
    policy.review(NOW_S + 1)
    assert [found.moves for found in seen[2:]] == [0]
    assert (policy.searches, policy.searches_cut_short) == (3, 0)


# --- parts, and moments of no length --------------------------------------------------------------


def test_nobody_moves_twice_at_a_moment_though_restarts_take_no_time() -> None:
    """a has moved; whatever a later part of the fleet makes of it, a stays."""
    policy = pair(twin("a", restart_s=0.0), twin("b", restart_s=0.0), lasting_h=1.0)
    (moved,) = policy.review(NOW_S).moved
    assert not policy.may_move(moved, NOW_S)
    assert policy.may_move(moved, NOW_S + 1)
    assert policy.may_move({"a": "b", "b": "a"}[moved], NOW_S)


def test_a_newcomer_does_not_move_at_the_moment_it_comes() -> None:
    """Nobody has seen it anywhere yet, in later parts of the fleet and later events of now."""
    policy = pair(lasting_h=1.0)
    policy.arrive(twin("c", restart_s=0.0, arrival_s=NOW_S), NOW_S)
    assert not policy.may_move("c", NOW_S)
    assert policy.may_move("c", NOW_S + 1)


def test_a_large_fleet_is_planned_in_parts_of_the_size_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups of four twins at most (D = 40 holds four), eight jobs at once."""
    seen = watched(monkeypatch)
    jobs = [twin(f"j{i:02}", duration_s=LONG_S) for i in range(24)]
    policy = fleet(*(jobs[i : i + 3] for i in range(0, 24, 3)), lasting_h=1.0, max_scope=8)
    policy.arrive(twin("n"), NOW_S)
    policy.depart(jobs[0], NOW_S + 1)
    policy.review(NOW_S + 2)
    sizes = [sum(len(group.members) for group in found.groups) for found in seen]
    assert max(sizes) <= 8
    assert len(sizes) >= 12


def test_a_newcomer_is_planned_with_the_groups_it_fits_most_tightly() -> None:
    """Trains take 30 of 200 s with group 1 and 20 of 25 s with group 2; D = 195 bars the third."""
    a, b, c = twin("a", slo=10.0), twin("b", slo=10.0), twin("c", slo=1.25)
    full = job_of("f", 5, 190, 1.0)
    policy = fleet([a, b], [c], [full], max_scope=3)
    n = twin("n", slo=10.0)
    assert policy._fitting(n) == [2, 1]
    assert policy._inviting(n) == [2]
    assert fleet([a, b], [c], max_scope=4)._inviting(n) == []  # all are planned together
    policy.options = replace(policy.options, limits=Limits(max_group_size=2))
    assert policy._fitting(n) == [2]
    policy.options = replace(policy.options, limits=Limits(max_group_size=0))
    assert policy._fitting(n) == [2, 1]


def test_groups_invited_with_a_newcomer_leave_room_for_it() -> None:
    """Eight at once: two groups by a quarter of eight, of four jobs each; one has to do."""
    jobs = [twin(f"j{i}", slo=3.0) for i in range(8)]
    policy = fleet(jobs[:4], jobs[4:], max_scope=8)
    assert policy._fitting(twin("n", slo=3.0)) == [1, 2]
    assert policy._inviting(twin("n", slo=3.0)) == [1]


def test_gangs_and_rates_are_planned_fewer_at_once() -> None:
    assert repack_of().most_together() == 41
    assert repack_of(max_scope=7).most_together() == 7
    assert fleet([twin("w")]).most_together() == 41
    policy = repack_of()
    policy.arrive(twin("w", train_nodes=2), 0.0)
    assert policy.most_together() == 20
    options = options_of(limits=replace(options_of().limits, max_rate=2))
    assert Repack(options).most_together() == 10


def test_numbers_and_nodes_are_never_used_twice() -> None:
    """After the last has left a new group has a new number."""
    policy = repack_of()
    for i, name in enumerate("abc", start=1):
        assert policy.arrive(twin(name), 0.0).groups[0].number == i
        assert policy.depart(twin(name), 1.0).ended == (i,)
    assert (policy.groups, policy._home, policy._fresh, policy._changed_s) == ({}, {}, {}, {})


# --- Ctrl-C and clocks ----------------------------------------------------------------------------


def test_ctrl_c_in_a_search_ends_the_event_early_but_places_the_newcomer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = models.replan.replanning._Search.run
    searches: list[int] = []

    def pressed(search: Any, memory: Any) -> None:
        searches.append(len(search.snapshot))
        if len(searches) == 1:
            raise KeyboardInterrupt
        real(search, memory)

    monkeypatch.setattr(models.replan.replanning._Search, "run", pressed)
    jobs = [twin(f"j{i:02}", duration_s=LONG_S) for i in range(12)]
    policy = fleet(*([job] for job in jobs), lasting_h=1.0, max_scope=4)
    change = policy.arrive(twin("n"), NOW_S)
    assert policy.interrupted
    assert len(searches) == 1  # of four parts
    assert (change.admission, change.moved) == ("isolated", ())
    assert policy._home["n"] == 13


def test_ctrl_c_in_a_search_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes it for its own end; the replay does not go on."""
    real = models.replan.replanning._Search.run
    searches = 0

    def pressed(search: Any, memory: Any) -> None:
        nonlocal searches
        searches += 1
        if searches == 3:
            signal.raise_signal(signal.SIGINT)
        real(search, memory)

    monkeypatch.setattr(models.replan.replanning._Search, "run", pressed)
    jobs = table_of(*(twin(name, arrival_s=i * HOUR) for i, name in enumerate("abcdef")))
    with pytest.raises(KeyboardInterrupt):
        replay(jobs, "repack", options_of(), convention="work")
    assert searches == 3


def test_decisions_are_timed_when_a_clock_is_given() -> None:
    ticks = iter(range(100))
    policy = Repack(options_of(clock=lambda: float(next(ticks))))
    a = twin("a")
    policy.arrive(a, 0.0)
    policy.review(1.0)
    policy.depart(a, 2.0)
    assert policy.decision_s == [1.0, 1.0, 1.0]
    silent = repack_of()
    silent.arrive(a, 0.0)
    assert silent.decision_s == []


def test_what_is_known_of_departed_jobs_is_forgotten_now_and_then() -> None:
    policy = repack_of(lasting_h=1.0)
    wide = {"train_nodes": 2, "slo": 4.0}
    jobs = [twin(f"j{i}", **wide) for i in range(30)]
    policy.arrive(twin("stays", **wide), 0.0)
    for i, job in enumerate(jobs):
        policy.arrive(job, 10.0 * i)
        policy.depart(job, 10.0 * i + 5)
    facts = {name for ids in policy._known.least for name in ids}
    facts |= {name for ids, _ in policy._known.verdicts for name in ids}
    assert facts <= {"stays", *(job.job_id for job in jobs[24:])}  # 50 events are 25 jobs
