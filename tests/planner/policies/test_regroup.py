"""Policies ``regroup`` and ``resubmit``: what a review moves, what that is worth, and the rules.

Every twin has ``T`` = 40 s of which 10 s are rollout, 10 s train and 20 s sync, and deadline 80 s:
up to eight load a pair of nodes fully, and the published saturation rule stops at four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from builders import PAIR_USD, job_of, members, options_of, table_of, violations
from gap_cases import random_trace
from instances.errors import InputError, UnsupportedError
from instances.jobs import Job, JobTable
from instances.plan import Fleet, Limits
from models.bounds.volume import VolumeSums
from models.exact.methods import solve
from models.problem.options import SolveOptions
from models.problem.snapshot import Snapshot
from planner.policies.policy import PolicyOptions
from planner.policies.registry import make_policy
from planner.policies.regroup import Profile, Regroup, RegroupParams, Resubmit
from planner.policies.repack_change import usd_per_hour_of
from planner.policies.repack_params import RepackParams
from planner.policies.replay_result import Convention
from planner.replay.loop import ReplayLoop
from planner.replay.replaying import replay

HOUR = 3600.0
THREE = Limits(max_group_size=3)


def twin(job_id: str, **more: Any) -> Job:
    return job_of(
        job_id, 10, 10, 2.0, **{"sync_s": 20.0, "duration_s": 9 * HOUR, "restart_s": 360.0, **more}
    )


def policy_of(limits: Limits | None = None, **params: Any) -> Regroup:
    options = options_of(limits=THREE if limits is None else limits)
    return Regroup(options, RegroupParams(**{"keep_slo": False, **params}))


def fill(policy: Resubmit, jobs: Sequence[Job], leaving: str) -> None:
    """Have jobs come at once, and some of them leave an hour later."""
    for job in jobs:
        assert policy.arrive(job, 0.0) is not None
    for job in jobs:
        if job.job_id in leaving:
            policy.depart(job, HOUR)


def three_left(policy: Regroup) -> None:
    """Groups abe and cdf, of which a and b stay in the first and c in the second."""
    fill(policy, [twin(name) for name in "abecdf"], leaving="edf")
    assert members(policy.placer.groups()) == {1: ["a", "b"], 2: ["c"]}


def run(jobs: JobTable, policy: Any, convention: Convention = "wallclock") -> ReplayLoop:
    sums = VolumeSums(policy.options.cluster, policy.options.limits)
    loop = ReplayLoop(jobs, policy, policy.options, convention, True, sums)
    while loop.heap:
        loop.step()
    return loop


# --- one review -----------------------------------------------------------------------------------


def test_of_the_cheapest_plans_the_one_with_the_fewest_moves_is_taken() -> None:
    policy = policy_of()
    three_left(policy)
    change = policy.review(2 * HOUR)
    # one group of three either way: c joins a and b (one move), or these join c (two)
    assert change.moved == ("c",)
    assert change.ended == (2,)
    assert members(change.groups) == {1: ["a", "b", "c"]}
    assert not violations(change.groups[0], limits=THREE)


def test_a_review_tells_what_it_saved_and_what_its_moves_cost() -> None:
    policy = policy_of()
    three_left(policy)
    policy.review(2 * HOUR)
    (found,) = policy.regroupings
    assert (found.at_s, found.jobs, found.moves, found.proved) == (2 * HOUR, 3, 1, True)
    assert found.usd_per_hour_before == pytest.approx(2 * PAIR_USD)
    assert found.usd_per_hour_after == pytest.approx(PAIR_USD)
    assert found.move_usd == pytest.approx(PAIR_USD * 360 / 3600)  # a pair of nodes, 360 s


def test_nothing_changes_where_nothing_is_saved() -> None:
    policy = policy_of()
    fill(policy, [twin(name) for name in "abc"], leaving="")
    before = policy.placer.groups()
    change = policy.review(HOUR)
    assert (change.groups, change.ended, change.moved) == ((), (), ())
    assert policy.placer.groups() == before
    assert policy.regroupings == []


@pytest.mark.parametrize(("gain_usd", "moves"), [(PAIR_USD - 0.1, 1), (PAIR_USD + 0.1, 0)])
def test_a_move_has_to_save_the_minimum_gain_by_the_next_review(
    gain_usd: float, moves: int
) -> None:
    policy = policy_of(min_gain_usd=gain_usd)  # the move saves a pair of nodes for one hour
    three_left(policy)
    assert len(policy.review(2 * HOUR).moved) == moves


def test_a_minimum_gain_counts_for_longer_between_rarer_reviews() -> None:
    policy = policy_of(min_gain_usd=PAIR_USD + 0.1, review_h=2.0)
    three_left(policy)
    assert len(policy.review(2 * HOUR).moved) == 1
    assert policy.review_s == 2 * HOUR


@pytest.mark.parametrize(("restart_h", "moves"), [(0.1, 1), (1000.0, 0)])
def test_with_pays_back_a_restart_has_to_be_earned(restart_h: float, moves: int) -> None:
    # stays of this world are hours and a guessed day: no saving lasts a thousand hours
    for pays_back in (True, False):
        policy = policy_of(pays_back=pays_back)
        jobs = [twin(name, restart_s=restart_h * HOUR) for name in "abecdf"]
        fill(policy, jobs, leaving="edf")
        assert len(policy.review(2 * HOUR).moved) == (moves if pays_back else 1)


def test_frozen_and_restarting_jobs_do_not_move() -> None:
    policy = policy_of(freeze=frozenset("abc"))
    three_left(policy)
    assert policy.review(2 * HOUR).moved == ()

    policy = policy_of()
    three_left(policy)
    policy.ledger.move("c", 2 * HOUR - 1)
    assert policy.review(2 * HOUR).moved == ("a", "b")  # the dearer way: c restarts until then
    assert policy.may_move("c", 2 * HOUR + 359)


def test_with_keep_slo_only_jobs_ahead_by_their_restart_move() -> None:
    policy = policy_of(keep_slo=True)
    # a period of 40 s within deadlines of 80 s: as many seconds ahead as run
    jobs = [twin(name, restart_s=2.5 * HOUR) for name in "abecdf"]
    fill(policy, jobs, leaving="edf")
    assert policy.review(2 * HOUR).moved == ()
    assert policy.review(3 * HOUR).moved == ("c",)


def test_of_more_than_max_jobs_parts_are_planned() -> None:
    policy = policy_of(max_jobs=2)
    three_left(policy)
    policy.review(2 * HOUR)
    present = [job.job_id for state in policy.placer.groups() for job in state.jobs]
    assert sorted(present) == ["a", "b", "c"]
    for state in policy.placer.groups():
        assert not violations(state, limits=THREE)


def test_after_a_review_newcomers_are_placed_beside_those_who_stayed() -> None:
    policy = policy_of(Limits(max_group_size=4))
    fill(policy, [twin(name) for name in "abecdfgh"], leaving="edfgh")
    policy.review(2 * HOUR)
    change = policy.arrive(twin("n", arrival_s=3 * HOUR), 3 * HOUR)
    assert change is not None
    assert change.admission == "direct"
    assert {job.job_id for job in change.groups[0].jobs} >= {"n", "a"}
    # no number is given twice
    alone = policy.arrive(job_of("big", 900, 900, 1.0, arrival_s=3 * HOUR), 3 * HOUR)
    assert alone is not None
    assert alone.groups[0].number == 3


# --- whole replays --------------------------------------------------------------------------------


@pytest.mark.parametrize("convention", ["work", "wallclock"])
@pytest.mark.parametrize("seed", range(6))
def test_plans_pass_the_checker_and_keep_every_slo(seed: int, convention: Convention) -> None:
    jobs = random_trace(seed, n=9).jobs
    result = replay(jobs, "regroup", options_of(limits=Limits()), convention=convention)
    assert result.checked
    assert result.slo_attainment == 1.0
    assert result.plan is not None
    assert len(result.plan.pauses) == sum(r.moves for r in result.records if r.job.restart_s > 0)
    for pause in result.plan.pauses:
        record = next(r for r in result.records if r.job.job_id == pause.job_id)
        assert pause.to_s - pause.from_s == pytest.approx(record.job.restart_s)


class Watched(Regroup):
    """Holds every review against the optimum of its moment, and against not moving at all."""

    reviews = 0

    def review(self, now_s: float) -> Any:
        before = self.placer.groups()
        change = super().review(now_s)
        after = self.placer.groups()
        cluster, limits = self.options.cluster, self.options.limits
        jobs = [job for state in before for job in state.jobs]
        best = solve("set-partition", Snapshot.of(jobs, cluster, limits), SolveOptions())
        assert best.termination == "optimal"
        usd = usd_per_hour_of(after, cluster)
        assert usd == pytest.approx(best.usd_per_hour)
        assert usd <= usd_per_hour_of(before, cluster) + 1e-9
        self.reviews += 1
        return change


@pytest.mark.parametrize("seed", range(4))
def test_where_it_plans_no_plan_costs_less(seed: int) -> None:
    jobs = random_trace(seed, n=8).jobs
    options = options_of(convention="wallclock")
    # nobody's restart takes longer than a review: all may move at each
    policy = Watched(options, RegroupParams(keep_slo=False, review_h=0.5))
    jobs = jobs.replace(optional={"restart_s": [60.0] * len(jobs)})
    run(jobs, policy)
    assert policy.reviews > 0


def test_moves_pause_their_jobs_and_are_all_accounted() -> None:
    jobs = table_of(
        *(twin(name) for name in "ab"),
        twin("e", duration_s=HOUR),
        twin("c"),
        *(twin(name, duration_s=HOUR) for name in "df"),
    )
    policy = policy_of()
    loop = run(jobs, policy)
    # e, d and f leave at 1 h, before the review of that moment: c moves then, for 360 s
    assert [(p.job_id, p.from_s, p.to_s) for p in loop.pauses] == [("c", HOUR, HOUR + 360)]
    assert sum(found.moves for found in policy.regroupings) == 1
    # two pairs for one hour, then one until a and b leave at 9 h, and c 360 s later
    usd = sum((v.to_s - v.from_s) / HOUR * PAIR_USD * len(v.rollout_nodes) for v in loop.versions)
    assert usd == pytest.approx(PAIR_USD * (2 + 8 + 0.1))


# --- current profiles -----------------------------------------------------------------------------


def growing(slope: float) -> Profile:
    """Both phases of job a are 100 s times 1 + slope x hours run; those of the others stay."""

    def phases_s(job_id: str, running_s: float) -> tuple[float, float]:
        seconds = 100.0 * (1 + slope * running_s / HOUR) if job_id == "a" else 100.0
        return seconds, seconds

    return phases_s


def drifting(kind: type[Resubmit], slope: float) -> Resubmit:
    params = RegroupParams(keep_slo=False)
    return kind(options_of(convention="wallclock"), params, growing(slope))


def pair() -> JobTable:
    """Jobs of 100 s each phase: a with deadline 400 s (slo 2), b with 300 s (slo 1.5)."""
    more = {"duration_s": 10 * HOUR, "restart_s": 360.0}
    return table_of(job_of("a", 100, 100, 2.0, **more), job_of("b", 100, 100, 1.5, **more))


@pytest.mark.parametrize("kind", [Resubmit, Regroup])
def test_a_job_leaves_when_its_growth_breaks_its_group(kind: type[Resubmit]) -> None:
    policy = drifting(kind, 0.2)
    loop = run(pair(), policy)
    # a's iteration takes 200 (1 + 0.2 h) s, and b's deadline is 300 s: 280 at 2 h, 320 at 3 h
    (found,) = policy.regroupings
    assert (found.at_s, found.moves) == (3 * HOUR, 1)
    assert [pause.job_id for pause in loop.pauses] == ["a"]  # it grew, b did not
    # one pair for 3 h, two until b leaves at 10 h, and a's 360 s later
    usd = sum((v.to_s - v.from_s) / HOUR * PAIR_USD for v in loop.versions)
    assert usd == pytest.approx(PAIR_USD * (3 + 7 + 7.1))


def test_seconds_are_measured_by_the_time_that_a_job_has_run() -> None:
    policy = drifting(Resubmit, 0.2)
    a, b = pair()
    policy.arrive(a, 0.0)
    policy.arrive(b, 0.0)
    policy.ledger.move("a", HOUR)  # restarts for 0.1 h: until 3 h it has run 2.9
    policy.review(3 * HOUR)
    now = {job.job_id: job for state in policy.placer.groups() for job in state.jobs}
    assert now["a"].rollout_s == pytest.approx(100 * (1 + 0.2 * 2.9))
    assert now["b"] == b


def test_a_group_whose_members_restart_stays_as_it_is_until_the_next_review() -> None:
    policy = drifting(Resubmit, 0.2)
    for job in pair():
        policy.arrive(job, 0.0)
    before = policy.placer.groups()
    for name in "ab":
        policy.ledger.move(name, 3 * HOUR - 1)
    assert policy.review(3 * HOUR).moved == ()
    assert policy.placer.groups() == before
    assert policy.review(4 * HOUR).moved == ("a",)


def test_shrinking_jobs_are_put_together() -> None:
    def phases_s(job_id: str, running_s: float) -> tuple[float, float]:
        seconds = 100.0 if running_s < HOUR else 40.0
        return seconds, seconds

    more = {"duration_s": 4 * HOUR, "restart_s": 0.0, "sync_s": 90.0}
    jobs = table_of(*(job_of(name, 100, 100, 1.0, **more) for name in "abc"))
    # T = 290: a pair of nodes holds two (200 <= 290); with T = 170 four (160 <= 170)
    policy = Regroup(options_of(convention="wallclock"), RegroupParams(keep_slo=False), phases_s)
    loop = run(jobs, policy)
    at_2h = [v for v in loop.versions if v.from_s <= 2 * HOUR < v.to_s]
    assert sum(len(v.rollout_nodes) for v in at_2h) == 1
    first = [v for v in loop.versions if v.from_s == 0.0]
    assert sum(len(v.rollout_nodes) for v in first) == 2


def test_with_profiles_nobody_knows_who_is_ahead() -> None:
    with pytest.raises(InputError, match="keep_slo"):
        Regroup(options_of(), RegroupParams(), growing(0.1))


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Regroup, Resubmit])
def test_a_fixed_fleet_is_refused(kind: type[Resubmit]) -> None:
    with pytest.raises(UnsupportedError, match="fixed fleet"):
        kind(options_of(fleet=Fleet(rollout_nodes=4, train_nodes=4)))
    with pytest.raises(UnsupportedError):
        kind(options_of()).fork()


def test_the_policy_of_that_name_takes_the_options_of_repack() -> None:
    repack = RepackParams(review_h=3.0, min_gain_usd=7.0, max_scope=9, freeze=frozenset("x"))
    policy = make_policy("regroup", PolicyOptions(cluster=options_of().cluster, repack=repack))
    assert isinstance(policy, Regroup)
    assert policy.params == RegroupParams(
        review_h=3.0, min_gain_usd=7.0, max_jobs=9, freeze=frozenset("x")
    )
    assert policy.review_s == 3 * HOUR
    assert not policy.pins_fixed
    assert RegroupParams.of(RepackParams()).review_h == 1.0


@pytest.mark.parametrize(
    "wrong",
    [{"review_h": 0.0}, {"min_gain_usd": -1.0}, {"max_jobs": 1}, {"review_h": float("inf")}],
)
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        RegroupParams(**wrong)
