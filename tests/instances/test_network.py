"""Weight synchronisation: hierarchical and flat, against the published ratios."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instances import network
from instances.hardware import Links
from instances.network import sync_gb_of_model, sync_seconds, sync_seconds_flat

LINKS = Links()  # 400 Gb/s inside, 20 Gb/s between


def ratio(gpus: int, links: Links = LINKS) -> float:
    """Return flat over hierarchical seconds; the size of the model cancels."""
    return sync_seconds_flat(64.0, gpus, links) / sync_seconds(64.0, links)


@pytest.mark.parametrize(("model_b", "gb"), [(0.5, 1.0), (7.0, 14.0), (32.0, 64.0), (70.0, 140.0)])
def test_a_copy_is_two_bytes_a_parameter(model_b: float, gb: float) -> None:
    assert sync_gb_of_model(model_b) == gb


def test_hierarchical_sync_by_hand() -> None:
    # 32B: 64 GB = 512 Gb; 25.6 s over the slow link, then 1.28 s inside.
    assert sync_seconds(64.0, LINKS) == pytest.approx(25.6 + 1.28)
    assert sync_seconds(0.0, LINKS) == 0.0
    # A link twice as fast halves its own part only.
    assert sync_seconds(64.0, Links(inter_gbps=40.0)) == pytest.approx(12.8 + 1.28)
    assert sync_seconds(64.0, Links(intra_gbps=800.0)) == pytest.approx(25.6 + 0.64)


def test_flat_sync_by_hand() -> None:
    # One copy for each of 8 GPUs over the slow link: 8 x 25.6 s.
    assert sync_seconds_flat(64.0, 8, LINKS) == pytest.approx(204.8)
    assert sync_seconds_flat(64.0, 1, LINKS) < sync_seconds(64.0, LINKS)  # nothing to broadcast


def test_eight_to_eight_is_within_ten_percent_of_what_was_measured() -> None:
    # Measured 7.87-8.33 x; the model gives 8 / (1 + 20/400) = 7.62.
    assert ratio(8) == pytest.approx(8 / 1.05)
    for measured in (7.87, 8.33):
        assert ratio(8) == pytest.approx(measured, rel=0.10)


def test_sixteen_to_sixteen_is_where_the_model_fails_and_says_so() -> None:
    # The model gives 16 / 1.05 = 15.24; measured 2.62-2.75 x, more than five times less.
    assert ratio(16) == pytest.approx(15.2, abs=0.05)
    assert ratio(16) > 5 * 2.75
    words = network.__doc__ or ""
    assert "2.62-2.75" in words
    assert "15.24" in words
    assert "fails" in words


@given(st.integers(1, 512), st.floats(1.0, 1e3), st.floats(1.0, 1e4))
def test_the_ratio_is_gpus_over_one_plus_the_ratio_of_links(
    gpus: int, inter: float, intra: float
) -> None:
    links = Links(inter_gbps=inter, intra_gbps=intra)
    assert ratio(gpus, links) == pytest.approx(gpus / (1 + inter / intra))


def test_a_column_gives_what_its_cells_give() -> None:
    models = np.array([3.0, 7.0, 14.0, 32.0])
    sizes = sync_gb_of_model(models)
    assert sizes.tolist() == [sync_gb_of_model(float(b)) for b in models]
    seconds = sync_seconds(sizes, LINKS)
    assert seconds.shape == (4,)
    assert seconds.tolist() == [sync_seconds(float(gb), LINKS) for gb in sizes]
    assert models.tolist() == [3.0, 7.0, 14.0, 32.0]  # the input is left alone
