"""The CP-SAT backend: statuses, parameters, limits, Ctrl-C, and no numbers that mean nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
from ortools.sat.python import cp_model

from instances.errors import FleetPlannerError, InputError
from models.backends.cp_sat import STATUS, Answer, Status, _interruptible, run
from models.problem.result import StoppedBy


def knapsack() -> cp_model.CpModel:
    """Max 5a + 4b + 3c with 2a + 3b + c <= 5: a and b fill it, 9 (a and c: 8, b and c: 7)."""
    model = cp_model.CpModel()
    a, b, c = (model.new_bool_var(name) for name in "abc")
    model.add(2 * a + 3 * b + c <= 5)
    model.maximize(5 * a + 4 * b + 3 * c)
    return model


def cut_of(nodes: int) -> cp_model.CpModel:
    """Least number of edges inside two sides of a graph: any sides will do, proofs take ages."""
    model = cp_model.CpModel()
    side = [model.new_bool_var(f"s{i}") for i in range(nodes)]
    inside = []
    for i in range(nodes):
        for j in range(i):
            if (i * i + 3 * i * j + 7 * j) % 5 < 2:
                same = model.new_bool_var(f"e{i},{j}")
                model.add_bool_or([same, side[i], side[j]])
                model.add_bool_or([same, ~side[i], ~side[j]])
                inside.append(same)
    model.minimize(sum(inside))
    return model


def infeasible() -> cp_model.CpModel:
    model = cp_model.CpModel()
    a = model.new_bool_var("a")
    model.add(a + 1 <= 0)
    model.minimize(a)
    return model


# --- statuses and numbers -------------------------------------------------------------------------


def test_every_status_of_the_solver_has_a_meaning() -> None:
    assert set(STATUS) == set(cp_model.CpSolverStatus.__members__.values())
    assert sorted(STATUS.values()) == sorted(Status)  # one each


def test_an_optimum_comes_with_its_values() -> None:
    model = knapsack()
    answer = run(model)
    assert (answer.status, answer.stopped_by) == (Status.OPTIMAL, None)
    assert (answer.objective, answer.bound) == (9, 9)
    assert answer.solution == (1, 1, 0)
    assert [answer.value(model.get_bool_var_from_proto_index(i)) for i in range(3)] == [1, 1, 0]
    assert answer.info.name == "CP-SAT"
    assert answer.info.status == "optimal"
    assert answer.info.version.split(".")[0].isdecimal()


def test_without_an_objective_a_solution_has_no_price() -> None:
    model = cp_model.CpModel()
    a = model.new_bool_var("a")
    model.add(a >= 1)
    answer = run(model)
    assert (answer.status, answer.objective, answer.bound) == (Status.OPTIMAL, None, None)
    assert answer.value(a) == 1


def assert_no_numbers(answer: Answer) -> None:
    """The solver itself says objective 0.0 and bound 0.0 here."""
    assert not answer.solved
    assert (answer.objective, answer.bound, answer.solution) == (None, None, ())
    with pytest.raises(FleetPlannerError, match=f"ended {answer.status} holds no values"):
        answer.value(cp_model.CpModel().new_bool_var("a"))


def test_infeasible_yields_no_numbers() -> None:
    answer = run(infeasible())
    assert (answer.status, answer.stopped_by) == (Status.INFEASIBLE, None)
    assert_no_numbers(answer)


@pytest.mark.parametrize(
    ("limit", "stopped_by"),
    [({"seconds": 0.0}, StoppedBy.TIME), ({"work": 0.0}, StoppedBy.WORK)],
)
def test_unknown_yields_no_numbers(limit: dict[str, Any], stopped_by: StoppedBy) -> None:
    answer = run(cut_of(30), **limit)
    assert (answer.status, answer.stopped_by) == (Status.UNKNOWN, stopped_by)
    assert_no_numbers(answer)


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_a_limit_of_work_repeats_exactly(threads: int) -> None:
    """By default two workers race; interleaved they do not."""
    first, second = (run(cut_of(40), work=0.05, threads=threads, seed=3) for _ in range(2))
    assert first == second
    assert (first.status, first.stopped_by) == (Status.FEASIBLE, StoppedBy.WORK)
    assert first.work >= 0.05
    assert first.objective is not None
    assert first.bound is not None
    assert 0 <= first.bound < first.objective  # stopped before a proof
    assert first.objective == sum(first.solution[40:])  # the edges inside


def test_a_wall_limit_says_so() -> None:
    answer = run(cut_of(40), seconds=0.3, work=1e9)
    assert answer.stopped_by is StoppedBy.TIME
    assert answer.status in (Status.FEASIBLE, Status.UNKNOWN)  # by the machine's speed


def test_a_solve_that_ends_is_stopped_by_nothing() -> None:
    assert run(knapsack(), seconds=60.0, work=60.0).stopped_by is None


# --- parameters -----------------------------------------------------------------------------------


def test_parameters_reach_the_solver() -> None:
    """Stopped at its first solution, the solver proves nothing, and no limit was met."""
    answer = run(cut_of(40), parameters={"stop_after_first_solution": True})
    assert (answer.status, answer.stopped_by) == (Status.FEASIBLE, None)


def test_a_misspelt_parameter_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"Expected a numeric parameter of CP-SAT, got 'max_time_in_second'\. "
        r"Did you mean 'max_time_in_seconds'\?",
    ):
        run(knapsack(), parameters={"max_time_in_second": 1.0})


@pytest.mark.parametrize("name", ["copy_from", "AUTOMATIC_SEARCH", "__class__"])
def test_a_name_that_is_no_parameter_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"got '{name}'"):
        run(knapsack(), parameters={name: 1})


def test_a_value_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"takes for parameter num_workers, got 1\.5"):
        run(knapsack(), parameters={"num_workers": 1.5})


def test_a_value_out_of_range_is_refused() -> None:
    with pytest.raises(InputError, match=r"CP-SAT refused a parameter 'num_workers' .*20000"):
        run(knapsack(), threads=20_000)


def test_a_refused_model_is_a_fault_of_the_program() -> None:
    model = cp_model.CpModel()
    model.new_int_var(0, 2**62 + 1, "x")
    with pytest.raises(FleetPlannerError, match="refused a model, a fault of the program: var #0"):
        run(model)


# --- Ctrl-C and standard output -------------------------------------------------------------------

CHILD = """
import json, os, signal, sys, threading
sys.path.insert(0, {path!r})
from test_cp_sat_backend import cut_of
from models.backends.cp_sat import _interruptible, run

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

out = {{}}
def later():
    "Whether nothing is pending, and a Ctrl-C after the solve is a KeyboardInterrupt again."
    try:
        for _ in range(1000):
            pass
    except KeyboardInterrupt:
        return "late"
    try:
        interrupt()
        threading.Event().wait(30)
    except KeyboardInterrupt:
        return "raised"
    return "lost"

{body}
print(json.dumps(out))
"""


def child(body: str) -> dict[str, object]:
    """Run code in a fresh Python that Ctrl-C may kill; its standard output is one document."""
    code = CHILD.format(path=__file__.rpartition("/")[0], body=textwrap.dedent(body))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stderr == ""
    document: dict[str, object] = json.loads(done.stdout)
    return document


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="POSIX signals")
def test_ctrl_c_returns_the_incumbent_and_breaks_nothing_later() -> None:
    out = child(
        """
        threading.Timer(1.5, interrupt).start()
        answer = run(cut_of(60))
        out["answer"] = [answer.status, answer.stopped_by, answer.objective is not None]
        out["edges"] = answer.objective == sum(answer.solution[60:])
        out["later"] = later()
        out["again"] = run(cut_of(8)).status
        """
    )
    assert out == {
        "answer": ["feasible", "interrupt", True],
        "edges": True,
        "later": "raised",
        "again": "optimal",
    }


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="POSIX signals")
def test_a_second_ctrl_c_is_raised_once_the_work_has_ended() -> None:
    """The work ends only when it was told to stop twice; the second time comes a Ctrl-C."""
    out = child(
        """
        told = threading.Semaphore(0)
        ended = []
        def work():
            told.acquire(); told.acquire()
            ended.append(True)
        def stop():
            told.release()
            if not second:
                second.append(True)
                interrupt()
        second = []
        threading.Timer(0.2, interrupt).start()
        try:
            _interruptible(work, stop)
        except KeyboardInterrupt:
            out["raised"] = ended == [True]
        out["later"] = later()
        """
    )
    assert out == {"raised": True, "later": "raised"}


def test_ctrl_c_before_the_thread_runs_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    told: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _interruptible(lambda: told.append("work"), lambda: told.append("stop"))
    assert told == ["stop"]


def test_a_failure_in_the_solvers_thread_is_raised_here() -> None:
    out = child(
        """
        def work():
            raise ValueError("inside")
        try:
            _interruptible(work, lambda: None)
        except ValueError as error:
            out["raised"] = str(error)
        """
    )
    assert out == {"raised": "inside"}


def test_nothing_but_the_caller_prints() -> None:
    """``child`` reads standard output as one JSON document and wants nothing on the other."""
    out = child('out["status"] = [run(cut_of(8)).status, run(cut_of(40), work=0.01).status]')
    assert out["status"] == ["optimal", "feasible"]
