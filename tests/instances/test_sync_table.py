"""Flat and hierarchical sync beside the published ratios, and the measured override."""

from __future__ import annotations

import pytest

from instances.cluster_file import cluster_from_dict, cluster_to_dict
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Links
from instances.network import PUBLISHED_RATIOS, sync_seconds, sync_seconds_flat, sync_table


def test_the_table_by_hand() -> None:
    # 14 GB = 112 Gb: 5.6 s at 20 Gb/s, 0.28 s at 400 Gb/s; flat sends 8 or 16 copies.
    eight, sixteen = sync_table()
    assert (eight.gpus, sixteen.gpus) == tuple(PUBLISHED_RATIOS) == (8, 16)
    for row in (eight, sixteen):
        assert row.hierarchical_s == pytest.approx(5.88)
        assert row.flat_s == pytest.approx(row.gpus * 5.6)
        assert row.ratio == row.model_ratio == pytest.approx(row.flat_s / row.hierarchical_s)
    assert eight.ratio == pytest.approx(7.62, abs=0.005)
    assert (eight.published_low, eight.published_high) == (7.87, 8.33)
    assert eight.agrees


def test_the_failure_is_stated_with_its_remedy() -> None:
    sixteen = sync_table()[1]
    assert sixteen.ratio == pytest.approx(15.24, abs=0.005)
    assert (sixteen.published_low, sixteen.published_high) == (2.62, 2.75)
    assert not sixteen.agrees
    assert "fails" in sixteen.note
    assert "flat_over_hierarchical" in sixteen.note
    assert "sync_s" in sixteen.note


def test_a_measured_ratio_replaces_the_model_for_flat_sync_only() -> None:
    links = Links(flat_over_hierarchical=2.7)
    assert sync_seconds(14.0, links) == sync_seconds(14.0, Links())
    assert sync_seconds_flat(14.0, 16, links) == pytest.approx(2.7 * 5.88)
    sixteen = sync_table(links=links)[1]
    assert (sixteen.ratio, sixteen.agrees) == (2.7, True)
    assert sixteen.flat_s == pytest.approx(2.7 * 5.88)
    assert sixteen.model_ratio == pytest.approx(15.24, abs=0.005)  # still shown


def test_the_measured_ratio_comes_from_the_cluster_file() -> None:
    cluster = cluster_from_dict({"links": {"flat_over_hierarchical": 2.7}})
    assert cluster.links.flat_over_hierarchical == 2.7
    assert cluster_from_dict(cluster_to_dict(cluster)) == cluster
    assert DEFAULT_CLUSTER.links.flat_over_hierarchical is None
    assert "flat_over_hierarchical" not in cluster_to_dict(DEFAULT_CLUSTER)["links"]
    with pytest.raises(InputError, match=r"Expected \[links\] flat_over_hierarchical > 0, got 0\."):
        cluster_from_dict({"links": {"flat_over_hierarchical": 0}})
