"""The loss of one node of a fixed fleet: by hand, and against exact feasibility."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from builders import PAIR_USD, job_of, options_of, random_job, table_of
from instances.errors import InputError, UnsupportedError
from instances.jobs import JobTable
from instances.plan import Fleet, Limits
from instances.restarts import RESTART_S
from models.exact import methods
from models.exact.methods import solve
from models.problem.options import SolveOptions
from models.problem.result import StoppedBy
from models.problem.snapshot import FleetCaps, Snapshot
from planner.policies.replay_result import ReplayResult
from planner.replay.replaying import replay
from planner.size import loss_tests
from planner.size.loss_states import lost_jobs, states_of
from planner.size.node_loss import HOW, NodeLossReport, n_minus_1_fleet, survives_loss

#: Two jobs that overlap from 40 to 100 s and cannot share: D = T leaves no time for a switch.
TIGHT = {"duration_s": 100.0, "slo": 1.0, "rollout_switch_s": 1.0, "train_switch_s": 1.0}
APART = table_of(job_of("a", 5, 5, **TIGHT), job_of("b", 5, 5, arrival_s=40.0, **TIGHT))

#: "x" and "a" saturate a pair of nodes (load 10, cycle 10), so "b" opens another; "x" leaves at
#: 50 s, "a" at 100, "b" at 200. D = 20 would bear all three on one pair (load 15).
SPLIT = (
    job_of("x", 5, 5, 2, duration_s=50.0),
    job_of("a", 5, 5, 2, arrival_s=1.0, duration_s=99.0),
    job_of("b", 5, 5, 2, arrival_s=2.0, duration_s=198.0),
)


def run(jobs: JobTable, fleet: Fleet, policy: str = "weave") -> ReplayResult:
    return replay(jobs, policy, options_of(fleet=fleet), convention="wallclock")


def hows(report: NodeLossReport, pool: str) -> list[tuple[float, str]]:
    return [(loss.at_s, loss.how) for loss in report.losses if loss.pool == pool]


def test_two_jobs_that_just_fit_two_nodes():
    report = survives_loss(run(APART, Fleet(2, 2)), options_of())
    assert report.states == 3  # a, a and b, b
    for pool in ("rollout", "train"):
        assert hows(report, pool) == [(0.0, "spare"), (40.0, "none"), (100.0, "spare")]
        assert report.hours_failed(pool) == pytest.approx(60 / 3600)
        assert report.counts(pool) == {**dict.fromkeys(HOW, 0), "spare": 2, "none": 1}
    assert not report.survived
    assert all(loss.proved and loss.jobs_moved == 0 for loss in report.failed)


def test_with_a_spare_node_of_each_pool_every_loss_is_survived():
    found = n_minus_1_fleet(run(APART, Fleet(2, 2)), options_of())
    assert found.spare == Fleet(1, 1)
    assert found.total == Fleet(3, 3)
    assert found.spare_usd_per_hour == pytest.approx(PAIR_USD)
    assert found.report.survived
    assert {loss.how for loss in found.report.losses} == {"spare"}
    assert not found.without.survived
    # by price: none, a rollout node, a train node; each pool's own loss is left in each
    assert found.failed == ((Fleet(0, 0), 2), (Fleet(1, 0), 1), (Fleet(0, 1), 1))
    assert found.proved
    worst = found.report.most_moved
    assert worst is not None
    assert (worst.jobs_moved, worst.restart_s) == (1, RESTART_S)


def test_a_fleet_with_room_needs_no_spare():
    found = n_minus_1_fleet(run(APART, Fleet(3, 3)), options_of())
    assert found.spare == Fleet(0, 0)
    assert found.spare_usd_per_hour == 0.0
    assert found.failed == ()


def test_a_job_alone_joins_the_other_group():
    report = survives_loss(run(table_of(*SPLIT), Fleet(2, 2)), options_of())
    expected = [(0.0, "spare"), (1.0, "spare"), (2.0, "search"), (50.0, "few"), (100.0, "spare")]
    for pool in ("rollout", "train"):
        assert hows(report, pool) == expected
    moved = {loss.at_s: loss.jobs_moved for loss in report.losses}
    # Alone; two on one node; all three in a group that is new; "a" or "b" joins the other.
    assert moved == {0.0: 1, 1.0: 2, 2.0: 3, 50.0: 1, 100.0: 1}
    assert report.survived
    assert report.most_moved is not None
    assert report.most_moved.restart_s == pytest.approx(3 * RESTART_S)


def test_without_a_search_what_is_not_found_is_not_proved():
    found = n_minus_1_fleet(run(table_of(*SPLIT), Fleet(2, 2)), options_of(), search_s=0.0)
    assert [(loss.at_s, loss.proved) for loss in found.without.failed] == [(2.0, False)] * 2
    assert found.spare == Fleet(1, 1)
    assert not found.proved
    assert n_minus_1_fleet(run(table_of(*SPLIT), Fleet(2, 2)), options_of()).spare == Fleet(0, 0)


def test_a_node_of_an_async_job_is_made_up_for_by_others():
    """At 50 s "a" can join "b", and the async job takes over its node: two jobs restart."""
    own = job_of("own", 5, 5, duration_s=300.0, mode="async", arrival_s=2.0)
    report = survives_loss(run(table_of(*SPLIT, own), Fleet(3, 3)), options_of())
    at_50 = [loss for loss in report.losses if loss.at_s == 50.0]
    assert [(loss.how, loss.jobs_moved) for loss in at_50] == [("few", 2), ("few", 2)]
    # alone at the end, it moves to a free node
    last = report.losses[-1]
    assert (last.at_s, last.how, last.jobs_moved, last.jobs_present) == (200.0, "spare", 1, 1)


def test_an_async_job_that_needs_every_node():
    own = table_of(job_of("own", 5, 5, duration_s=300.0, mode="async", train_nodes=2))
    report = survives_loss(run(own, Fleet(1, 3)), options_of())
    assert hows(report, "rollout") == [(0.0, "none")]
    assert hows(report, "train") == [(0.0, "spare")]
    assert report.failed[0].proved


def test_jobs_of_solo_are_not_made_to_share():
    report = survives_loss(run(table_of(*SPLIT[1:]), Fleet(2, 2), "solo"), options_of())
    assert [loss.how for loss in report.losses] == ["spare", "spare", "none", "none"] + [
        "spare"
    ] * 2
    assert all(loss.proved for loss in report.failed)  # two groups of one job on one node


def test_a_state_that_comes_back_is_one_state():
    # "y" comes to the pair of "a" at 10 and leaves at 30: "a" alone for 10 + 70 s.
    jobs = table_of(
        job_of("a", 5, 5, 2, duration_s=100.0), job_of("y", 5, 5, 2, arrival_s=10, duration_s=20.0)
    )
    result = run(jobs, Fleet(1, 1))
    assert result.plan is not None
    states = states_of(result.plan)
    assert [(s.at_s, pytest.approx(3600 * s.hours)) for s in states] == [(0.0, 80), (10.0, 20)]
    assert list(lost_jobs(states[1], "train")) == [frozenset({"a", "y"})]


def test_what_it_cannot_answer():
    jobs = table_of(*SPLIT)
    with pytest.raises(InputError, match="fixed fleet"):
        survives_loss(replay(jobs, "weave", options_of()), options_of())
    with pytest.raises(InputError, match="with its plan"):
        survives_loss(run(jobs, Fleet(2, 2)).without_plan(), options_of())
    with pytest.raises(UnsupportedError, match="colocated"):
        survives_loss(run(jobs, Fleet(2, 2), "colocated"), options_of())


def test_progress_is_reported():
    calls: list[tuple[int, int]] = []
    result = run(APART, Fleet(2, 2))
    survives_loss(result, options_of(), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(i, 6) for i in range(7)]


def test_ctrl_c_in_a_search_is_let_through(monkeypatch):
    stopped = SimpleNamespace(stopped_by=StoppedBy.INTERRUPT)
    monkeypatch.setattr(loss_tests, "_solved", lambda snapshot, seconds: stopped)
    with pytest.raises(KeyboardInterrupt):
        survives_loss(run(table_of(*SPLIT), Fleet(2, 2)), options_of())


def test_local_search_where_exact_methods_refuse(monkeypatch):
    def refuse(*_: object) -> None:
        raise UnsupportedError("too large")

    monkeypatch.setattr(methods, "solve", refuse)
    report = survives_loss(run(table_of(*SPLIT), Fleet(2, 2)), options_of(), search_s=5.0)
    assert report.survived
    assert (2.0, "search") in hows(report, "train")
    # It finds no plan where there is none, and proves nothing.
    report = survives_loss(run(APART, Fleet(2, 2)), options_of(), search_s=1.0)
    assert [loss.proved for loss in report.failed] == [False, False]


def test_groups_with_rates():
    """The job "a" runs twice or more in each period of "b": states keep their rates."""
    jobs = table_of(
        job_of("b", 40, 40, 1.5, duration_s=800.0),
        job_of("a", 10, 10, 3.0, arrival_s=1.0, duration_s=400.0),
    )
    limits = Limits(max_rate=3)
    result = replay(jobs, "weave", options_of(limits=limits, fleet=Fleet(1, 1)))
    assert result.plan is not None
    rates = {rate for state in states_of(result.plan) for g in state.groups for rate in g.rates}
    assert max(rates) > 1
    found = n_minus_1_fleet(result, options_of(limits=limits))
    assert found.spare == Fleet(1, 1)  # no job runs on no node
    assert found.proved


def mixed(seed: int) -> JobTable:
    """Gangs, switches, sync and DRAM; most losses are of a gang that needs the node."""
    rng = random.Random(seed)
    return table_of(
        *(
            random_job(
                rng, f"j{i}", arrival_s=float(rng.randint(0, 100)), duration_s=rng.uniform(50, 200)
            )
            for i in range(7)
        )
    )


def crowded(seed: int) -> JobTable:
    """Nine jobs of one node of each kind that share much: re-placing them often helps."""
    rng = random.Random(seed)
    return table_of(
        *(
            job_of(
                f"j{i}",
                rng.randint(1, 20),
                rng.randint(1, 20),
                rng.choice((1.5, 2.0, 3.0)),
                arrival_s=float(rng.randint(0, 100)),
                duration_s=float(rng.randint(50, 200)),
                train_state_gb=rng.choice((0, 400, 900)),
            )
            for i in range(9)
        )
    )


#: Of the crowded ones, 443 and 978 have losses that only a whole group placed anew survives, 2103
#: and 2180 some that only all jobs placed anew survive (looked for among 2,300 seeds).
@pytest.mark.parametrize(
    "cases",
    [
        ([mixed(seed) for seed in range(8)], {"spare", "few", "search", "none"}),
        ([crowded(seed) for seed in (443, 978, 2103, 2180)], {"spare", "few", "group", "all"}),
    ],
    ids=["mixed", "crowded"],
)
def test_random_fleets_against_exact_feasibility(cases):
    """A loss is survived where, and only where, the jobs present have a plan on one node less."""
    tables, expected = cases
    found: set[str] = set()
    limits = Limits(max_group_size=3)
    for jobs in tables:
        wide = int(jobs.rollout_nodes.max()), int(jobs.train_nodes.max())
        fleet = Fleet(3, 3) if wide == (1, 1) else Fleet(wide[0] + 1, wide[1] + 1)
        result = replay(jobs, "weave", options_of(limits=limits, fleet=fleet))
        report = survives_loss(result, options_of(limits=limits), search_s=20.0)
        assert result.plan is not None
        states = {state.at_s: state for state in states_of(result.plan)}
        for loss in report.losses:
            found.add(loss.how)
            assert loss.proved
            assert loss.survived == (0 < loss.jobs_moved <= loss.jobs_present)
            if loss.how == "spare":
                continue  # a plan as it was
            names = {job.job_id for job in states[loss.at_s].jobs}
            snapshot = Snapshot(
                table=jobs.take([i for i, name in enumerate(jobs.job_id) if name in names]),
                limits=limits,
                caps=FleetCaps(
                    max_rollout_nodes_total=fleet.rollout_nodes - (loss.pool == "rollout"),
                    max_train_nodes_total=fleet.train_nodes - (loss.pool == "train"),
                ),
            )
            truth = solve("set-partition", snapshot, SolveOptions())
            assert loss.survived == (truth.plan is not None)
    assert expected <= found
