"""Options of the exact methods, their one clock, and the methods by name."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from math import inf, nan
from typing import Any

import pytest

from instances.errors import InputError
from models.exact.methods import METHODS, require_method, solve
from models.problem.options import Deadline, OutOfTimeError, SolveOptions
from models.problem.result import Termination
from small_snapshots import jobs_of, snapshot_of


class FakeClock:
    """Seconds that pass only when told."""

    def __init__(self, now_s: float = -50.0) -> None:
        self.now_s = now_s
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now_s


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("time_limit_s", -0.1, ">= 0"),
        ("time_limit_s", inf, ">= 0"),
        ("time_limit_s", nan, ">= 0"),
        ("work_limit", -1, ">= 0"),
        ("work_limit", nan, ">= 0"),
        ("grid_s", 0.0, "> 0"),
        ("grid_s", -0.001, "> 0"),
        ("grid_s", inf, "> 0"),
        ("grid_s", nan, "> 0"),
        ("node_limit", -1, "a whole number >= 0"),
        ("node_limit", 1.0, "a whole number >= 0"),
        ("max_groups", 0, "a whole number >= 1"),
        ("max_groups", None, "a whole number >= 1"),
        ("threads", 0, "a whole number >= 1"),
        ("threads", True, "a whole number >= 1"),
        ("seed", -1, "a whole number >= 0"),
        ("seed", 1.5, "a whole number >= 0"),
        ("seed", 2**31, "< 2^31"),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(name: str, value: Any, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        SolveOptions(**{name: value})
    assert str(caught.value) == f"Expected {name} {rule}, got {value!r}."


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"time_limit_s": 0, "work_limit": 0.0, "node_limit": 0},
        {"time_limit_s": None, "work_limit": None, "node_limit": None},
        {"grid_s": 1e-9, "max_groups": 1, "threads": 1, "seed": 2**31 - 1},
    ],
)
def test_the_ends_of_every_range_are_taken(options: dict[str, Any]) -> None:
    made = SolveOptions(**options)
    assert {name: getattr(made, name) for name in options} == options


def test_options_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SolveOptions().seed = 1  # type: ignore[misc]


# --- the clock --------------------------------------------------------------------------------


def test_a_deadline_counts_from_its_start_whatever_the_clocks_origin() -> None:
    clock = FakeClock(-50.0)
    deadline = SolveOptions(time_limit_s=10, clock=clock).start()
    assert (deadline.elapsed_s, deadline.remaining_s(), deadline.expired) == (0, 10, False)
    clock.now_s += 4
    assert (deadline.elapsed_s, deadline.remaining_s(), deadline.expired) == (4, 6, False)
    deadline.check()


def test_a_deadline_has_passed_at_its_very_moment_and_nothing_is_left_after() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, 10)
    for later_s in (10, 15):
        clock.now_s = -50 + later_s
        assert (deadline.remaining_s(), deadline.expired) == (0, True)
        with pytest.raises(OutOfTimeError):
            deadline.check()


def test_no_time_at_all_has_passed_before_it_begins() -> None:
    deadline = Deadline(FakeClock(), 0)
    assert deadline.expired
    assert deadline.remaining_s() == 0


def test_without_a_limit_no_time_is_too_long() -> None:
    clock = FakeClock()
    deadline = SolveOptions(clock=clock).start()
    clock.now_s += 1e12
    assert (deadline.remaining_s(), deadline.expired) == (None, False)
    deadline.check()
    assert deadline.elapsed_s == 1e12


def test_a_share_ends_before_the_whole() -> None:
    """A quarter of the 8 s left after 2 of 10: over at 4, by the same clock."""
    clock = FakeClock()
    deadline = SolveOptions(clock=clock, time_limit_s=10.0).start()
    clock.now_s += 2.0
    share = deadline.share(0.25)
    assert share.remaining_s() == pytest.approx(2.0)
    clock.now_s += 2.0
    assert share.expired
    assert deadline.remaining_s() == pytest.approx(6.0)
    assert SolveOptions(clock=clock).start().share(0.5).remaining_s() is None


# --- the methods ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_each_method_is_a_solve_of_its_own_module(name: str) -> None:
    module = import_module(METHODS[name])
    assert name == module.METHOD
    assert callable(module.solve)


def test_a_misspelt_method_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError) as caught:
        require_method("exaustive")
    assert str(caught.value) == (
        "Expected method in exhaustive, milp, cpsat, set-partition, got 'exaustive'. "
        "Did you mean 'exhaustive'?"
    )
    with pytest.raises(InputError, match=r"got 'zzz'\.$"):
        require_method("zzz")
    for name in METHODS:
        require_method(name)


def test_solve_calls_the_method_of_that_name_and_no_other() -> None:
    snapshot = snapshot_of(jobs_of((1,), (1,)))
    result = solve("exhaustive", snapshot, SolveOptions(seed=3))
    assert (result.method, result.termination) == ("exhaustive", Termination.OPTIMAL)
    assert result.seed == 3
    with pytest.raises(InputError, match="Expected method in"):
        solve("Exhaustive", snapshot, SolveOptions())
