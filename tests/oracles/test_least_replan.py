"""The re-planning oracle: values derived by hand, and the snapshot oracle where moves are free."""

from __future__ import annotations

import random
from typing import Any

import pytest

from oracles.least_replan import Replanning, Running
from oracles.least_snapshot import least_snapshot
from replan_cases import random_case
from small_snapshots import jobs_of, snapshot_of

PAIR_USD = 57.04


def replanning(jobs: Any, hosts: list[Running], **more: Any) -> Replanning:
    snapshot = snapshot_of(jobs)
    n = len(jobs)
    given: dict[str, Any] = {"lasting_h": 1.0, "move_usd": [5.0] * n, "may_move": [True] * n}
    return Replanning(snapshot.jobs, snapshot.cluster, snapshot.limits, hosts, **(given | more))


def alone(*jobs: int) -> list[Running]:
    return [Running((j,), ((0,),), ((0,),)) for j in jobs]


def test_values_by_hand() -> None:
    """Three jobs fill one node of each kind; each move saves a pair of nodes."""
    jobs = jobs_of((2, 2, 2), (2, 2, 2), deadline_s=6)
    three = replanning(jobs, alone(0, 1, 2))
    assert [three.least(most) for most in (0, 1, 2, None)] == pytest.approx(
        [3 * PAIR_USD, 2 * PAIR_USD + 5, PAIR_USD + 10, PAIR_USD + 10]
    )
    assert replanning(jobs, alone(0, 1)).least(0) == pytest.approx(2 * PAIR_USD)
    fixed = replanning(jobs, alone(0, 1, 2), may_move=[False, False, True])
    assert fixed.least() == pytest.approx(2 * PAIR_USD + 5)
    assert replanning(jobs, alone(0, 1, 2), lasting_h=0.0).least() == 0


def test_pins_bind_who_stays() -> None:
    """Two jobs on two rollout nodes that fit one: a node less for one move, 14.80 against 5."""
    jobs = jobs_of((2, 2), (2, 2), deadline_s=6)
    apart = [Running((0, 1), ((3,), (4,)), ((3,), (3,)))]
    assert replanning(jobs, apart).least() == pytest.approx(PAIR_USD + 5)
    assert replanning(jobs, apart).least(0) == pytest.approx(PAIR_USD + 14.80)


def test_hosts_have_one_heir() -> None:
    """Two jobs that cannot share a node run as one group, unconnected: to part them is a move.

    As they are is as cheap and counts as a part of the host, connected or not.
    """
    jobs = jobs_of((3, 3), (3, 3), deadline_s=6, rollout_state_gb=(1500, 1500),
                   train_state_gb=(1500, 1500))  # fmt: skip
    host = [Running((0, 1), ((0,), (1,)), ((0,), (1,)))]
    for connected in (False, True):
        assert replanning(jobs, host, connected=connected).least() == pytest.approx(2 * PAIR_USD)


@pytest.mark.parametrize("seed", range(25))
def test_free_moves_cost_what_the_snapshot_does(seed: int) -> None:
    """With moves free, pins and hosts do not matter."""
    case = random_case(random.Random(seed), 3)
    snapshot = case.snapshot
    free = Replanning(
        snapshot.jobs,
        snapshot.cluster,
        snapshot.limits,
        [Running(host.members, host.rollout_pins, host.train_pins) for host in case.hosts],
        lasting_h=1.0,
        move_usd=[0.0] * len(snapshot),
        may_move=[True] * len(snapshot),
    ).least()
    best = least_snapshot(snapshot.jobs, snapshot.cluster, snapshot.limits).usd_per_hour
    assert free == pytest.approx(best)
    assert case.oracle() <= case.oracle(connected=True) <= case.kept_usd() + 1e-9
