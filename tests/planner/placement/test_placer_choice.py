"""Which of several admissions the placer takes: ties and objectives, by hand."""

from __future__ import annotations

import dataclasses
import random

import pytest

from builders import TRAIN_USD, cluster_of, job_of, members, random_job
from instances.generate import tiny_open_shop
from instances.jobs import Job
from placer_cases import LONG, SLACK, facts, placer_of
from planner.placement.placer import OBJECTIVES, TIE_RULES, Placer, PlacerParams

# --- Ties ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tie_rule", "newcomer", "winner"),
    [
        # deadline 450 shortens long (560) by 110 s and slack (400) by none
        ("least-shrink", {"slo": 450 / 40}, "slack"),
        # deadline 1000 shortens neither; fill (120 + 120) / 400 = 0.6, (160 + 160) / 560 = 0.57
        ("least-shrink", {"slo": 25}, "slack"),
        ("tightest", {"slo": 25}, "slack"),
        # deadline 450: 240 / 400 = 0.6 against 320 / 450 = 0.71
        ("tightest", {"slo": 450 / 40}, "long"),
        ("most-room", {"slo": 25}, "long"),
        ("most-room", {"slo": 450 / 40}, "slack"),
        # |400 - 500| = 100 against |560 - 500| = 60
        ("nearest-deadline", {"slo": 500 / 40}, "long"),
        ("nearest-deadline", {"slo": 450 / 40}, "slack"),
        # ends at 25,000 s: 15,000 from slack, 5,000 from long
        ("nearest-departure", {"slo": 25, "duration_s": 25_000}, "long"),
        ("nearest-departure", {"slo": 25, "duration_s": 15_000}, "slack"),
        ("nearest-departure", {"slo": 25, "duration_s": 5_000, "arrival_s": 20_000}, "long"),
    ],
)
@pytest.mark.parametrize("first", ["slack", "long"])
def test_tie_rule_does_what_its_name_says(
    tie_rule: str, newcomer: dict[str, float], winner: str, first: str
) -> None:
    jobs = [SLACK, LONG] if first == "slack" else [LONG, SLACK]
    placer = placer_of(*jobs, tie_rule=tie_rule)
    decision = placer.place(job_of("c", 20, 20, **newcomer))
    assert decision.kind == "direct"
    assert decision.group.jobs[0].job_id == winner


@pytest.mark.parametrize("jobs", [(SLACK, LONG), (LONG, SLACK)])
def test_oldest_takes_the_oldest(jobs: tuple[Job, Job]) -> None:
    placer = placer_of(*jobs, tie_rule="oldest")
    assert placer.place(job_of("c", 20, 20, 25)).group.number == 1


@pytest.mark.parametrize("tie_rule", TIE_RULES)
def test_age_is_the_last_tie(tie_rule: str) -> None:
    """Equal groups 1 to 3; group 1 leaves and group 4 takes its place in the arrays: still the
    older group 2 wins.
    """
    twins = [dataclasses.replace(SLACK, job_id=f"s{i}") for i in range(4)]
    placer = placer_of(*twins[:3], tie_rule=tie_rule)
    placer.remove("s0")
    assert placer.place(twins[3]).group.number == 4
    assert placer.place(job_of("c", 20, 20, 25)).group.number == 2


@pytest.mark.parametrize("tie_rule", TIE_RULES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_same_sequence_gives_the_same_decisions(tie_rule: str, objective: str) -> None:
    def run() -> list[object]:
        rng = random.Random(7)
        placer = placer_of(tie_rule=tie_rule, objective=objective, train_scaling=True)
        here: list[str] = []
        out: list[object] = []
        for i in range(60):
            out.append(placer.place(random_job(rng, f"j{i}")))
            here.append(f"j{i}")
            if rng.random() < 0.5:
                out.append(placer.remove(here.pop(rng.randrange(len(here)))))
        return out

    assert run() == run()


# --- The objective ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "kind"), [("per-hour", "direct"), ("per-iteration", "isolated")]
)
def test_per_iteration_isolates_where_stretching_costs_more(objective: str, kind: str) -> None:
    """Nodes at $1/h. a: five rollout nodes and a train node, T = 20, K C = 6 x 20 = 120. With b
    (T = 100) the group iterates at 100: marginal 6 x 100 - 120 = 480 against 2 x 100 alone.
    """
    placer = Placer(
        cluster=cluster_of(rollout_usd=1, train_usd=1), params=PlacerParams(objective=objective)
    )
    placer.place(job_of("a", 10, 10, 5, rollout_nodes=5))
    assert placer.place(job_of("b", 50, 50, 2)).kind == kind


@pytest.mark.parametrize(
    ("objective", "kind"), [("per-hour", "direct"), ("per-iteration", "rollout_scaled")]
)
def test_per_iteration_buys_a_node_where_stretching_costs_more(objective: str, kind: str) -> None:
    """Rollout $1/h, train $3/h; a = (30, 10): K C = 4 x 40 = 160. With b = (30, 5): direct, the
    rollout node carries 60: 4 x 60 - 160 = 80; scaled, C stays 40: 5 x 40 - 160 = 40; alone
    4 x 35 = 140.
    """
    placer = Placer(
        cluster=cluster_of(rollout_usd=1, train_usd=3), params=PlacerParams(objective=objective)
    )
    placer.place(job_of("a", 30, 10, 5))
    assert placer.place(job_of("b", 30, 5, 5)).kind == kind


def test_equal_costs_go_to_the_lesser_kind_then_to_the_older_group() -> None:
    """Nodes at $1/h, a = (30, 10): K C = 2 x 40 = 80. b = (30, 5) direct: 2 x 60 - 80 = 40;
    scaled, C stays 40: 3 x 40 - 80 = 40 too. The same in two groups that cannot merge.
    """
    placer = Placer(
        cluster=cluster_of(rollout_usd=1, train_usd=1),
        params=PlacerParams(objective="per-iteration"),
    )
    for job_id in ("a1", "a2"):
        placer.place(job_of(job_id, 30, 10, 5, train_state_gb=1500))
    assert facts(placer.place(job_of("b", 30, 5, 5))) == ("direct", 0.0, 1)


def test_per_iteration_shares_what_does_not_stretch() -> None:
    """(120, 60) and (60, 120) on one pair: C stays 180, so b rides for free."""
    placer = placer_of(*tiny_open_shop(), objective="per-iteration")
    assert len(placer.groups()) == 1


def test_per_iteration_takes_the_node_that_does_not_stretch() -> None:
    """a = (20, 1) on rollout node 0, b = (10, 1) on node 1 (DRAM keeps them apart): C = 21. On
    node 1 c = (10, 1) rolls out 10 + 10 < 21 and costs nothing more; on node 0, 20 + 10 = 30,
    it costs 71.84 x 9 = 647, more than 57.04 x 11 = 627 alone, so c is isolated.
    """
    placer = placer_of(
        job_of("a", 20, 1, 2, rollout_state_gb=1500),
        job_of("b", 10, 1, 3, rollout_state_gb=600),
        objective="per-iteration",
    )
    assert placer.group_of("b").rollout_pins == ((0,), (1,))
    decision = placer.place(job_of("c", 10, 1, 3))
    assert decision.kind == "direct"
    assert decision.group.period_s == 21


def test_per_hour_takes_the_cheaper_of_rollout_and_train_scaling() -> None:
    """Group 1 shares its train node with c, for 4 rollout nodes ($59.20/h); group 2 shares its
    four rollout nodes, for one train node ($42.24/h).
    """
    states = {"rollout_nodes": 4, "rollout_state_gb": 1500, "train_state_gb": 1500}
    placer = placer_of(
        job_of("a", 290, 10, 1, **states), job_of("b", 10, 290, 1, **states), train_scaling=True
    )
    assert members(placer.groups()) == {1: ["a"], 2: ["b"]}
    decision = placer.place(job_of("c", 200, 100, 1, rollout_nodes=4))
    assert facts(decision) == ("train_scaled", TRAIN_USD, 2)


@pytest.mark.parametrize("who", ["member", "newcomer"])
def test_train_scaling_pays_no_switch_on_a_new_train_node(who: str) -> None:
    """Rollouts 100 + 50 share a node, trains run on one node each, so nobody pays the train
    switch and both deadlines of 200 hold.
    """
    switch = {"train_switch_s": 5.0}
    a = job_of("a", 100, 100, 1, **(switch if who == "member" else {}))
    b = job_of("b", 50, 150, 1, **(switch if who == "newcomer" else {}))
    decision = placer_of(a, train_scaling=True).place(b)
    assert facts(decision) == ("train_scaled", TRAIN_USD, 1)
