"""Micro-benchmarks: closed forms, and what holds at every member of the family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from builders import PAIR_USD, ROLLOUT_USD, TRAIN_USD
from instances.errors import InputError
from planner.replay.published import AGREES, DIFFERS
from planner.reproduce.micro_benchmarks import (
    MIXES,
    Mix,
    family,
    micro_benchmark_rows,
    one_large_two_small,
    outcome_of,
    three_on_a_train_node,
    two_alike,
)


def plain(mix: Mix) -> Mix:
    """Return the mix without switches and sync: what closed forms are about."""
    none: dict[str, Any] = {"rollout_switch_s": 0.0, "train_switch_s": 0.0, "sync_s": 0.0}
    return replace(mix, jobs=tuple(replace(job, **none) for job in mix.jobs))


# --- closed forms, switches and sync 0 -----------------------------------------------------------


@pytest.mark.parametrize(
    ("rollout_s", "train_s", "gain"), [(300, 300, 2.0), (400, 200, 1.5), (450, 150, 4 / 3)]
)
def test_two_alike(rollout_s: float, train_s: float, gain: float) -> None:
    """C = max(2 r, 2 t, r + t), so two jobs gain ``2 (r + t) / C`` on the nodes of one."""
    outcome = outcome_of(plain(two_alike(rollout_s, train_s)))
    assert outcome.weave == outcome.weave_by_job == pytest.approx(gain)
    assert outcome.gavel_warm == outcome.gavel_cold == pytest.approx(1.0)
    assert outcome.colocated == outcome.swapping == pytest.approx(PAIR_USD / TRAIN_USD)
    assert outcome.over["gavel"] == pytest.approx(gain)
    assert outcome.over["colocated"] == pytest.approx(gain * TRAIN_USD / PAIR_USD)


@pytest.mark.parametrize(
    ("train_s", "period_s"),
    [(100, 700), (300, 900)],  # the long job's own iteration; three trains on one node
)
def test_three_on_a_train_node(train_s: float, period_s: float) -> None:
    """r = 400, 400 and 600 s; three pairs' work on three rollout nodes and one train node."""
    outcome = outcome_of(plain(three_on_a_train_node(400, train_s, 1.5)))
    assert outcome.period_s == pytest.approx(period_s)
    speeds = (2 * (400 + train_s) + 600 + train_s) / period_s
    assert outcome.weave == pytest.approx(speeds * PAIR_USD / (3 * ROLLOUT_USD + TRAIN_USD))
    assert outcome.gavel_warm == pytest.approx(1.0)


@pytest.mark.parametrize("smaller", [0.5, 1.0])
def test_one_large_two_small(smaller: float) -> None:
    """r = t = 300 s: C = 600 s, the large job's own, for both: four pairs' work on two pairs.

    The large job does all of its work (2 pairs), the small ones ``smaller`` of theirs (2 pairs).
    """
    outcome = outcome_of(plain(one_large_two_small(300, 300, smaller)))
    assert outcome.period_s == pytest.approx(600)
    assert outcome.weave == pytest.approx((2 + 2 * smaller) / 2)
    assert outcome.weave_by_job == pytest.approx((1 + 2 * smaller) / 3 * 2)
    assert outcome.gavel_warm == pytest.approx(1.0)  # the small ones side by side
    assert outcome.colocated == pytest.approx(PAIR_USD / TRAIN_USD)  # as many of each node


def test_switches_and_the_factor_are_paid() -> None:
    """Two jobs of 300 s, 300 s; warm switches 0.9 and 4.1 s, sync 14 GB x 8 / (20 and 400 Gb/s).

    T = 605.88 s; weave pays both switches in each iteration, so C = T + 5 (2 x 304.1 is less);
    gavel one of each in a turn of one iteration: round 2 (T + 5), both at T / C / 2 of their speed.
    """
    mix = two_alike(300, 300)
    solo_s = 600 + 112 / 20 + 112 / 400
    assert mix.jobs[0].solo_s == pytest.approx(solo_s)
    outcome = outcome_of(mix, colocated_factor=1.25)
    assert outcome.period_s == pytest.approx(solo_s + 5)
    assert outcome.weave == pytest.approx(2 * solo_s / (solo_s + 5))
    assert outcome.gavel_warm == pytest.approx(solo_s / (solo_s + 5))
    cold_s = 0.9 * 135.8 / 1.9 + 4.1 * 116 / 5.9
    assert outcome.gavel_cold == pytest.approx(solo_s / (solo_s + cold_s))
    assert outcome.colocated == pytest.approx(PAIR_USD / TRAIN_USD / 1.25)
    swapped = solo_s / (1.25 * solo_s + 5)
    assert outcome.swapping == pytest.approx(swapped * PAIR_USD / TRAIN_USD)


# --- the families --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "most"), [(MIXES[0], 2.0), (MIXES[1], 1.98), (MIXES[2], 2.0)])
def test_what_holds_whatever_is_not_published(name: str, most: float) -> None:
    """``most``: all jobs at full speed, 2 / 1, 3 x 57.04 / (3 x 14.80 + 42.24) = 1.975, 4 / 2."""
    outcomes = [outcome_of(mix) for mix in family(name)]
    assert len(outcomes) >= 27
    for outcome in outcomes:
        assert outcome.at_bound  # the least period there is
        assert 1 < outcome.weave <= most
        assert outcome.gavel_cold < outcome.gavel_warm <= 1  # a time share earns no more than solo
        assert outcome.swapping < outcome.colocated
        assert outcome.over["gavel"] > outcome.over["solo"]


def test_unknown_mix() -> None:
    with pytest.raises(InputError, match="Expected a mix in two alike"):
        next(family("two"))


def test_rows_stand_beside_the_published_figures() -> None:
    seen: list[tuple[str, int, int]] = []
    rows = micro_benchmark_rows(progress=lambda *at: seen.append(at))
    assert seen == [("micro-benchmarks", n, 3) for n in (1, 2, 3)]
    published = {row.item: row.published for row in rows if "derived" not in row.item}
    assert [published[f"{MIXES[0]}: weave over {s}"] for s in ("solo", "gavel", "colocated")] == [
        "1.82",
        "1.73",
        "1.47",
    ]
    assert len(published) == 9
    assert len(rows) == 15
    for row in rows:
        ours = row.ours["work"]
        assert ours == row.ours["wallclock"]
        assert ours.low is not None
        assert ours.high is not None
        assert ours.low <= ours.mean * (1 + 1e-12)
        assert ours.mean <= ours.high * (1 + 1e-12)
        within = ours.meets(float(row.published) - 0.011, float(row.published) + 0.011)
        assert row.verdict in ((AGREES, DIFFERS) if within else (DIFFERS,))
        assert "range over the family" in row.why
        assert row.over == "inputs"
    gavel = [row for row in rows if row.item.endswith("gavel over solo (derived)")]
    assert [row.published for row in gavel] == ["1.05", "1.33", "1.12"]
    assert {row.verdict for row in gavel} == {DIFFERS}  # no time share earns more than solo
