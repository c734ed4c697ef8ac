"""Gains of long-tail migration: by hand, paired, searched apart, beside the published range."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import job_of
from instances.errors import InputError
from models.problem.options import Deadline
from planner.simulate.lengths import LengthLaw
from planner.simulate.migration import Migration
from planner.simulate.migration_study import (
    LENGTHS,
    Cell,
    Inputs,
    Pairing,
    cell_of,
    each_migration_row,
    pairings,
    search,
    variants,
)

#: All responses at the limit: nothing is left to move when 80 % have finished.
AT_LIMIT = {"limit": LengthLaw(limit_tokens=1.0)}
PERIODS = 12
SEEDS = range(2)


def pair(rollout_s: float, train_s: float, shared_train: bool = True) -> Pairing:
    """Two equal jobs on one rollout node, without switches and sync."""
    return Pairing(
        name="pair",
        jobs=tuple(job_of(name, rollout_s, train_s, slo=100.0) for name in "ab"),
        rollout_pins=((0,), (0,)),
        train_pins=((0,), (0,)) if shared_train else ((0,), (1,)),
    )


def cell(pairing: Pairing, lengths: str, inputs: Inputs | None = None) -> Cell:
    return cell_of(pairing, lengths, inputs, seeds=SEEDS, periods=PERIODS)


def test_equal_lengths_leave_nothing_to_move() -> None:
    got = cell_of(pair(100, 20), "limit", seeds=SEEDS, periods=PERIODS, laws=AT_LIMIT)
    assert (got.gain.mean, got.moved_share, got.before_share) == (1.0, 0.0, 1.0)
    assert (got.binds, got.effect) == ("rollout", "neither")


def test_a_rollout_bound_pair_gains_up_to_its_load_over_the_chain() -> None:
    """Both rollouts last about 2 x mean r on the node, one chain mean r + t: at most
    2 r / (r + t), were all rollouts equally long. Sampled: each rollout starts after the other's
    in turn, so without migration the node's load is the period, and with it the sum of both
    chains' slower one; the ratio stays below 2 whatever is drawn.
    """
    free = Inputs(migration=Migration(migration_s=0.0))
    got = cell(pair(1000, 10), "long tail", free)
    assert (got.binds, got.effect) == ("rollout", "helps")
    assert 1.5 < got.gain.mean < 2.0


def test_a_train_bound_pair_gains_nothing() -> None:
    """t = 10 r on one train node, as long as planned: 2 t whatever the rollouts do."""
    got = cell(pair(100, 1000), "medium", Inputs(train_fixed_share=1.0))
    assert got.binds == "train"
    assert got.gain.mean == pytest.approx(1.0, abs=1e-9)


def test_moving_unasked_hurts_where_the_chain_binds() -> None:
    """Each job has a train node: a chain of r + t with t = 10 r, each move adds 30 s to it."""
    always = Inputs(train_fixed_share=1.0, migration=Migration(migration_s=30.0, when="always"))
    got = cell(pair(100, 1000, shared_train=False), "medium", always)
    assert (got.binds, got.effect) == ("chain", "hurts")
    # r is 100 s at most, so T is at most 1,100; a move adds 30 s to nearly every iteration
    assert got.gain.mean == pytest.approx(1 - got.moved_share * 30 / 1100, abs=0.01)
    wanted = replace(always, migration=replace(always.migration, when="wanted"))
    assert cell(pair(100, 1000, shared_train=False), "medium", wanted).gain.mean > got.gain.mean


def test_a_dearer_move_earns_less() -> None:
    gains = [
        cell(pair(500, 50), "medium", Inputs(migration=Migration(migration_s=s))).gain.mean
        for s in (0.0, 30.0, 150.0)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > gains[-1]


def test_no_migration_is_no_gain_exactly() -> None:
    for migration in (Migration(threshold=1.0), Migration(migration_s=float("inf"))):
        got = cell(pairings()[0], "medium", Inputs(migration=migration))
        assert (got.gain.mean, got.moved_share) == (1.0, 0.0)


def test_the_search_is_judged_by_other_seeds_and_may_choose_nothing() -> None:
    found = search(
        pair(100, 1000, shared_train=False),
        "medium",
        Inputs(train_fixed_share=1.0, migration=Migration(migration_s=300.0)),
        seeds=SEEDS,
        search_seeds=range(100, 101),
        periods=PERIODS,
    )
    assert found.best.inputs.migration.threshold == 1.0
    assert found.best.gain.mean == 1.0 >= found.usual.gain.mean
    with pytest.raises(InputError, match="some in both"):
        search(pair(1, 1), "medium", seeds=[1], search_seeds=[1])


def test_the_best_beats_the_usual_where_a_lower_threshold_pays() -> None:
    found = search(
        pairings()[0], "short tail", seeds=SEEDS, search_seeds=range(100, 101), periods=PERIODS
    )
    assert found.best.inputs.migration.threshold < 0.8
    assert found.best.gain.mean > found.usual.gain.mean
    assert found.row["gain"] == found.best.gain.mean


def test_rows_cover_every_pairing_and_agree_where_intervals_meet() -> None:
    told: list[tuple[int, int]] = []
    laws = {"medium": LENGTHS["medium"]}
    rows = list(
        each_migration_row(
            seeds=SEEDS,
            periods=10,
            laws=laws,
            progress=lambda done, total: told.append((done, total)),
        )
    )
    cells = len(pairings()) * len(variants())
    assert len(rows) == 2 * len(pairings())
    assert told[-1] == (cells, cells)
    for row in rows:
        (ours,) = {(i.mean, i.low, i.high) for i in row.ours.values()}
        assert None not in ours
        meets = ours[1] <= 1.28 and ours[2] >= 1.06
        assert (row.verdict == "agrees within the interval") == meets
        assert "not published" in row.why
        assert row.over == ("inputs" if "over the family" in row.item else "seeds")


def test_same_seeds_same_cell() -> None:
    assert cell(pairings()[6], "short tail") == cell(pairings()[6], "short tail")


def test_a_deadline_leaves_pairings_out() -> None:
    late = Deadline(lambda: 0.0, 0.0)
    assert list(each_migration_row(seeds=SEEDS, periods=10, deadline=late)) == []


def test_lengths_are_ordered_by_their_medians() -> None:
    medians = [law.quantile(0.5) for law in LENGTHS.values()]
    assert medians == sorted(medians)
    assert float(np.mean(LENGTHS["a third at the limit"].of(np.linspace(-3, 3, 601)) == 1)) > 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"lengths": "unknown"}, "Expected lengths in"),
        ({"lengths": "medium", "seeds": []}, "Expected a seed"),
        ({"lengths": "medium", "periods": 9}, "10 periods"),
    ],
)
def test_refusals(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        cell_of(pair(1, 1), **arguments)  # type: ignore[arg-type]
