"""How often a fixed fleet keeps a waiting target: from the drawn jobs, by hand."""

from __future__ import annotations

import pytest

from builders import job_of, options_of, table_of
from instances.bootstrap import bootstrap_trace
from instances.errors import InfeasibleError, InputError
from instances.plan import Fleet
from planner.policies.wait_target import WaitTarget
from planner.size.uncertainty_runs import replication_seed
from planner.size.uncertainty_waits import FleetConfidence, fleet_confidence

HOUR_S = 3600.0
#: Both at once: with one pair of nodes the second drawn waits as long as the first stays.
SHORT_AND_LONG = table_of(
    job_of("short", 60, 60, duration_s=1 * HOUR_S), job_of("long", 60, 60, duration_s=3 * HOUR_S)
)


def confidence_of(jobs=SHORT_AND_LONG, **changes) -> FleetConfidence:
    return fleet_confidence(
        jobs,
        **{
            "fleet": Fleet(1, 1),
            "target": WaitTarget(2 * HOUR_S, 1.0),
            "policy": "solo",
            "options": options_of(),
            "convention": "wallclock",
            "replications": 12,
            "seed": 3,
            **changes,
        },
    )


def firsts(n: int, seed: int) -> list[str]:
    """The job drawn first in each replication."""
    draws = (bootstrap_trace(SHORT_AND_LONG, seed=replication_seed(seed, r)) for r in range(n))
    return [drawn.job_id[0].split("-")[1] for drawn in draws]


def test_the_target_is_kept_where_the_short_job_comes_first():
    first = firsts(12, 3)
    assert set(first) == {"short", "long"}
    found = confidence_of()
    waits = [HOUR_S if name == "short" else 3 * HOUR_S for name in first]
    assert found.wait_s.values == pytest.approx(waits)
    assert (found.met, found.replications) == (first.count("short"), 12)
    assert found.low < found.share < found.high


def test_a_looser_target_a_larger_fleet_and_a_smaller_share_are_kept():
    assert confidence_of(target=WaitTarget(3 * HOUR_S, 1.0)).share == 1
    assert confidence_of(fleet=Fleet(2, 2)).wait_s.values == (0,) * 12
    # one of the two never waits
    assert confidence_of(target=WaitTarget(0.0, 0.5)).share == 1
    assert confidence_of(target=WaitTarget(0.0, 0.51)).share == 0


def test_more_replications_and_processes_change_nothing_there_already():
    few = confidence_of(replications=5)
    assert confidence_of(processes=2).wait_s.values[:5] == few.wait_s.values


def test_a_trace_without_jobs_keeps_every_promise():
    found = confidence_of(growth=0.01, replications=3)
    assert found.wait_s.values == (0,) * 3
    assert found.share == 1


def test_a_job_larger_than_the_fleet_names_the_seed():
    jobs = table_of(job_of("wide", 60, 60, train_nodes=2))
    with pytest.raises(InfeasibleError, match=f"bootstrap seed {replication_seed(3, 0)}.*wide"):
        confidence_of(jobs)


def test_ctrl_c_keeps_what_is_finished():
    def interrupt(done: int, _total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    found = confidence_of(progress=interrupt)
    assert found.interrupted
    assert found.wait_s.values == confidence_of().wait_s.values[:4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"replications": 0}, "replications >= 1, got 0"),
        ({"processes": 0}, "processes >= 1, got 0"),
        ({"confidence": 0.0}, "0 < confidence <= 1, got 0.0"),
        ({"growth": 0.0}, "growth > 0, got 0.0"),
        ({"seed": -2}, "seed >= 0, got -2"),
    ],
)
def test_arguments_out_of_range_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        confidence_of(**change)
