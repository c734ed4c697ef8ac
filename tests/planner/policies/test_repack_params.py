"""Parameters of ``repack``: ranges, and what is said out of them."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from instances.errors import InputError
from planner.policies.repack_params import RepackParams


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rule", "residul", "Expected rule in residual, break-even, got 'residul'. Did you mean"),
        ("oracle", "all", "Expected oracle in none, remaining, got 'all'."),
        ("lasting_h", 0.0, "Expected lasting_h > 0, got 0.0."),
        ("lasting_h", inf, "Expected lasting_h > 0, got inf."),
        ("review_h", -1.0, "Expected review_h > 0, got -1.0."),
        ("review_h", nan, "Expected review_h > 0, got nan."),
        ("moves_per_job", -0.1, "Expected moves_per_job >= 0, got -0.1."),
        ("moves_per_job", nan, "Expected moves_per_job >= 0, got nan."),
        ("moves_per_job", None, "Expected moves_per_job >= 0, got None."),
        ("max_moves_per_job_day", -1, "Expected max_moves_per_job_day >= 0, got -1."),
        ("max_moves_per_job_day", 1.5, "Expected a whole number of max_moves_per_job_day, got"),
        ("min_gain_usd", -1.0, "Expected min_gain_usd >= 0, got -1.0."),
        ("min_gain_usd", inf, "Expected min_gain_usd >= 0, got inf."),
        ("overlap_s", -1.0, "Expected overlap_s >= 0, got -1.0."),
        ("max_scope", 1, "Expected max_scope >= 2, got 1."),
        ("max_scope", 2.5, "Expected a whole number of max_scope, got 2.5."),
        ("scopes", 0, "Expected scopes >= 1, got 0."),
        ("scopes", 1.5, "Expected a whole number of scopes, got 1.5."),
    ],
)  # fmt: skip
def test_out_of_range(name: str, value: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        RepackParams(**{name: value})
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lasting_h", None),
        ("lasting_h", 1e-6),
        ("review_h", 0.25),
        ("moves_per_job", 0.0),
        ("moves_per_job", inf),
        ("max_moves_per_job_day", 0),
        ("max_moves_per_job_day", None),
        ("min_gain_usd", 0.0),
        ("max_scope", 2),
        ("scopes", 1),
    ],
)
def test_the_ends_of_the_ranges(name: str, value: Any) -> None:
    assert getattr(RepackParams(**{name: value}), name) == value
