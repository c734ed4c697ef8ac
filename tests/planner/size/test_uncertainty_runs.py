"""The sample of replays: its seeds, its order, what Ctrl-C and processes do to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from builders import job_of, options_of, table_of
from instances.bootstrap import arrival_window_s, bootstrap_trace
from instances.errors import InfeasibleError
from instances.generate import production
from instances.jobs import JobTable
from planner.replay.demand import demand_of
from planner.replay.replaying import replay
from planner.size.uncertainty_runs import Study, observed_demand, replication_seed, sample

HOUR_S = 3600.0


def study(jobs: JobTable | None = None, **changes) -> Study:
    return Study(
        **{
            "jobs": production(n_jobs=12, seed=3) if jobs is None else jobs,
            "policy": "solo",
            "options": options_of(),
            "convention": "wallclock",
            "growths": (1.0, 2.0),
            "replications": 3,
            "seed": 7,
            "block_h": 24.0,
            "warm_up_h": None,
            "check": True,
            **changes,
        }
    )


def bytes_of(runs) -> list[tuple]:
    return [
        (
            run.number,
            run.growth,
            run.seed,
            run.jobs,
            run.demand.hours.tobytes(),
            run.demand.rollout_nodes.tobytes(),
            run.demand.train_nodes.tobytes(),
        )
        for of_growth in runs.by_growth
        for run in of_growth
    ]


def test_seeds_are_distinct_and_small_enough_for_json():
    seeds = {replication_seed(seed, number) for seed in range(20) for number in range(50)}
    assert len(seeds) == 1000
    assert max(seeds) < 2**53


def test_more_growths_and_replications_change_none_there_already():
    few = sample(study(growths=(1.0, 2.0), replications=2))
    many = sample(study(growths=(1.0, 1.5, 2.0), replications=4))
    assert set(bytes_of(few)) <= set(bytes_of(many))
    assert len(bytes_of(few)) == 4


def test_another_seed_is_another_sample():
    assert set(bytes_of(sample(study()))).isdisjoint(bytes_of(sample(study(seed=8))))


def test_each_replication_can_be_drawn_and_replayed_again():
    runs = sample(study(block_h=6.0))
    run = runs.by_growth[1][2]
    jobs = bootstrap_trace(study().jobs, seed=run.seed, block_h=6.0, growth=run.growth)
    again = demand_of(replay(jobs, "solo", options_of(), convention="wallclock"))
    assert run.jobs == len(jobs)
    assert run.demand.hours.tolist() == again.hours.tolist()
    assert run.demand.train_nodes.tolist() == again.train_nodes.tolist()


def test_two_processes_give_the_sample_of_one():
    assert bytes_of(sample(study(), processes=2)) == bytes_of(sample(study()))


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_counts_replays(processes):
    calls = []
    sample(study(), processes=processes, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(k, 6) for k in range(1, 7)]


def interrupting(at: int):
    def progress(done: int, _total: int) -> None:
        if done == at:
            raise KeyboardInterrupt

    return progress


def test_ctrl_c_keeps_whole_replications():
    """Two growths: after five replays two replications are whole and one is not."""
    whole = sample(study())
    part = sample(study(), progress=interrupting(5))
    assert part.interrupted
    assert not whole.interrupted
    assert part.replications == 2
    assert set(bytes_of(part)) == {run for run in bytes_of(whole) if run[0] < 2}


@pytest.mark.parametrize("at", [5, 6])
def test_ctrl_c_among_processes_keeps_a_beginning_of_the_sample(at):
    """After five of six replays one replication is not whole, and none after it is kept.

    On a slow process that may be the first: then there is nothing to keep.
    """
    whole = sample(study())
    try:
        part = sample(study(), processes=2, progress=interrupting(at))
    except KeyboardInterrupt:
        assert at == 5
        return
    assert part.interrupted
    assert part.replications in {5: (1, 2), 6: (3,)}[at]
    assert set(bytes_of(part)) == {run for run in bytes_of(whole) if run[0] < part.replications}


def test_a_worker_gets_the_whole_trace_and_no_clock():
    """What is unknown or estimated comes along; a clock may be a function that cannot be sent."""
    jobs = study().jobs.replace(
        extra={"team": ("red",) * len(study().jobs)},
        estimated={"slo": np.ones(len(study().jobs), dtype=bool)},
    )
    asked = replace(study(), jobs=jobs, options=replace(study().options, clock=lambda: 0.0))
    assert bytes_of(sample(asked, processes=2)) == bytes_of(sample(study()))


def test_ctrl_c_before_the_first_whole_replication_is_let_through():
    with pytest.raises(KeyboardInterrupt):
        sample(study(), progress=interrupting(1))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_replay_that_cannot_run_names_its_seed(processes):
    """Iterations of 4 s and a switch of 9 s each: no plan meets a deadline of 4 s."""
    jobs = table_of(job_of("a", 2, 2, 1.0, rollout_state_gb=5000.0))
    with pytest.raises(InfeasibleError) as caught:
        sample(study(jobs, growths=(1.0,), replications=1), processes=processes)
    assert f"bootstrap seed {replication_seed(7, 0)}," in str(caught.value)
    assert "Replication 0 at growth 1" in str(caught.value)
    assert "b0001-a" in str(caught.value)


# --- the part of time that counts ---------------------------------------------------------------


def test_a_trace_without_jobs_needs_nothing_for_the_whole_window():
    """Two jobs 100 h apart, blocks of 1 h: of many replications some hold no job."""
    jobs = table_of(
        job_of("a", 60, 60, duration_s=60.0),
        job_of("b", 60, 60, duration_s=60.0, arrival_s=100 * HOUR_S),
    )
    runs = sample(study(jobs, growths=(1.0,), replications=40, block_h=50.0)).by_growth[0]
    empty = [run for run in runs if not run.jobs]
    assert empty
    for run in empty:
        assert run.demand.horizon_h == pytest.approx(arrival_window_s(jobs) / HOUR_S)
        assert run.demand.peak("rollout") == 0


def test_warm_up_counts_from_the_opening_to_the_close_of_arrivals():
    """Jobs at 0, 10 and 20 h, 15 h each: W = 30 h, nobody present after 35 h.

    Alone on a pair each, the nodes held are 1 in [0, 10), 2 in [10, 15), 1 in [15, 20), 2 in
    [20, 25), 1 in [25, 35). From hour 12 on and up to 30: 2 for 3 h, 1 for 5, 2 for 5, 1 for 5.
    """
    jobs = table_of(
        *(
            job_of(f"j{k}", 60, 60, duration_s=15 * HOUR_S, arrival_s=10 * k * HOUR_S)
            for k in range(3)
        )
    )
    seen = observed_demand(study(jobs, warm_up_h=12.0))
    assert seen.hours.tolist() == [3, 5, 5, 5]
    assert seen.rollout_nodes.tolist() == [2, 1, 2, 1]
    assert observed_demand(study(jobs)).horizon_h == 35


def test_quiet_time_before_the_first_arrival_counts_once_warm_up_is_given():
    jobs = table_of(
        *(job_of(f"j{k}", 60, 60, duration_s=60.0, arrival_s=10 * k * HOUR_S) for k in range(3))
    )
    for run in sample(study(jobs, warm_up_h=0.0)).by_growth[0]:
        assert run.demand.horizon_h == pytest.approx(30)


# --- what grows with growth ---------------------------------------------------------------------


def test_more_growth_never_needs_less_where_every_job_has_its_own_nodes():
    """Traces of one seed are nested and ``solo`` adds jobs up, so node-hours cannot fall."""
    runs = sample(study(growths=(0.5, 1.0, 1.5, 3.0), replications=5))
    hours = np.array([[run.demand.node_hours("train") for run in of] for of in runs.by_growth])
    assert np.all(np.diff(hours, axis=0) >= 0)
    assert np.all(hours[3] > hours[1])


def test_expected_node_hours_grow_with_growth_in_proportion():
    """``solo`` under ``wallclock``: a job holds a_j nodes for its duration, whatever else is there.

    So E[node-hours at g] = g x sum_j a_j d_j. Given m jobs drawn, the sum has variance m var(a d);
    m itself varies by blocks. The bound is five empirical standard errors of 40 replications.
    """
    jobs = production(n_jobs=30, seed=1)
    own = float(np.dot(jobs.train_nodes, jobs.duration_s)) / HOUR_S
    runs = sample(study(jobs, growths=(1.0, 2.0), replications=40, check=False))
    for growth, of in zip(runs.growths, runs.by_growth, strict=True):
        hours = np.array([run.demand.node_hours("train") for run in of])
        error = hours.std(ddof=1) / np.sqrt(len(hours))
        assert abs(hours.mean() - growth * own) < 5 * error
