"""HiGHS through Pyomo: its statuses, options, limits, Ctrl-C, and a clean standard output."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyomo.environ as pyo
import pytest
from pyomo.contrib.solver.common.results import SolutionStatus, TerminationCondition

from instances.errors import InputError
from models.backends.pyomo_highs import ENDED, HELD, Ended, Solved, options_of, solve
from models.problem.options import SolveOptions


def knapsack(capacity: float) -> Any:
    """Two items of weight 2 and value 3 each, at least one of which must be packed."""
    m = pyo.ConcreteModel()
    m.x = pyo.Var([0, 1], domain=pyo.Binary)
    m.fits = pyo.Constraint(expr=2 * m.x[0] + 2 * m.x[1] <= capacity)
    m.some = pyo.Constraint(expr=m.x[0] + m.x[1] >= 1)
    m.cost = pyo.Objective(expr=-3 * m.x[0] - 3 * m.x[1])
    return m


def market_split(n: int = 40, rows: int = 5) -> Any:
    """Halve several weights at once: its bound stays 0 for hours, and so does the search."""
    rng = random.Random(1)
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(n), domain=pyo.Binary)
    m.over = pyo.Var(range(rows), bounds=(0, 100 * n))
    m.under = pyo.Var(range(rows), bounds=(0, 100 * n))
    weights = [[rng.randint(0, 99) for _ in range(n)] for _ in range(rows)]
    m.split = pyo.Constraint(
        range(rows),
        rule=lambda m, k: (
            sum(weights[k][i] * m.x[i] for i in range(n)) + m.over[k] - m.under[k]
            == sum(weights[k]) // 2
        ),
    )
    m.cost = pyo.Objective(expr=sum(m.over[k] + m.under[k] for k in range(rows)))
    return m


def run(model: Any, time_limit_s: float | None = None, **options: Any) -> Solved:
    deadline = SolveOptions(time_limit_s=time_limit_s).start()
    return solve(model, options_of() | options, deadline)


def test_every_status_of_pyomo_has_a_meaning() -> None:
    assert set(ENDED) == set(TerminationCondition)
    assert set(HELD) == set(SolutionStatus)


def test_an_optimum_is_loaded_into_the_model() -> None:
    model = knapsack(capacity=3)  # room for one of the two
    found = run(model)
    assert (found.ended, found.objective, found.bound) == (Ended.OPTIMAL, -3, -3)
    assert model.x[0].value + model.x[1].value == 1
    assert found.version.startswith("HiGHS 1.")
    assert found.status == "Optimal"


def test_no_numbers_come_out_of_an_infeasible_model() -> None:
    model = knapsack(capacity=1)  # room for none, and one must be packed
    found = run(model)
    assert (found.ended, found.objective, found.bound) == (Ended.INFEASIBLE, None, None)
    assert model.x[0].value is None


@pytest.mark.parametrize(
    ("name", "value"), [("mip_rel_gapp", 0.0), ("mip_rel_gap", -1.0), ("presolve", "perhaps")]
)
def test_an_option_that_highs_refuses_raises(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"Expected an option and a value HiGHS takes, got {name}"):
        run(knapsack(capacity=3), **{name: value})


@pytest.mark.parametrize("time_limit_s", [0.0, 0.3])
def test_a_time_limit_stops_it(time_limit_s: float) -> None:
    found = run(market_split(), time_limit_s)
    assert found.ended is Ended.TIME
    assert found.bound is None or found.bound >= 0
    assert found.objective is None or found.objective > 0


def test_a_node_limit_stops_it_and_keeps_bound_and_solution() -> None:
    model = market_split()
    found = run(model, mip_max_nodes=5)
    assert found.ended is Ended.NODES
    assert found.bound == pytest.approx(0)
    assert found.objective == pytest.approx(pyo.value(model.cost))
    assert found.nodes >= 5


def test_options_say_seed_and_node_limit() -> None:
    assert options_of(seed=7)["random_seed"] == 7
    assert "mip_max_nodes" not in options_of()
    assert options_of(node_limit=3)["mip_max_nodes"] == 3
    assert options_of()["threads"] == 1


@pytest.fixture
def handler() -> Iterator[Any]:
    before = signal.getsignal(signal.SIGINT)
    yield before
    signal.signal(signal.SIGINT, before)


def test_the_handler_of_ctrl_c_is_put_back(handler: Any) -> None:
    run(knapsack(capacity=3))
    assert signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(InputError):
        run(knapsack(capacity=3), no_such_option=1)
    assert signal.getsignal(signal.SIGINT) is handler


def test_it_runs_in_another_thread_too() -> None:
    """Where no handler can be installed."""
    found = []
    thread = threading.Thread(target=lambda: found.append(run(knapsack(capacity=3)).ended))
    thread.start()
    thread.join()
    assert found == [Ended.OPTIMAL]


# --- in a process of its own ------------------------------------------------------------------


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program that starts with the names of this file."""
    head = f"import sys; sys.path[:0] = {sys.path!r}\nfrom test_pyomo_highs import *\n"
    return subprocess.run(
        [sys.executable, "-c", head + code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_ctrl_c_stops_it_and_keeps_bound_and_solution() -> None:
    done = python(
        """
import os
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
found = run(market_split(), 100.0)
print(found.ended, found.interrupted, found.objective > 0, found.bound, found.status)
"""
    )
    assert done.stderr == ""
    assert done.stdout == "interrupt True True 0.0 Interrupted by user\n"


def test_ctrl_c_before_the_run_stops_it_as_well() -> None:
    """While Pyomo hands the model over: nothing is raised, and the run ends as it begins."""
    done = python(
        """
from pyomo.contrib.solver.solvers.highs import Highs
hand_over = Highs.set_instance
def interrupted(self, model):
    signal.raise_signal(signal.SIGINT)
    hand_over(self, model)
Highs.set_instance = interrupted
print(run(market_split(), 100.0).ended)
"""
    )
    assert (done.stdout, done.stderr) == ("interrupt\n", "")


def test_standard_output_stays_clean() -> None:
    """The banner, a refused option, and what C leaves in its buffer for later."""
    done = python(
        """
import ctypes
from models.backends.pyomo_highs import silenced
print("before")
run(knapsack(capacity=3))
run(knapsack(capacity=1))
try:
    run(knapsack(capacity=3), no_such_option=1)
except InputError:
    pass
with silenced():
    ctypes.CDLL(None).printf(b"noise\\n")
print("after")
"""
    )
    assert (done.stdout, done.stderr) == ("before\nafter\n", "")
