"""Raw HiGHS: statuses, options, limits, Ctrl-C, and nothing on standard output."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pytest

from instances.errors import FleetPlannerError, InputError
from models.backends.highs_model import ENDED, INFINITY, VERSION, Ended, HighsModel
from models.backends.interrupt import Interrupt


def model_of(
    cost: list[float],
    rows: list[list[float]],
    least: list[float],
    most: float = INFINITY,
    **more: Any,
) -> HighsModel:
    """Return ``min cost x`` with ``rows x >= least``, ``0 <= x <= most``."""
    whole = more.pop("whole", False)
    model = HighsModel(**more)
    model.add_rows(np.array(least), np.full(len(least), INFINITY))
    model.add_columns(np.array(cost), np.array(rows, dtype=float).T, most, whole=whole)
    return model


def two_thirds() -> HighsModel:
    """Three pairs of three things, as halves: 1.5, each row with dual 1/2."""
    return model_of([1, 1, 1], [[1, 1, 0], [0, 1, 1], [1, 0, 1]], [1, 1, 1])


def split(seed: int = 1, **more: Any) -> HighsModel:
    """Choose of 40 columns so that four sums are half their totals, slack costs 1: held at once,
    and proofs take ages."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 100, (4, 40)).astype(float)
    model = HighsModel(**more)
    target = np.floor(weights.sum(axis=1) / 2)
    model.add_rows(target, target)
    model.add_columns(np.zeros(40), weights.T, 1.0, whole=True)
    model.add_columns(np.ones(8), np.concatenate((np.eye(4), -np.eye(4))))
    return model


# --- statuses -------------------------------------------------------------------------------------


def test_every_status_of_highs_is_known() -> None:
    status = highspy.HighsModelStatus
    assert set(ENDED) == set(status.__members__.values())
    assert all(isinstance(ended, Ended) for ended in ENDED.values())
    assert [key for key, ended in ENDED.items() if ended is Ended.OPTIMAL] == [status.kOptimal]
    assert [key for key, ended in ENDED.items() if ended is Ended.INFEASIBLE] == [
        status.kInfeasible
    ]


def test_an_lp_ends_with_values_and_duals() -> None:
    model = two_thirds()
    assert model.run() is Ended.OPTIMAL
    assert model.objective == pytest.approx(1.5)
    assert model.values() == pytest.approx([0.5, 0.5, 0.5])
    assert model.duals() == pytest.approx([0.5, 0.5, 0.5])
    assert (model.holds_solution, model.interrupted, model.status) == (True, False, "Optimal")
    assert model.bound is None  # none of a MIP
    assert VERSION.split(".")[0].isdecimal()


def test_a_mip_ends_with_values_and_its_bound() -> None:
    model = model_of([1, 1, 1], [[1, 1, 0], [0, 1, 1], [1, 0, 1]], [1, 1, 1], 1.0, whole=True)
    assert model.run(lp=False) is Ended.OPTIMAL
    assert model.objective == pytest.approx(2.0)
    assert model.bound == pytest.approx(2.0)
    assert sorted(model.values()) == pytest.approx([0, 1, 1])
    assert model.nodes >= 0


@pytest.mark.parametrize("whole", [False, True])
def test_infeasible_holds_no_solution(whole: bool) -> None:
    model = model_of([1], [[1]], [2], 1.0, whole=whole)
    assert model.run(lp=not whole) is Ended.INFEASIBLE
    assert not model.holds_solution
    assert model.bound is None
    assert model.status == "Infeasible"


def test_unbounded_and_empty_models_are_failures() -> None:
    assert model_of([-1], [[1]], [0]).run() is Ended.FAILED
    assert HighsModel().run() is Ended.FAILED


def test_a_refused_model_is_a_fault_of_the_program() -> None:
    model = two_thirds()
    with pytest.raises(FleetPlannerError, match="HiGHS refused to add columns: a fault of the pro"):
        model.add_columns(np.ones(1), np.ones((1, 4)))  # three rows
    with pytest.raises(FleetPlannerError, match="HiGHS refused to change row bounds"):
        model.row_bounds(7, 0.0, 1.0)


# --- growth ---------------------------------------------------------------------------------------


def test_rows_and_columns_grow_and_shrink() -> None:
    """1.5; the triangle's cut makes 2; a column that holds all three, at 1.75; banned, 2 again."""
    model = two_thirds()
    model.add_rows(np.array([2.0]), np.array([INFINITY]), np.ones((1, 3)))
    assert model.run() is Ended.OPTIMAL
    assert model.objective == pytest.approx(2.0)
    model.add_columns(np.array([1.75]), np.array([[1.0, 1.0, 1.0, 2.0]]))
    model.run()
    assert model.objective == pytest.approx(1.75)
    model.column_bounds(np.array([3]), np.array([0.0]), np.array([0.0]))
    model.run()
    assert model.objective == pytest.approx(2.0)
    model.column_bounds(np.array([3]), np.array([0.0]), np.array([INFINITY]))
    model.costs(np.array([0, 3]), np.array([0.5, 9.0]))
    model.run()  # x0 = 1, x1 + x2 = 1: 0.5 + 1
    assert model.objective == pytest.approx(1.5)
    model.delete_rows(np.array([3]))
    model.run()  # halves: 0.25 + 0.5 + 0.5
    assert model.objective == pytest.approx(1.25)
    model.row_bounds(1, 0.0, INFINITY)
    model.run()  # x0 alone
    assert model.objective == pytest.approx(0.5)


def test_matrices_are_passed_as_they_are() -> None:
    """Random ones, with empty rows and columns: each row times given values is within its bounds
    exactly when the solver finds it so."""
    rng = random.Random(1)
    for _ in range(30):
        rows, columns = rng.randint(1, 5), rng.randint(1, 5)
        matrix = np.array(
            [[rng.choice((0, 0, 1, -2, 3)) for _ in range(columns)] for _ in range(rows)], float
        )
        point = np.array([rng.randint(0, 3) for _ in range(columns)], float)
        for by_rows in (False, True):
            model = HighsModel()
            exact = matrix @ point
            if by_rows:
                model.add_columns(np.zeros(columns), np.zeros((columns, 0)))
                model.add_rows(exact, exact, matrix)
            else:
                model.add_rows(exact, exact)
                model.add_columns(np.zeros(columns), matrix.T)
            model.column_bounds(np.arange(columns), point, point)
            assert model.run() is Ended.OPTIMAL
            if rows and matrix[0].any():
                model.row_bounds(0, exact[0] + 1, INFINITY)
                assert model.run() is Ended.INFEASIBLE


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_limt", 1.0),
        ("time_limit", -1.0),
        ("mip_max_nodes", -5),
        ("presolve", "sometimes"),
        ("threads", "one"),
    ],
)
def test_options_and_values_that_highs_refuses_are_refused(name: str, value: Any) -> None:
    """Without a look at the status HiGHS goes on as if nothing had been asked."""
    words = f"Expected an option and a value HiGHS takes, got {name} = "
    with pytest.raises(InputError, match=words):
        HighsModel(options={name: value})
    with pytest.raises(InputError, match=words):
        HighsModel().set(name, value)


def test_options_reach_the_solver() -> None:
    """No node at all: the split is not proved, and ends at the limit of nodes."""
    model = split(options={"mip_max_nodes": 0})
    assert model.run(lp=False) is Ended.NODES
    assert model.nodes <= 1


def test_one_seed_gives_one_answer() -> None:
    runs = []
    for seed in (5, 5, 6):
        model = split(seed=2, options={"mip_max_nodes": 30, "random_seed": seed})
        model.run(lp=False)
        runs.append((model.objective, model.bound, model.nodes, model.values().tolist()))
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


# --- time -----------------------------------------------------------------------------------------


def test_the_time_limit_of_an_lp_is_of_its_run() -> None:
    """HiGHS counts it over the life of the object: after 1 s of runs, 0.75 s would be none."""
    rng = np.random.default_rng(1)
    n = 40
    model = HighsModel()
    model.add_rows(np.ones(2 * n), np.full(2 * n, INFINITY))
    one = np.eye(n)
    pairs = [np.concatenate((one[i], one[j])) for i in range(n) for j in range(n)]
    model.add_columns(np.ones(n * n), np.array(pairs))
    spent = 0.0
    while spent <= 1.0:
        model.costs(np.arange(n * n), rng.random(n * n))
        assert model.run() is Ended.OPTIMAL
        spent = model._highs.getRunTime()
    model.costs(np.arange(2), np.array([0.0, 0.0]))
    assert model.run(0.75) is Ended.OPTIMAL
    assert model._highs.getOptionValue("time_limit")[1] > 1.75


def test_no_time_is_the_end_at_once_and_says_so() -> None:
    lp = two_thirds()
    assert lp.run(0.0) is Ended.TIME
    assert lp.run() is Ended.OPTIMAL
    assert lp.objective == pytest.approx(1.5)
    mip = split()
    assert mip.run(0.0, lp=False) is Ended.TIME


def test_a_mip_stopped_by_time_holds_what_it_found() -> None:
    model = split()
    assert model.run(1.0, lp=False) is Ended.TIME
    assert model.holds_solution
    assert model.bound is None or model.bound <= model.objective + 1e-9


# --- Ctrl-C ---------------------------------------------------------------------------------------

CHILD = """
import json, os, signal, sys, threading
sys.path.insert(0, {path!r})
import numpy as np
from test_highs_model import split, two_thirds
from models.backends.highs_model import Ended, HighsModel

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

out = {{}}
{body}
sys.stderr.write(json.dumps(out))
"""


def child(body: str, *, stdout: Any = subprocess.PIPE, shell: str = "") -> dict[str, Any]:
    """Run code in a fresh Python that Ctrl-C may kill; it must print nothing on standard output."""
    code = CHILD.format(path=str(Path(__file__).parent), body=textwrap.dedent(body))
    words = [sys.executable, "-c", code]
    if shell:
        words = ["sh", "-c", f'exec "$0" "$@" {shell}', *words]
    done = subprocess.run(
        words,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout
    document: dict[str, Any] = json.loads(done.stderr)
    return document


posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and shell")


@posix
def test_ctrl_c_returns_the_incumbent_and_python_s_handler_afterwards() -> None:
    out = child(
        """
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model = split()
        threading.Timer(1.5, interrupt).start()
        out["ended"] = model.run(lp=False)
        out["held"] = model.holds_solution and model.interrupted
        out["bounded"] = model.bound is None or model.bound <= model.objective
        out["restored"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        try:
            interrupt()
            threading.Event().wait(30)
        except KeyboardInterrupt:
            out["later"] = "raised"
        out["again"] = two_thirds().run()
        """
    )
    assert out == {
        "ended": "interrupt",
        "held": True,
        "bounded": True,
        "restored": True,
        "later": "raised",
        "again": "optimal",
    }


@posix
def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """As in a background job of a shell."""
    out = child(
        """
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        model = split()
        threading.Timer(0.3, interrupt).start()
        out["ended"] = model.run(1.0, lp=False)
        out["interrupted"] = model.interrupted
        out["restored"] = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        """
    )
    assert out == {"ended": "time", "interrupted": False, "restored": True}


@posix
def test_a_run_outside_the_main_thread_leaves_signals_alone() -> None:
    out = child(
        """
        def work():
            out["ended"] = two_thirds().run()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        out["restored"] = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        """
    )
    assert out == {"ended": "optimal", "restored": True}


@posix
def test_within_an_interrupt_ctrl_c_asks_and_raises_nothing() -> None:
    asked: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with Interrupt() as interrupt:
        assert not interrupt.hit
        signal.raise_signal(signal.SIGINT)
        assert interrupt.hit
        interrupt.calls(lambda: asked.append("asked"))  # at once: the signal came before
        signal.raise_signal(signal.SIGINT)
    assert asked == ["asked", "asked"]
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_in_another_thread_changes_nothing() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with Interrupt() as interrupt:
            seen.append(signal.getsignal(signal.SIGINT) is before and not interrupt.hit)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
    assert signal.getsignal(signal.SIGINT) is before


# --- standard output ------------------------------------------------------------------------------

EVERYTHING = """
for _ in range(2):
    model = split(options={"mip_max_nodes": 5})
    out["mip"] = model.run(lp=False)
    out["lp"] = two_thirds().run()
"""


def test_nothing_is_printed() -> None:
    """``child`` wants nothing there; creating a HiGHS object alone prints two lines by itself."""
    assert child(EVERYTHING) == {"mip": "nodes", "lp": "optimal"}


@posix
def test_it_works_with_standard_output_closed() -> None:
    assert child(EVERYTHING, shell=">&-") == {"mip": "nodes", "lp": "optimal"}


@posix
def test_a_file_that_took_the_place_of_standard_output_stays_clean(tmp_path: Path) -> None:
    """Closed, its descriptor is the next one opened."""
    path = tmp_path / "kept.txt"
    out = child(
        f"""
        import os
        os.close(1)
        file = open({str(path)!r}, "w")
        out["descriptor"] = file.fileno()
        out["lp"] = two_thirds().run()
        file.write("kept")
        file.close()
        """
    )
    assert out == {"descriptor": 1, "lp": "optimal"}
    assert path.read_text(encoding="utf-8") == "kept"


def test_descriptors_are_given_back() -> None:
    """Hundreds of models leave no descriptor open behind them."""
    probe = os.dup(0)
    os.close(probe)
    for _ in range(50):
        two_thirds()
    again = os.dup(0)
    os.close(again)
    assert again == probe


# --- sparse columns -------------------------------------------------------------------------------


def sparse_two_thirds(**more: Any) -> HighsModel:
    """``two_thirds`` from sparse columns, and a useless fourth."""
    model = HighsModel(**more)
    model.add_rows(np.ones(3), np.full(3, INFINITY))
    model.add_sparse_columns(
        np.array([1.0, 1.0, 1.0, 5.0]),
        np.array([0, 2, 4, 6]),
        np.array([0, 2, 0, 1, 1, 2, 0]),
        np.ones(7),
    )
    return model


@pytest.mark.parametrize("options", [{}, {"solver": "ipm", "run_crossover": "off"}])
def test_sparse_columns_are_those_of_the_dense_ones(options: dict[str, Any]) -> None:
    model = sparse_two_thirds(options=options)
    for _ in range(2):
        assert model.run() is Ended.OPTIMAL
        assert model.objective == pytest.approx(1.5)
        assert model.duals() == pytest.approx([0.5, 0.5, 0.5])
        assert model.values() == pytest.approx([0.5, 0.5, 0.5, 0.0], abs=1e-6)
        model.forget()


def test_deleted_columns_are_gone_and_later_ones_move_up() -> None:
    """Without the first, row 2 is covered by the third alone, and the second covers row 0."""
    model = sparse_two_thirds()
    model.delete_columns(np.array([0, 3]))
    assert model.run() is Ended.OPTIMAL
    assert model.values() == pytest.approx([1.0, 1.0])


def test_faulty_sparse_columns_are_refused() -> None:
    model = sparse_two_thirds()
    with pytest.raises(FleetPlannerError, match="refused to add columns"):
        model.add_sparse_columns(np.ones(1), np.array([0]), np.array([7]), np.ones(1))
    with pytest.raises(FleetPlannerError, match="refused to delete columns"):
        model.delete_columns(np.array([9]))


def test_a_model_file_is_read_back_and_one_that_is_missing_refused(tmp_path):
    """Two items of cost 2 and 3, at least 3 units of which one gives 1 and two gives 2: cost 5."""
    path = tmp_path / "m.lp"
    path.write_text(
        "minimize\n obj: 2 a + 3 b\nsubject to\n c: a + 2 b >= 3\nbinary\n a\n b\nend\n",
        encoding="ascii",
    )
    model = HighsModel()
    model.read(path)
    assert model.run(lp=False) is Ended.OPTIMAL
    assert model.objective == pytest.approx(5.0)
    assert model.bound == pytest.approx(5.0)
    with pytest.raises(FleetPlannerError, match=r"refused to read none\.lp"):
        HighsModel().read(tmp_path / "none.lp")
