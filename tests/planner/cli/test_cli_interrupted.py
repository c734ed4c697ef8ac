"""``planner snapshot`` of many jobs, ended at random moments: a plan and a bound all the same."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import command, environment
from instances.catalog import catalog_path
from instances.checker import check_plan
from instances.plan_file import read_plan

#: Says on standard error when the jobs are read: from then on there is an answer.
ANNOUNCED = """
import sys
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import planner.snapshot.solving as snapshot

def problem_of(*arguments, real=snapshot.problem_of):
    sys.stderr.write("begun\\n")
    sys.stderr.flush()
    return real(*arguments)

snapshot.problem_of = problem_of
from planner.cli.main import main
main()
"""

#: Moments drawn once, seconds after the jobs are read: by then the placer is at work (0.2 s),
#: modules are imported, kernels compiled, a bound is computed, or the search is on.
MOMENTS = [round(random.Random(seed).uniform(0, 2 ** (seed - 1)), 3) for seed in range(4)]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_an_answer_at_any_moment(number: signal.Signals, moment: float, tmp_path: Path) -> None:
    """300 jobs without a limit on groups: minutes of work, ended within seconds."""
    process = subprocess.Popen(
        [
            command()[0],
            "-c",
            ANNOUNCED,
            "snapshot",
            "--trace",
            str(catalog_path("mixed-300")),
            "--all-jobs",
            "--max-group-size",
            "0",
            "--method",
            "local-search",
            "--out",
            "o",
            "--json",
        ],
        cwd=tmp_path,
        env=environment(PYTHONPATH=str(Path(__file__).parents[3])),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        while process.stderr.readline() != "begun\n":
            assert process.poll() is None
        time.sleep(moment)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in err, err
    assert process.returncode == 130, err
    found = json.loads(out)["snapshot"]
    assert found["stopped_by"] == "interrupt"
    assert 0 < found["bound_usd_per_hour"] <= found["usd_per_hour"]
    assert found["ratio"] >= 1
    assert found["checked"] is True
    plan = read_plan(tmp_path / "o" / "plan.json")
    assert check_plan(plan).ok
    assert len(plan.jobs) == 300


def test_ctrl_c_while_python_shuts_down_changes_nothing() -> None:
    late = (
        "import atexit, os, signal, sys\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "from planner.cli.main import main\n"
        "sys.argv[1:] = ['--help']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", late],
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
