"""The dry run as a library: proposals that can be made in their order, and early ends."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from builders import options_of
from command_line import PAIR_USD
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.plan import Limits
from models.bounds.volume import VOLUME
from planner.policies.repack import Repack
from planner.policies.repack_params import RepackParams
from planner.repack.document import repack_notes
from planner.repack.dry_run import Asker, Move, ProposedChange, ordered
from planner.repack.report import repack_report, snapshot_plan_of
from planner.repack.running_plan import RunningPlan, running_plan
from planner.replay.replaying import replay
from repack_cases import HOUR_S, RESTART_S, apart, pair, twin


@pytest.mark.parametrize("swallowed", [False, True])
def test_ctrl_c_in_the_search_keeps_what_was_found(
    monkeypatch: pytest.MonkeyPatch, swallowed: bool
) -> None:
    """Six twins, two at a time looked at: the second review is interrupted, or answers itself."""
    calls = 0
    review = Repack.review

    def ended(policy: Repack, now_s: float) -> Any:
        nonlocal calls
        calls += 1
        if calls == 2:
            with contextlib.suppress(KeyboardInterrupt if swallowed else ()):
                signal.raise_signal(signal.SIGINT)
        return review(policy, now_s)

    monkeypatch.setattr(Repack, "review", ended)
    plan = apart(*(twin(name, 3.0) for name in "abcdef"))
    report = repack_report(running_plan(plan), params=RepackParams(max_scope=2, scopes=2))
    assert calls == 2
    assert report.interrupted
    assert report.ended_early
    assert report.least.method == VOLUME  # no proof is begun once somebody wants to stop
    assert "Ctrl-C came before the proof" in repack_notes(report)[-1]
    assert report.moves
    assert report.usd_per_hour_after < report.usd_per_hour_before


def _fleet(seed: int, policy: str, max_rate: int, *, gangs: bool) -> RunningPlan:
    """Return what runs in a replay while its last job arrives."""
    jobs = production(n_jobs=24, seed=seed, gangs=gangs, concurrent=True)
    options = options_of(limits=Limits(max_rate=max_rate))
    plan = replay(jobs, policy, options, convention="wallclock").plan
    assert plan is not None
    return running_plan(plan, at_hours=jobs.arrival_s.max() / HOUR_S + 3.0)


@pytest.mark.parametrize(
    ("seed", "policy", "max_rate", "gangs", "params"),
    [
        (1, "solo", 1, False, RepackParams(max_scope=8, scopes=3)),
        (2, "weave", 1, False, RepackParams(max_scope=12, scopes=2, overlap_s=600.0)),
        (3, "weave", 2, False, RepackParams(max_scope=6, scopes=4, min_gain_usd=5.0)),
        (4, "solo", 1, True, RepackParams(max_scope=6, freeze=frozenset({"prod-0003"}))),
        (5, "weave", 1, True, RepackParams(oracle="remaining", max_scope=8)),
    ],
)
def test_proposals_can_be_made_in_their_order_and_each_earns_what_it_says(
    seed: int, policy: str, max_rate: int, gangs: bool, params: RepackParams
) -> None:
    """After each one: every group it begins with is there, and the fleet is valid and cheaper."""
    running = _fleet(seed, policy, max_rate, gangs=gangs)
    report = repack_report(running, params=params, time_limit_s=1.0)
    groups = {state.number: state for state in running.groups}
    usd = report.usd_per_hour_before
    moved: list[str] = []
    for number, change in enumerate(report.changes, start=1):
        assert all(needed < number for needed in change.needs)
        for state in change.before:
            assert groups.pop(state.number) == state
        groups |= {state.number: state for state in change.after}
        usd -= change.saving_usd_per_hour
        plan = snapshot_plan_of(  # checks it
            running, list(groups.values()), {n: f"g{n}" for n in groups}
        )
        assert plan.usd_total == pytest.approx(usd)
        moved += [move.job_id for move in change.moves]
        cost = sum(
            running.plan.cluster.usd_per_hour(job.rollout_nodes, job.train_nodes)
            * (job.restart_s + params.overlap_s) / HOUR_S
            for job in (running.ledger[move.job_id].job for move in change.moves)
        )  # fmt: skip
        assert change.cost_usd == pytest.approx(cost)
        gain = change.saving_usd_per_hour * change.lasting_h - cost
        assert change.gain_usd == pytest.approx(gain)
        assert gain >= params.min_gain_usd * len(change.moves) - 1e-6
    assert report.usd_per_hour_after == pytest.approx(usd)
    assert len(set(moved)) == len(moved)  # nobody moves twice
    assert not set(moved) & set(report.immovable)
    bound = report.least.bound_usd_per_hour
    assert bound is not None
    assert bound <= usd * (1 + 1e-9) <= report.usd_per_hour_before * (1 + 1e-9)
    assert report.changes  # so there was something to see


def _step(before: Sequence[int], after: Sequence[int], usd: float, moves: int = 1) -> Any:
    """Return a change from groups to groups that earns so much, with as many free moves."""
    running = running_plan(apart(*(twin(f"j{i}") for i in range(6))))
    states = {state.number: state for state in running.groups}
    move = Move(
        job_id="j0", from_group="g1", to_group="g2", pins_before=((0,), (0,)),
        pins_after=((0,), (0,)), restart_s=0.0, restart_usd=0.0, overlap_usd=0.0, credit_s=0.0,
        payback_s=None,
    )  # fmt: skip
    return ProposedChange(
        before=tuple(states[i] for i in before), after=tuple(states[i] for i in after),
        moves=(move,) * moves, usd_per_hour_before=usd, usd_per_hour_after=0.0, lasting_h=1.0,
        least_gain_usd=0.0,
    )  # fmt: skip


def test_the_dearest_comes_first_but_after_what_it_needs() -> None:
    # the second begins with group 1 as the first has left it; the fourth with 5 as the third,
    # which moves nobody, and so also needs the first, whose group 2 the third has changed
    steps = [
        _step([1, 2], [1, 2], 10.0),
        _step([1, 3], [1], 30.0),
        _step([2, 5], [5], 0.0, moves=0),
        _step([5, 4], [5], 20.0),
        _step([6], [6], 15.0),
    ]
    found = ordered(steps)
    assert [change.gain_usd for change in found] == [15.0, 10.0, 30.0, 20.0]
    assert [change.needs for change in found] == [(), (), (2,), (2,)]


def test_progress_ends_where_each_part_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar that stays short of its end looks as if something hung."""
    seen: list[tuple[str, int, int]] = []
    running = running_plan(apart(*(twin(name, 3.0) for name in "abcdef")))
    params = RepackParams(max_scope=2, scopes=2)
    report = repack_report(running, params=params, progress=lambda *step: seen.append(step))
    assert report.moves
    reviews = [step for step in seen if step[0] == "search"]
    most = reviews[0][2]
    assert most > 1  # two jobs at a time of six
    assert reviews == [("search", done, most) for done in range(most + 1)]
    assert seen[len(reviews) :] == [("least price", 0, 1), ("least price", 1, 1)]


def test_the_search_for_the_nearest_change_has_its_progress() -> None:
    """A restart of 360 s costs a tenth of an hour: 0.03 h pay after two doublings, not before."""
    seen: list[tuple[str, int, int]] = []
    report = repack_report(
        running_plan(pair(10.0)),
        params=RepackParams(lasting_h=0.03),
        progress=lambda *step: seen.append(step),
    )
    assert not report.changes
    assert report.nearest is not None
    assert [step[1] for step in seen if step[0] == "nearest"] == [0, 1, 2]


def test_nothing_is_looked_for_where_no_job_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        pytest.fail("the search for the nearest change began")

    monkeypatch.setattr(Asker, "nearest", never)
    report = repack_report(running_plan(pair()), params=RepackParams(freeze=frozenset("ab")))
    assert report.usd_per_hour_before > (report.least.bound_usd_per_hour or 0.0)
    assert set(report.immovable) == {"a", "b"}
    assert report.nearest is None


def test_no_time_no_search() -> None:
    report = repack_report(running_plan(pair()), time_limit_s=0.0)
    assert report.stopped
    assert report.changes == ()
    assert report.usd_per_hour_after == report.usd_per_hour_before


def test_the_report_is_the_same_without_the_command() -> None:
    report = repack_report(running_plan(pair()))
    assert report.usd_per_hour_after == pytest.approx(PAIR_USD)
    assert [move.restart_s for move in report.moves] == [RESTART_S]
    assert report.plan.cluster == DEFAULT_CLUSTER
    assert report.nodes_after == {"rollout": 1, "train": 1}
