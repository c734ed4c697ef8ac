"""The report on uncertainty: its figures from its sample, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from builders import job_of, options_of, table_of
from instances.bootstrap import bootstrap_trace
from instances.errors import InputError, UnsupportedError
from instances.generate import production
from instances.plan import Fleet
from planner.replay.demand import POOLS
from planner.size.uncertainty import UncertaintyReport, fleet_uncertainty, spread
from uncertainty_cases import costs_of

HOUR_S = 3600.0
COSTS = costs_of(1.0, 3.0)


def report_of(jobs=None, **changes) -> UncertaintyReport:
    arguments = {
        "policy": "solo",
        "options": options_of(),
        "costs": COSTS,
        "convention": "wallclock",
        "growths": (1.0, 2.0),
        "replications": 4,
        "seed": 5,
        **changes,
    }
    return fleet_uncertainty(production(n_jobs=10, seed=4) if jobs is None else jobs, **arguments)


def one_job():
    return table_of(job_of("a", 60, 60, duration_s=5 * HOUR_S, rollout_nodes=2, train_nodes=3))


def figures(report: UncertaintyReport) -> str:
    """Every number, as text: NumPy's arrays do not compare as a whole."""
    with np.printoptions(threshold=10**6, floatmode="unique"):
        return repr(report)


# --- figures ----------------------------------------------------------------------------------


def test_one_job_is_certain():
    """Every drawn trace of growth g is the one job g times, at once, on nodes of its own."""
    report = report_of(one_job(), confidence=0.9)
    assert report.replications == 4
    assert report.interrupted is False
    for item in report.growths:
        g = int(item.growth)
        assert item.jobs.values == (g,) * 4
        assert (item.size.rollout_nodes, item.size.train_nodes) == (2 * g, 3 * g)
        assert item.value is not None
        assert item.value.owned == (2 * g, 3 * g)
        assert item.value.usd_per_hour == pytest.approx(5 * g)
        assert item.value.stochastic.vss == pytest.approx(0, abs=1e-12)
        assert item.value.stochastic.evpi == pytest.approx(0, abs=1e-12)
        assert item.value.regret_of_mean == pytest.approx(0, abs=1e-12)
        for nodes, pool in zip((2 * g, 3 * g), POOLS, strict=True):
            seen = item.pool(pool)
            assert seen.owned is not None
            for found in (seen.mean, seen.p95, seen.p99, seen.peak, seen.owned):
                assert (found.low, found.p5, found.p50, found.p95, found.high) == (nodes,) * 5
    assert report.regret_of_trace == pytest.approx(0, abs=1e-12)
    # 1 job or 2 with equal chances; own 1, rent 3: the second set is needed half of the time
    assert report.any_growth is not None
    assert report.any_growth.owned == (4, 6)
    assert report.any_growth.stochastic.evpi == pytest.approx(2.5)


def test_nodes_are_those_of_the_jobs_drawn():
    """Jobs at one time, on nodes of their own, of equal length: demand is the sum of their widths.

    Rows drawn are read from the seeds; all else follows from their sums.
    """
    widths = (1, 2, 4)
    jobs = table_of(*(job_of(f"w{w}", 60, 60, duration_s=HOUR_S, train_nodes=w) for w in widths))
    report = report_of(jobs, growths=(1.0,), replications=12, confidence=0.75)
    sums = []
    for run in report.sample.by_growth[0]:
        sums.append(int(bootstrap_trace(jobs, seed=run.seed).train_nodes.sum()))
        assert run.demand.train_nodes.tolist() == [sums[-1]]
    assert len(set(sums)) > 3
    ranked = sorted(sums)
    item = report.growths[0]
    assert item.train.peak.values == tuple(sums)
    assert item.train.peak.mean == pytest.approx(np.mean(sums))
    # inverse of the empirical distribution: 0.05, 0.125, 0.5, 0.875, 0.95 of 12 values
    assert item.train.peak.p5 == ranked[0]
    assert item.train.peak.low == ranked[1]
    assert item.train.peak.p50 == ranked[5]
    assert item.train.peak.high == ranked[10]
    assert item.train.peak.p95 == ranked[11]
    # to be 95 % sure of 75 % of all futures takes the largest: 1 - 0.75^12 = 0.968, and of the
    # second largest P(Binomial(12, 0.75) <= 10) = 0.842
    assert item.size.train_nodes == ranked[11]
    assert item.size.met == 12
    # a node needed in more than a third of the futures pays: own 1, rent 3
    pays = sum(sum(s >= n for s in sums) > 4 for n in range(1, max(sums) + 1))
    assert item.value is not None
    assert item.value.owned == (3, pays)
    assert item.value.mean_nodes.owned == ((3, math.floor(np.mean(sums) + 0.5)),)
    assert item.usd_per_hour is not None
    assert item.usd_per_hour.values == pytest.approx([3 + s for s in sums])


def test_the_trace_itself_is_seen_and_priced():
    """Sized by the trace (7 train nodes) in futures that need other numbers."""
    widths = (1, 2, 4)
    jobs = table_of(*(job_of(f"w{w}", 60, 60, duration_s=HOUR_S, train_nodes=w) for w in widths))
    report = report_of(jobs, replications=12)
    assert report.observed.train_nodes.tolist() == [7]
    assert report.trusting_trace is not None
    assert report.trusting_trace.owned == ((3, 7),)
    over = [max(s - 7, 0) for s in report.at(1.0).train.peak.values]
    assert report.trusting_trace.usd_per_hour == pytest.approx(3 + 7 + 3 * np.mean(over))
    value = report.at(1.0).value
    assert value is not None
    assert report.regret_of_trace == pytest.approx(10 + 3 * np.mean(over) - value.usd_per_hour)
    assert report_of(jobs, growths=(2.0,)).trusting_trace is None


def test_spread_of_a_single_value():
    found = spread([3], 0.95)
    assert (found.mean, found.p5, found.p50, found.p95, found.low, found.high) == (3,) * 6
    assert found.mean_interval.low is None


def test_sizes_hold_on_their_sample():
    for coverage in (0.8, 1.0):
        report = report_of(replications=10, coverage=coverage, confidence=0.8, check=False)
        for item, of in zip(report.growths, report.sample.by_growth, strict=True):
            size = item.size
            enough = [
                np.average(
                    (run.demand.rollout_nodes <= size.rollout_nodes)
                    & (run.demand.train_nodes <= size.train_nodes),
                    weights=run.demand.hours,
                )
                for run in of
            ]
            assert sum(share >= coverage - 1e-9 for share in enough) == size.met >= 8


# --- time -------------------------------------------------------------------------------------


def test_growth_in_a_stated_time_is_bought_step_by_step():
    """Growths 1, 2, 3 by year 4: at 0, 2 and 4; the certain job needs 5, 10 and 15 nodes."""
    report = report_of(one_job(), growths=(1, 2, 3), growth_time_years=4.0)
    assert [item.year for item in report.growths] == [0, 2, 4]
    assert report.staged is not None
    assert report.staged.weights == (2, 2, 2)
    assert report.staged.staged is not None
    assert report.staged.staged.owned == ((2, 3), (4, 6), (6, 9))
    assert report.staged.staged.usd_per_hour == pytest.approx(10)
    # once: the third set is needed a third of the time, own 1 / rent 3: it does not pay
    assert report.staged.at_once.owned == ((4, 6),) * 3
    assert report.staged.at_once.usd_per_hour == pytest.approx(10 + 15 / 3)


def test_without_a_stated_time_nothing_has_a_year():
    report = report_of(one_job())
    assert report.staged is None
    assert [item.year for item in report.growths] == [None, None]


def test_warm_up_raises_the_mean_of_a_cluster_that_never_stops():
    """Whole replays fill and drain; between the first day and the last arrival it is full."""
    jobs = production(n_jobs=40, seed=1)
    whole = report_of(jobs, growths=(1.0,), check=False)
    steady = report_of(jobs, growths=(1.0,), warm_up_h=24.0, check=False)
    for low, high in zip(
        whole.growths[0].train.mean.values, steady.growths[0].train.mean.values, strict=True
    ):
        assert high > low


def test_coincident_bursts_need_more_at_the_peak():
    """Ten jobs within ten minutes twice a week apart: doubled at the same moments, peaks double.

    On their own nodes, 20 h each: with blocks of a day, every layer has bursts of up to ten. Two
    independent layers rarely meet; two coincident ones always do.
    """
    jobs = table_of(
        *(
            job_of(f"j{week}-{k}", 60, 60, duration_s=20 * HOUR_S, arrival_s=week * 6e5 + 60.0 * k)
            for week in range(2)
            for k in range(10)
        )
    )
    settings = {"replications": 20, "growths": (2.0,), "check": False}
    apart = report_of(jobs, **settings).growths[0].train.peak
    together = report_of(jobs, bursts="coincident", **settings).growths[0].train.peak
    once = report_of(jobs, **{**settings, "growths": (1.0,)}).growths[0].train.peak
    assert together.values == tuple(2 * peak for peak in once.values)
    assert apart.mean < together.mean


# --- reproducible -----------------------------------------------------------------------------


def test_the_report_depends_on_seed_alone():
    first = figures(report_of())
    assert figures(report_of()) == first
    assert figures(report_of(processes=2)) == first
    assert figures(report_of(seed=6)) != first


def test_after_ctrl_c_the_report_is_that_of_the_whole_replications():
    def interrupt(done: int, _total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    part = report_of(progress=interrupt)
    assert part.interrupted
    assert (part.replications, part.replications_asked) == (3, 4)
    three = report_of(replications=3)
    assert figures(part).replace("interrupted=True", "interrupted=False").replace(
        "replications_asked=4", "replications_asked=3"
    ) == figures(three)


def test_ctrl_c_while_figures_are_worked_out_leaves_one_question_open(monkeypatch):
    """Growing demand is asked about last, and is all that is lost."""

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.size.uncertainty.staged_purchase", pressed)
    report = report_of(one_job(), growth_time_years=1.0)
    assert report.interrupted
    assert report.staged is None
    assert report.any_growth is not None
    assert report.replications == report.replications_asked
    assert report.notes == ("buying as demand grows: interrupted.",)


def test_a_model_too_large_leaves_one_question_open(monkeypatch):
    """The model of purchases over time, the only one here that needs HiGHS, is refused."""

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedError("too large")

    monkeypatch.setattr("models.sizing.milp.solve_sizing", refuse)
    report = report_of(one_job(), growth_time_years=1.0)
    assert report.staged is not None
    assert report.staged.staged is None
    assert report.staged.value_of_staging is None
    assert report.staged.at_once.usd_per_hour is not None
    assert report.notes == ("buying as demand grows: too large",)
    assert not report.interrupted


# --- limits and refusals ----------------------------------------------------------------------


def test_limits_that_cannot_be_met_are_told_and_sizes_stay():
    costs = costs_of(1.0, 3.0, max_owned_nodes=3, max_rented_nodes=0)
    report = report_of(one_job(), costs=costs, growth_time_years=1.0)
    fits, too_large = report.growths
    assert fits.value is not None
    assert too_large.value is None
    assert too_large.usd_per_hour is None
    assert too_large.train.owned is None
    assert too_large.size.train_nodes == 6
    assert "peak of 6 nodes" in too_large.why_not
    assert report.any_growth is None
    assert report.staged is None
    assert [note.split(":")[0] for note in report.notes] == [
        "growth 2",
        "any growth",
        "buying as demand grows",
    ]


def test_a_pool_that_can_only_be_rented_is_rented():
    import dataclasses

    rented = dataclasses.replace(COSTS.train, own_usd_per_gpu_hour=None)
    report = report_of(one_job(), costs=dataclasses.replace(COSTS, train=rented))
    value = report.at(1.0).value
    assert value is not None
    assert value.owned == (2, 0)
    assert value.mean_nodes.owned == ((2, 0),)
    assert value.usd_per_hour == pytest.approx(2 + 3 * 3)


def test_replications_needed_to_trust_the_size():
    assert report_of(one_job()).replications_needed == 59  # 1 - 0.95^59 >= 0.95
    assert report_of(one_job(), confidence=1.0).replications_needed is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"growths": ()}, "at least one, got \\[\\]"),
        ({"growths": (2.0, 1.0)}, "increasing"),
        ({"growths": (0.0, 1.0)}, "growths > 0"),
        ({"growths": (2.0, 3.0), "growth_time_years": 1.0}, "growths from 1 \\(now\\)"),
        ({"growth_time_years": 0.0}, "growth_time_years > 0, got 0.0"),
        ({"replications": 0}, "replications >= 1, got 0"),
        ({"processes": 0}, "processes >= 1, got 0"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"confidence": 0.0}, "0 < confidence <= 1, got 0.0"),
        ({"coverage": 1.5}, "0 < coverage <= 1, got 1.5"),
        ({"warm_up_h": 1.0}, "0 <= warm_up_h < 0, the hours of arrivals, got 1.0"),
        ({"policy": "weav"}, "Did you mean 'weave'"),
        ({"convention": "wall"}, "Expected convention in"),
        ({"block_h": -1.0}, "block_h > 0, got -1.0"),
        ({"options": options_of(fleet=Fleet(9, 9))}, "no fixed fleet"),
    ],
)
def test_arguments_out_of_range_are_refused(change, words):
    with pytest.raises(InputError, match=words):
        report_of(one_job(), **change)


def test_no_jobs_and_unknown_growths_are_refused():
    with pytest.raises(InputError, match="at least one job"):
        report_of(one_job().take([]))
    with pytest.raises(InputError, match=r"a growth in 1, 2, got 4\.0"):
        report_of(one_job()).at(4.0)
