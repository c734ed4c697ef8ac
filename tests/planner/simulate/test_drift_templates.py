"""Templates of one growth shape, and the phase seconds that follow lengths."""

from __future__ import annotations

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import job_of, table_of
from instances.errors import InputError
from planner.simulate.drift_templates import (
    DEFAULT_SHAPE,
    SETTINGS,
    TEMPLATES,
    GrowthShape,
    LawFactors,
    Lengths,
    drawn_templates,
)
from planner.simulate.lengths import LengthLaw

#: Lengths double by the end of life.
DOUBLING = GrowthShape(life_share=(0.0, 1.0), relative_length=(1.0, 2.0), source="hand")


def lengths_of(template: float, **more: float | bool) -> Lengths:
    """One job of 200 s and 100 s at the limit, 1,000 s long, at half the limit at arrival."""
    jobs = table_of(job_of("a", 200, 100, duration_s=1000.0))
    return Lengths(jobs=jobs, template=(template,), shape=DOUBLING, **more)  # type: ignore[arg-type]


def test_the_seven_templates_are_multiples_of_the_deviation_from_one() -> None:
    assert TEMPLATES == (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
    shape = GrowthShape(life_share=(0, 0.5, 1), relative_length=(1, 1.4, 1.6), source="hand")
    # at 3/4 of life the shape is 1.5, its deviation 0.5
    found = [shape.length(0.75, template) for template in TEMPLATES]
    assert found == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75], rel=1e-12)


def test_the_default_shape_grows_ever_slower_and_is_called_a_guess() -> None:
    steps = np.diff(DEFAULT_SHAPE.relative_length)
    assert (steps > 0).all()
    assert (np.diff(steps) < 0).all()
    assert DEFAULT_SHAPE.relative_length[-1] == pytest.approx(1.6)
    assert DEFAULT_SHAPE.source.startswith("guess")
    DEFAULT_SHAPE.require_positive(TEMPLATES)  # 1 - 1.5 x 0.6 = 0.1


def test_after_its_planned_life_a_job_keeps_its_length() -> None:
    assert DOUBLING.length(1.5, 1.0) == 2.0


@pytest.mark.parametrize(
    ("shares", "lengths", "word"),
    [
        ((0.0,), (1.0,), "two rows"),
        ((0.0, 0.5), (1.0, 2.0), "from 0 to 1"),
        ((0.0, 1.0, 1.0), (1.0, 2.0, 2.0), "from 0 to 1"),
        ((0.0, 1.0), (1.0, 0.0), "> 0"),
        ((0.0, 1.0), (1.0, float("nan")), "> 0"),
        ((0.0, 1.0), (1.1, 2.0), "1 at life_share 0"),
    ],
)
def test_a_shape_is_checked(
    shares: tuple[float, ...], lengths: tuple[float, ...], word: str
) -> None:
    with pytest.raises(InputError, match=word):
        GrowthShape(life_share=shares, relative_length=lengths, source="hand")


def test_a_shape_is_read_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / "shape.csv"
    path.write_text("life_share,relative_length\n0,1\n0.5,1.25\n1,2\n", encoding="utf-8")
    shape = GrowthShape.from_csv(path)
    assert shape.relative_length == (1.0, 1.25, 2.0)
    assert shape.source == "shape.csv"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "columns life_share"),
        ("share,length\n0,1\n1,2\n", "columns life_share"),
        ("life_share,relative_length\n0,1\n1,long\n", "row 2"),
        ("life_share,relative_length\n0,1\n1\n", "row 2"),
        ("life_share,relative_length\n0,1\n1,2\0\n", "NUL byte"),
    ],
)
def test_a_faulty_table_is_refused(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "shape.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=word):
        GrowthShape.from_csv(path)


def test_a_template_under_which_lengths_vanish_is_refused() -> None:
    with pytest.raises(InputError, match="template -1"):
        lengths_of(-1.0)  # 1 - (2 - 1) = 0 at the end


@pytest.mark.parametrize("setting", SETTINGS)
def test_templates_are_drawn_from_the_setting_by_seed(setting: str) -> None:
    drawn = drawn_templates(200, setting, 3)
    assert set(drawn) == set(SETTINGS[setting])  # 200 draws miss one of seven with p < 1e-12
    assert drawn == drawn_templates(200, setting, 3)
    assert drawn[:50] == drawn_templates(50, setting, 3)
    assert len(SETTINGS[setting]) == 1 or drawn != drawn_templates(200, setting, 4)


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean 'increasing'"):
        drawn_templates(1, "increase", 0)


def test_phases_are_in_proportion_to_lengths() -> None:
    lengths = lengths_of(1.0)
    assert lengths.phases_s(0, 0.0) == (100.0, 50.0)
    assert lengths.phases_s(0, 500.0) == (150.0, 75.0)
    assert lengths.phases_s(0, 1000.0) == (200.0, 100.0)
    table = lengths.at_arrival()
    assert (table.rollout_s[0], table.train_s[0], table.sync_s[0]) == (100.0, 50.0, 0.0)


def test_nothing_takes_longer_than_at_the_limit_unless_stated() -> None:
    assert lengths_of(1.0, start_share=0.8).phases_s(0, 500.0) == (200.0, 100.0)  # not 1.2 x
    beyond = lengths_of(1.0, start_share=0.8, beyond_limit=True)
    assert beyond.phases_s(0, 500.0) == pytest.approx((240.0, 120.0), rel=1e-12)


@pytest.mark.parametrize("share", [0.0, 1.1, float("nan")])
def test_a_start_share_is_above_0_and_at_most_1(share: float) -> None:
    with pytest.raises(InputError, match="start_share"):
        lengths_of(0.0, start_share=share)


@given(
    template=st.sampled_from(TEMPLATES),
    start_share=st.floats(0.05, 1.0),
    running_s=st.floats(0.0, 5e3),
)
def test_phases_stay_within_the_worst_case(
    template: float, start_share: float, running_s: float
) -> None:
    jobs = table_of(job_of("a", 200, 100, duration_s=1000.0))
    lengths = Lengths(jobs=jobs, template=(template,), start_share=start_share)
    rollout_s, train_s = lengths.phases_s(0, running_s)
    assert 0 < rollout_s <= 200
    assert 0 < train_s <= 100


# --- by laws of lengths ---------------------------------------------------------------------------

#: Uniform between 0 and 0.4 of the limit.
UNIFORM = LengthLaw(limit_tokens=1.0, at=(0.0, 1.0), tokens=(0.0, 0.4))


def test_by_law_the_straggler_ends_the_rollout_and_train_goes_by_tokens() -> None:
    factors = LawFactors([UNIFORM], [1])
    # one response: median 0.2, mean 0.2; twice as long: 0.4 and 0.4
    assert factors.at(0, 1.0) == pytest.approx((0.2, 0.2), rel=1e-9)
    assert factors.at(0, 2.0) == pytest.approx((0.4, 0.4), rel=1e-9)
    # of three, the longest has its median at 0.5^(1/3) of the way; the mean stays
    assert LawFactors([UNIFORM], [3]).at(0, 1.0) == pytest.approx((0.4 * 0.5 ** (1 / 3), 0.2))


def test_by_law_lengths_are_cut_off_at_the_limit() -> None:
    # uniform on (0, 1.2), above 1 cut off: mean (1 / 1.2) / 2 + (0.2 / 1.2) = 7 / 12
    rollout, train = LawFactors([UNIFORM], [100]).at(0, 3.0)
    assert rollout == 1.0
    assert train == pytest.approx(7 / 12, rel=1e-4)


def test_a_lognormal_law_is_shifted() -> None:
    law = LengthLaw.through(1000.0, [(0.5, 100.0), (NormalDist().cdf(1.0), 200.0)])
    rollout, _ = LawFactors([law], [1]).at(0, 3.0)
    assert rollout == pytest.approx(0.3, rel=1e-12)  # the median of one response, trebled


def test_laws_are_one_per_job() -> None:
    jobs = table_of(job_of("a", 200, 100))
    with pytest.raises(InputError, match="one law per job"):
        Lengths(jobs=jobs, template=(0.0,), factors=LawFactors([], []))
    with pytest.raises(InputError, match="responses"):
        LawFactors([UNIFORM], [0])


def test_a_trace_without_columns_has_the_guessed_law() -> None:
    jobs = table_of(job_of("a", 200, 100))
    lengths = Lengths(jobs=jobs, template=(0.0,), factors=LawFactors.of(jobs))
    rollout_s, train_s = lengths.phases_s(0, 0.0)
    # of 512 responses the longest is far out in the tail, the mean is not
    assert 0.6 * 200 < rollout_s <= 200
    assert train_s < 0.1 * 100
