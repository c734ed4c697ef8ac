"""``planner repack``: the moves that pay, their money, why others do not, files, exit codes."""

from __future__ import annotations

import csv
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from builders import ROLLOUT_USD, options_of
from command_line import PAIR_USD, names, refused, run, write
from instances.checker import check_plan
from instances.generate import production
from instances.jobs import JobTable
from instances.plan import DedicatedNodes, Limits
from instances.plan_file import plan_from_dict, read_plan, write_plan_json
from models.bounds.covering_lp import Ending
from models.replan.replanning import Replan
from planner.policies.repack_problem import RepackProblem
from planner.repack import report as report_module
from planner.repack.document import repack_document
from planner.repack.running_plan import running_plan
from planner.replay.replaying import replay
from planner.snapshot.solving import SnapshotReport, solve_snapshot
from repack_cases import (
    HOUR_S,
    MOVE_USD,
    RESTART_S,
    answer,
    apart,
    group,
    invoke,
    moved,
    movers,
    ok,
    pair,
    plan_of,
    replayed,
    saved,
    twin,
    with_async,
    words,
)

KEYS = [
    "schema_version", "command", "inputs", "usd_per_hour_before", "usd_per_hour_after",
    "bound_usd_per_hour", "bound_method", "bound_proved_least", "nodes_before", "nodes_after",
    "n_jobs", "n_groups_before", "n_groups_after", "dedicated", "lasting_h", "slo_credit_known",
    "moves", "hours_lost", "net_gain_usd", "proposals", "nearest", "immovable", "notes", "plan",
    "checked",
]  # fmt: skip


# --- money ----------------------------------------------------------------------------------------


def test_two_jobs_alone_that_fit_one_pair_of_nodes_are_merged(folder: Path) -> None:
    # saves one of two pairs for 10 h; a restart of 360 s is 0.1 h of the mover's own pair
    document = answer(pair(), folder, "--lasting-hours", "10")
    assert list(document) == KEYS
    assert document["usd_per_hour_before"] == pytest.approx(2 * PAIR_USD)
    assert document["usd_per_hour_after"] == pytest.approx(PAIR_USD)
    assert document["bound_usd_per_hour"] == pytest.approx(PAIR_USD)
    assert document["bound_proved_least"] is True
    (proposal,) = document["proposals"]
    assert proposal["saving_usd_per_hour"] == pytest.approx(PAIR_USD)
    assert proposal["lasting_h"] == 10
    assert proposal["cost_usd"] == pytest.approx(0.1 * PAIR_USD)
    assert proposal["net_gain_usd"] == pytest.approx(9.9 * PAIR_USD)
    assert proposal["net_gain_usd_per_move"] == pytest.approx(9.9 * PAIR_USD)
    assert proposal["break_even_h"] == pytest.approx(0.1)
    (move,) = proposal["moves"]
    assert {move["from_group"], move["to_group"]} == {"g1", "g2"}
    assert (move["restart_s"], move["overlap_usd"]) == (RESTART_S, 0)
    assert document["hours_lost"] == pytest.approx(0.1)
    assert document["nodes_before"] == {"rollout": 2, "train": 2}
    assert document["nodes_after"] == {"rollout": 1, "train": 1}


def test_without_a_departure_a_saving_lasts_as_a_guessed_stay_has_it(folder: Path) -> None:
    outcome = ok("--plan", saved(pair(), folder), "--json")
    # two jobs that each stay 24 h in the mean: the first of them leaves after 12
    assert outcome.json["lasting_h"] == pytest.approx(12)
    assert outcome.json["net_gain_usd"] == pytest.approx((12 - 0.1) * PAIR_USD)
    assert "no departure is known" in outcome.err
    assert "a guessed stay of 24 h. Give --lasting-hours" in outcome.err


def test_overlap_and_restart_are_charged(folder: Path) -> None:
    # 180 s of overlap and 720 s of restart: 0.05 + 0.2 h of the mover's pair
    document = answer(
        pair(), folder, "--lasting-hours", "2", "--overlap-seconds", "180",
        "--restart-seconds", "720",
    )  # fmt: skip
    (proposal,) = document["proposals"]
    (move,) = proposal["moves"]
    assert move["restart_usd"] == pytest.approx(0.2 * PAIR_USD)
    assert move["overlap_usd"] == pytest.approx(0.05 * PAIR_USD)
    assert proposal["net_gain_usd"] == pytest.approx(1.75 * PAIR_USD)


@pytest.mark.parametrize(
    ("usd", "pays"),
    # one pair for 10 h earns 570.40 $, the move costs 5.704 $: 564.696 $ are left
    [(564.6, True), (564.8, False)],
)
def test_a_move_must_earn_the_least_gain_beyond_its_cost(
    folder: Path, usd: float, pays: bool
) -> None:
    document = answer(pair(), folder, "--lasting-hours", "10", "--min-gain-usd", f"{usd}")
    assert bool(document["proposals"]) is pays
    if not pays:
        nearest = document["nearest"]
        assert nearest["net_gain_usd"] == pytest.approx(9.9 * PAIR_USD)
        assert nearest["break_even_h"] == pytest.approx((MOVE_USD + usd) / PAIR_USD)
        assert document["usd_per_hour_after"] == document["usd_per_hour_before"]


def test_a_saving_pays_once_it_lasts_as_long_as_the_restart(folder: Path) -> None:
    # at slo 3 a restart is earned back in 0.05 h, so only money decides: 0.1 h of a pair
    plan = pair(3.0)
    assert answer(plan, folder, "--lasting-hours", "0.101")["moves"] == 1
    assert answer(plan, folder, "--lasting-hours", "0.099")["moves"] == 0


def test_a_replay_at_an_hour_with_what_its_jobs_have_left(folder: Path) -> None:
    # at 1.5 h a has 0.5 h left, b 1.5 h: the saving lasts until a leaves
    document = answer(replayed(), folder, "--at-hours", "1.5", "--oracle", "remaining")
    (proposal,) = document["proposals"]
    assert proposal["lasting_h"] == pytest.approx(0.5)
    assert proposal["net_gain_usd"] == pytest.approx(0.4 * PAIR_USD)
    # credit of whoever moves: 40 s x 270 iterations - 5400 s
    assert proposal["moves"][0]["slo_credit_s"] == pytest.approx(5400)
    assert document["inputs"]["moment_h"] == 1.5
    assert document["slo_credit_known"] is True


def test_the_residual_rule_learns_from_who_has_left(folder: Path) -> None:
    # at 1.5 h stays of 24 (the guess) and 1 h are seen, and two ages of 1.5 h. Survival is 1
    # until 1 h, 3/4 until 24 h, then 0: the mean residual life at 1.5 h is 22.5 h
    running = running_plan(replayed(), at_hours=1.5)
    assert running.ledger.means_h(running.clock_s) == pytest.approx({"a": 22.5, "b": 22.5})
    document = answer(replayed(), folder, "--at-hours", "1.5")
    assert document["lasting_h"] == pytest.approx(22.5 / 2)
    assert document["notes"] == []


def test_break_even_takes_what_would_have_paid_already(folder: Path) -> None:
    # a and b run alone since 0 h; a move has to earn 0.1 + 30 / 57.04 = 0.626 h of a pair
    rule = ("--repack-rule", "break-even", "--min-gain-usd", "30")
    soon = answer(replayed(), folder, "--at-hours", "0.6", *rule)
    assert soon["proposals"] == []
    assert soon["nearest"]["lasting_h"] == pytest.approx(0.6)
    assert soon["nearest"]["break_even_h"] == pytest.approx(0.1 + 30 / PAIR_USD)
    later = answer(replayed(), folder, "--at-hours", "0.65", *rule)
    assert later["proposals"][0]["lasting_h"] == pytest.approx(0.65)
    assert later["lasting_h"] is None


def test_dearest_first_and_totals(folder: Path) -> None:
    """Two merges that have nothing to do with one another: of gangs of two, and of single jobs.

    No job of one pair fits the other: ``D`` = 24 s against phases of 100 s.
    """
    small = [twin(name, 1.2) for name in "ab"]
    long: dict[str, Any] = {"rollout_s": 100.0, "train_s": 100.0, "rollout_nodes": 2}
    big = [dataclasses.replace(twin(name, 1.2), **long) for name in "cd"]
    groups = list(apart(*small).groups)
    for number, job in enumerate(big, start=3):
        (place,) = group(f"g{number}", [job.job_id]).placements
        place = dataclasses.replace(place, rollout_pins=(0, 1), starts_s=((0.0, 100.0),))
        base = group(f"g{number}", [job.job_id])
        groups.append(
            dataclasses.replace(base, period_s=200.0, rollout_nodes=(0, 1), placements=(place,))
        )
    plan = plan_of(JobTable.from_jobs([*small, *big]), groups)
    path = saved(plan, folder)
    document = ok("--plan", path, "--lasting-hours", "10", "--json").json
    gains = [p["net_gain_usd"] for p in document["proposals"]]
    dear = PAIR_USD + ROLLOUT_USD
    assert gains == pytest.approx([9.9 * dear, 9.9 * PAIR_USD])
    assert document["net_gain_usd"] == pytest.approx(9.9 * (dear + PAIR_USD))
    out = words(ok("--plan", path, "--lasting-hours", "10").out)
    assert f"all 2 moves 720 {dear + PAIR_USD:,.2f}" in out


# --- who may move ---------------------------------------------------------------------------------


def test_a_frozen_job_stays_and_the_other_comes_to_it(folder: Path) -> None:
    for frozen, mover in (("a", "b"), ("b", "a")):
        document = answer(pair(), folder, "--freeze", frozen)
        assert movers(document) == [[mover]]
        assert document["immovable"] == {frozen: "freeze"}
    outcome = ok("--plan", saved(pair(), folder), "--freeze", "a,b")
    assert "No move pays now." in outcome.out
    assert "No job may move." in outcome.out
    assert "2 of 2 jobs may not move: 2 on the freeze list (a, b)." in words(outcome.out)


def test_a_freeze_list_may_name_jobs_that_are_gone(folder: Path) -> None:
    outcome = ok("--plan", saved(replayed(), folder), "--at-hours", "1.5", "--freeze", "c")
    assert "warning: --freeze names 'c', which is not running." in outcome.err
    assert "After 1 move" in outcome.out


def test_without_progress_a_restart_is_earned_back_while_the_saving_lasts(folder: Path) -> None:
    # at slo 1.05 and C = T a restart of 360 s is earned back in 2 h
    path = saved(pair(1.05), folder)
    yes = ok("--plan", path, "--lasting-hours", "2.01")
    assert "warning: SLO credit is not known:" in yes.err
    assert "back" in yes.out
    document = ok("--plan", path, "--lasting-hours", "2.01", "--json").json
    assert document["proposals"][0]["moves"][0]["payback_s"] == pytest.approx(7200)
    assert document["proposals"][0]["moves"][0]["slo_credit_s"] is None
    no = ok("--plan", path, "--lasting-hours", "1.99", "--json").json
    assert no["proposals"] == []
    assert no["immovable"] == {"a": "payback", "b": "payback"}


def test_a_job_that_restarts_or_has_moved_today_stays(folder: Path) -> None:
    path = saved(moved(held=True), folder)
    during = ok("--plan", path, "--at-hours", "1.05", "--json")
    assert during.json["immovable"] == {"b": "restarting"}
    assert "1 + 1 old nodes of earlier moves are still held" in during.err
    assert during.json["usd_per_hour_before"] == pytest.approx(PAIR_USD)  # held nodes left out
    after = ("--plan", path, "--at-hours", "1.5", "--json", "--max-moves-per-job-day")
    assert ok(*after, "1").json["immovable"] == {"b": "moves-per-day"}
    assert ok(*after, "2").json["immovable"] == {}


def test_async_jobs_are_left_out_and_counted(folder: Path) -> None:
    document = answer(with_async(), folder)
    dedicated = 2 * ROLLOUT_USD + (PAIR_USD - ROLLOUT_USD)
    assert document["usd_per_hour_before"] == pytest.approx(2 * PAIR_USD + dedicated)
    assert document["usd_per_hour_after"] == pytest.approx(PAIR_USD + dedicated)
    assert document["bound_usd_per_hour"] == pytest.approx(PAIR_USD + dedicated)
    assert document["dedicated"] == {"jobs": 1, "nodes": {"rollout": 2, "train": 1}}
    assert document["immovable"] == {}
    out = words(ok("--plan", saved(with_async(), folder)).out)
    assert "1 async job on 2 + 1 dedicated nodes" in out


@pytest.mark.parametrize(("most", "saved_pairs"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_at_most_so_many_moves_in_all(folder: Path, most: int, saved_pairs: int) -> None:
    # at slo 3 three twins share a pair: a period of 30 <= 60
    plan = apart(twin("a", 3.0), twin("b", 3.0), twin("c", 3.0))
    document = answer(plan, folder, "--lasting-hours", "10", "--moves", f"{most}")
    assert document["moves"] == saved_pairs
    saving = document["usd_per_hour_before"] - document["usd_per_hour_after"]
    assert saving == pytest.approx(saved_pairs * PAIR_USD)
    if not most:
        out = ok("--plan", saved(plan, folder), "--lasting-hours", "10", "--moves", "0").out
        assert "--moves allows 0." in words(out)


def test_limits_are_those_of_the_plan(folder: Path) -> None:
    plan = apart(twin("a"), twin("b"), limits=Limits(max_group_size=1))
    outcome = ok("--plan", saved(plan, folder))
    assert "No move can pay: now is the least price." in outcome.out
    assert ok("--plan", saved(plan, folder), "--json").json["nearest"] is None


# --- files ----------------------------------------------------------------------------------------


def test_out_holds_the_plan_after_the_moves_and_a_row_a_move(folder: Path) -> None:
    path = saved(pair(), folder)
    outcome = ok("--plan", path, "--lasting-hours", "10", "--out", "after", "--no-html")
    assert "Wrote repacked.json, moves.csv to after." in outcome.err
    assert names(folder / "after") == ["moves.csv", "repacked.json"]
    plan = read_plan(folder / "after" / "repacked.json")
    assert check_plan(plan).ok
    assert plan.usd_total == pytest.approx(PAIR_USD)
    assert [len(g.placements) for g in plan.groups] == [2]
    with (folder / "after" / "moves.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["job_id"] in ("a", "b")
    assert (row["proposal"], row["restart_s"]) == ("1", "360.0")
    assert float(row["restart_usd"]) == pytest.approx(MOVE_USD)
    assert float(row["proposal_net_gain_usd"]) == pytest.approx(9.9 * PAIR_USD)
    again = ok("--plan", folder / "after" / "repacked.json", "--lasting-hours", "10")
    assert "No move can pay: now is the least price." in again.out
    refused(invoke("--plan", path, "--out", "after", "--no-html"), "already holds", "--force")
    ok("--plan", path, "--out", "after", "--no-html", "--force")


def test_the_plan_of_the_document_is_valid_whatever_pays(folder: Path) -> None:
    for arguments in ((), ("--lasting-hours", "0.01")):
        document = answer(with_async(), folder, *arguments)
        plan = plan_from_dict(document["plan"])
        assert check_plan(plan).ok
        assert plan.usd_total == pytest.approx(document["usd_per_hour_after"])


def _as_process(*arguments: str | Path) -> list[str]:
    """Return the words that run the command as a process of its own."""
    program = "import typer, planner.cli.repack as c; typer.run(c.repack)"
    return [sys.executable, "-c", program, *map(str, arguments)]


@pytest.mark.parametrize("shown", [(), ("--json",)])
def test_same_input_same_bytes(folder: Path, shown: Sequence[str]) -> None:
    path = saved(replayed(), folder)
    arguments = ("--plan", path, "--at-hours", "0.5", *shown)
    first = ok(*arguments).out
    assert ok(*arguments).out == first


def test_another_process_answers_the_same(folder: Path) -> None:
    arguments = ("--plan", saved(replayed(), folder), "--at-hours", "0.5", "--json")
    first = ok(*arguments).out
    env = {"PYTHONHASHSEED": "5", "COLUMNS": "80"}
    other = run(cwd=folder, words=_as_process(*arguments), **env)
    assert other.code == 0, other.err
    assert other.out == first


def test_seconds_on_request_only(folder: Path) -> None:
    path = saved(pair(), folder)
    assert "timings" not in ok("--plan", path, "--json").json
    assert ok("--plan", path, "--json", "--timings").json["timings"]["repack_s"] > 0
    assert "shows in --json only" in ok("--plan", path, "--timings").err


# --- the screen -----------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [80, 160])
def test_the_table_fits_the_screen(
    folder: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    plan = apart(*(twin(f"team-nlp/long-name-{i}", 3.0) for i in range(6)))
    out = ok("--plan", saved(plan, folder), "--lasting-hours", "1000").out
    assert max(map(len, out.splitlines())) <= columns
    for header in ("pause", "back", "saves", "lasts", "cost", "net", "a move"):
        assert header in out
    assert f"{4 * PAIR_USD:,.2f}" in out  # six twins share two pairs instead of six


def test_the_screen_says_prices_before_and_after_and_the_least(folder: Path) -> None:
    out = words(ok("--plan", saved(pair(), folder), "--now", "--lasting-hours", "10").out)
    assert "plan.json: 2 jobs in 2 groups; a dry run, nothing is moved" in out
    assert "Now $114.08/h: 2 H20 nodes and 2 H800 nodes." in out
    assert "After 1 move $57.04/h (50.0% less): 1 H20 node and 1 H800 node." in out
    assert "cost 0.10 job-hours of progress and earn $564.70 net" in out
    assert "The least price is $57.04/h" in out
    assert "now is 2.000 x it, after the moves 1.000 x" in out
    assert "(1 job, 1+1) + g2 (1 job, 1+1) -> g" in out


def _ending(monkeypatch: pytest.MonkeyPatch, ending: Ending) -> None:
    """Let every search find what it finds, but end without a proof."""
    solve = RepackProblem.solve

    def unproved(*arguments: Any, **more: Any) -> Replan:
        return dataclasses.replace(solve(*arguments, **more), proved=False, ending=ending)

    monkeypatch.setattr(RepackProblem, "solve", unproved)


def test_a_search_at_its_limit_of_work_is_not_helped_by_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(pair(), folder)
    assert "search for moves" not in ok("--plan", path).err
    _ending(monkeypatch, Ending.NODES)
    err = words(ok("--plan", path).err)
    assert "fixed limit of work before it proved that no others earn more. Every run" in err
    assert "--time-limit" not in err
    _ending(monkeypatch, Ending.TIME)
    err = words(ok("--plan", path).err)
    assert "ended early: there may be better ones, and another run may find others" in err
    assert "--time-limit" in err


def test_an_unproved_search_that_found_nothing_does_not_say_there_is_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No two states of 1,100 GB fit a node of 2,000; by volume three need two nodes, not three."""
    monkeypatch.setattr(report_module, "EXACT_JOBS", 0)
    jobs = (twin(name, rollout_state_gb=1100.0, train_state_gb=1100.0) for name in "abc")
    path = saved(apart(*jobs), folder)
    out = words(ok("--plan", path).out)
    assert "No move pays now. No change of the jobs that may move lowers the price." in out
    _ending(monkeypatch, Ending.NODES)
    assert "No move pays now. None was found before the search ended." in words(
        ok("--plan", path).out
    )


def test_moves_to_other_nodes_of_the_same_group_are_explained(folder: Path) -> None:
    """Two twins of one group on two rollout nodes and one train node; one of each would do."""
    path = saved(pair(), folder)
    assert "pins:" not in ok("--plan", path, "--lasting-hours", "10").out
    one = group("g1", ["a", "b"])
    a, b = one.placements
    wide = dataclasses.replace(
        one, rollout_nodes=(0, 1), placements=(a, dataclasses.replace(b, rollout_pins=(1,)))
    )
    plan = plan_of(JobTable.from_jobs([twin("a"), twin("b")]), [wide])
    out = ok("--plan", saved(plan, folder), "--lasting-hours", "10").out
    assert "g1 pins" in out
    assert "pins: to other nodes of its own group." in out


def test_no_number_that_json_has_not(folder: Path) -> None:
    report = report_module.repack_report(running_plan(pair()))
    (change,) = report.changes
    never = dataclasses.replace(change, usd_per_hour_after=change.usd_per_hour_before)
    report = dataclasses.replace(report, changes=(never,))
    document = repack_document(report, "plan.json", None)
    assert document["proposals"][0]["break_even_h"] is None
    assert json.dumps(document, allow_nan=False)


def test_what_a_change_lacks_is_said(folder: Path) -> None:
    out = words(ok("--plan", saved(pair(4.0), folder), "--lasting-hours", "0.05").out)
    assert "No move pays now." in out
    assert "saves $57.04/h and costs $5.70." in out
    assert "would have to last 0.10 h to earn that back, and is taken to last 0.05 h." in out


# --- the least price ------------------------------------------------------------------------------


def _watch(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """Return the time limits that the exact methods are called with, as they come."""
    calls: list[float | None] = []

    def watched(*args: Any, **more: Any) -> SnapshotReport:
        calls.append(more["time_limit_s"])
        return solve_snapshot(*args, **more)

    monkeypatch.setattr(report_module, "solve_snapshot", watched)
    return calls


def test_beyond_some_jobs_the_volume_bound_has_to_do_unless_time_is_given(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = _watch(monkeypatch)
    path = saved(pair(), folder)
    ok("--plan", path)
    assert calls == [report_module.EXACT_S]
    monkeypatch.setattr(report_module, "EXACT_JOBS", 1)
    outcome = ok("--plan", path, "--json")
    assert len(calls) == 1
    # loads of 2 x 10 / 40 of a node of each kind: one of each
    assert outcome.json["bound_usd_per_hour"] == pytest.approx(PAIR_USD)
    assert outcome.json["bound_method"] == "volume"
    assert "Give --time-limit to prove more" in outcome.err
    ok("--plan", path, "--time-limit", "7s")
    assert calls[1:] == [7.0]


def test_a_proof_ended_by_ctrl_c_is_reported_and_the_answer_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*args: Any, **more: Any) -> SnapshotReport:
        return dataclasses.replace(solve_snapshot(*args, **more), interrupted=True)

    monkeypatch.setattr(report_module, "solve_snapshot", ended)
    outcome = invoke("--plan", saved(pair(), folder))
    assert outcome.code == 130
    assert "After 1 move" in outcome.out
    assert "search for moves" not in outcome.err  # that one had ended before


# --- what is refused ------------------------------------------------------------------------------


def test_a_plan_that_breaks_a_rule_is_not_built_on(folder: Path) -> None:
    write_plan_json(dataclasses.replace(pair(), usd_total=1.0), folder / "bad.json")
    refused(invoke("--plan", "bad.json"), "bad.json: NOT valid: 1 violation;", "[cost]", code=1)


def test_a_plan_whose_policy_does_not_promise_to_be_valid_is_refused(folder: Path) -> None:
    jobs = production(n_jobs=5, seed=1)
    plan = replay(jobs, "colocated", options_of(), convention="work").plan
    assert plan is not None
    path = saved(plan, folder)
    refused(invoke("--plan", path, "--now"), "NOT valid:", "planner check shows all", code=1)


def test_a_plan_of_dedicated_nodes_only_has_nothing_to_move(folder: Path) -> None:
    free = twin("free", mode="async")
    nodes = DedicatedNodes(job_id="free", from_s=0.0, to_s=HOUR_S, rollout_nodes=1, train_nodes=1)
    plan = plan_of(JobTable.from_jobs([free]), [], dedicated=(nodes,))
    refused(invoke("--plan", saved(plan, folder)), "Nothing runs in groups", code=1)


def test_files_that_are_no_plans(folder: Path) -> None:
    refused(invoke("--plan", "none.json"), "none.json", "No such file")
    write(folder / "text.json", "{")
    refused(invoke("--plan", "text.json"), "Not valid JSON")
    write(folder / "other.json", "{}")
    refused(invoke("--plan", "other.json"), "schema_version")
    refused(invoke(), "--plan")


@pytest.mark.parametrize(
    ("arguments", "parts", "code"),
    [
        ((), ("Expected --now or --at-hours",), 2),
        (("--now", "--at-hours", "1"), ("Expected one of --now and --at-hours",), 2),
        (("--at-hours", "nan"), ("finite number of hours",), 2),
        (("--at-hours", "soon"), ("--at-hours",), 2),
        (("--at-hours", "99"), ("No group runs at 99 h", "until 3 h"), 1),
        (("--now", "--progress", "p.csv"), ("has its history",), 2),
        (("--now", "--min-gain-usd", "-1"), ("--min-gain-usd >= 0",), 2),
        (("--now", "--restart-seconds", "-1"), ("--restart-seconds >= 0",), 2),
        (("--now", "--repack-rule", "residul"), ("Did you mean 'residual'?",), 2),
        (("--now", "--time-limit", "soon"), ("Expected --time-limit a time",), 2),
        (("--now", "--moves", "-1"), ("--moves",), 2),
    ],
)
def test_what_a_replay_refuses(
    folder: Path, arguments: tuple[str, ...], parts: tuple[str, ...], code: int
) -> None:
    refused(invoke("--plan", saved(replayed(), folder), *arguments), *parts, code=code)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--at-hours", "0"), "it is one moment"),
        (("--repack-rule", "break-even"), "since when its groups run unchanged"),
        (("--oracle", "remaining"), "a column remaining_s"),
        (("--progress", "p.csv"), "Missing column iterations. Did you mean 'iteration'?"),
    ],
)
def test_what_a_snapshot_refuses(folder: Path, arguments: tuple[str, ...], part: str) -> None:
    write(folder / "p.csv", "job_id,elapsed_s,iteration\na,1,1\nb,1,1\n")
    refused(invoke("--plan", saved(pair(), folder), *arguments), part)


def test_help_fits(folder: Path) -> None:
    shown = run(cwd=folder, words=_as_process("--help"), COLUMNS="80")
    assert shown.code == 0
    assert "--max-moves-per-job-day" in shown.out
