"""Studies: how they are read, what is wrong with them, and what runs they mean."""

from __future__ import annotations

import dataclasses
import itertools
import textwrap
from pathlib import Path
from typing import Any

import pytest

from command_line import write
from instances.errors import InputError
from planner.sweep import study as sweep_study
from planner.sweep.expand import MAX_RUNS, read_runs
from planner.sweep.study import AXES, read_study
from sweep_cases import LARGE_STATE, SMALL, study_of

TINY: dict[str, Any] = {"generator": "tiny-open-shop"}

#: Two values of every axis, none of them the default.
TWO: dict[str, list[Any]] = {
    "max_group_size": [2, 3],
    "max_rate": [2, 3],
    "host_dram_gb": [1000, 3000],
    "rollout_host_dram_gb": [1000, 3000],
    "train_host_dram_gb": [1000, 3000],
    "rollout_usd_per_gpu_hour": [1.0, 2.0],
    "train_usd_per_gpu_hour": [3.0, 4.0],
    "price_ratio": [1.5, 2.5],
    "slo_scale": [0.9, 1.2],
    "inter_gbps": [10, 100],
    "objective": ["per-hour", "per-iteration"],
    "tie_rule": ["oldest", "most-room"],
    "fleet": ["24,12", "12,6"],
    "queue": ["fifo", "backfill"],
    "growth": [1.5, 2.0],
}


def read(folder: Path, text: str) -> Any:
    return read_runs(write(folder / "study.toml", text))


def faults(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read(folder, text)
    return str(caught.value).splitlines()


def test_all_combinations(tmp_path: Path) -> None:
    study = read(tmp_path, SMALL)
    found = [(r.source, r.max_group_size, r.policy) for r in study.runs]
    assert found == list(itertools.product((0, 1), (1, 2, 5), ("weave", "solo")))
    assert [r.number for r in study.runs] == list(range(1, 13))
    assert study.name == "small"
    assert [t.seed for t in study.inputs.traces] == [0, 1]


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    doc = sweep_study.__doc__ or ""
    example = textwrap.dedent(doc.partition("::\n")[2].partition("\nEvery combination")[0])
    write(tmp_path / "jobs.csv", LARGE_STATE)
    write(tmp_path / "cluster.toml", "[links]\nlinks = 3\n")
    write(tmp_path / "a100.toml", "train_mfu = 0.41\n")
    study = read(tmp_path, example)
    # 1 file + 3 seeds, 20 copies, 2 policies, 5 draws of lengths, 5 axes of two values beside the
    # group size
    assert len(study.runs) == 4 * 20 * 2 * 5 * 2**5
    assert {run.max_group_size for run in study.runs} == {1}
    assert study.name == "prices"


def test_two_is_about_every_axis() -> None:
    assert set(TWO) == set(AXES)


@pytest.mark.parametrize("axis", AXES)
def test_each_axis_changes_what_a_run_is(axis: str, tmp_path: Path) -> None:
    needs: dict[str, Any] = {"replications": 1} if axis == "growth" else {}
    others = {"fleet": ["24,12"]} if axis == "queue" else {}
    base = study_of(tmp_path, axes=others, **needs)
    study = study_of(tmp_path, axes={**others, axis: TWO[axis]}, **needs)
    assert len(study.runs) == 2
    assert len({dataclasses.replace(r, number=0, run_id="") for r in study.runs}) == 2
    ids = {run.run_id for run in study.runs}
    assert len(ids) == 2
    # per-hour and fifo are defaults: that run is the same as without the axis
    assert len(ids & {run.run_id for run in base.runs}) == (axis in ("objective", "queue"))


def test_one_value_is_a_list_of_one(tmp_path: Path) -> None:
    one = study_of(tmp_path, axes={"max_rate": 2})
    assert one.runs == study_of(tmp_path, axes={"max_rate": [2]}).runs


def test_values_of_the_cluster(tmp_path: Path) -> None:
    write(tmp_path / "cluster.toml", "[rollout]\nusd_per_gpu_hour = 3\n[links]\ninter_gbps = 50\n")
    (run,) = study_of(tmp_path, cluster="cluster.toml", axes={"price_ratio": 2}).runs
    # 2 x 3 $/GPU-h; host DRAM of both pools is the default, 2,000 GB
    assert (run.rollout_usd_per_gpu_hour, run.train_usd_per_gpu_hour) == (3.0, 6.0)
    assert (run.rollout_host_dram_gb, run.train_host_dram_gb, run.inter_gbps) == (2000, 2000, 50)


def test_prices_and_dram_reach_the_cluster(tmp_path: Path) -> None:
    axes = {"host_dram_gb": 900, "price_ratio": 2, "rollout_usd_per_gpu_hour": 4, "inter_gbps": 7}
    study = study_of(tmp_path, axes=axes)
    cluster = study.runs[0].cluster(study.inputs.cluster)
    assert cluster.rollout.usd_per_hour == 8 * 4
    assert cluster.train.usd_per_hour == 8 * 8
    assert (cluster.rollout.host_dram_gb, cluster.train.host_dram_gb) == (900, 900)
    assert cluster.links.inter_gbps == 7


def test_seeds_are_of_policies_that_draw(tmp_path: Path) -> None:
    study = study_of(tmp_path, policies=["weave", "random"], seeds=[3, 4])
    assert [(r.policy, r.seed) for r in study.runs] == [
        ("weave", None),
        ("random", 3),
        ("random", 4),
    ]


def test_replications(tmp_path: Path) -> None:
    study = study_of(
        tmp_path, replications=3, bootstrap={"seed": 10, "block_h": 5}, axes={"growth": [1, 2]}
    )
    found = [(r.replication, r.bootstrap_seed, r.growth) for r in study.runs]
    assert found == [(c, 9 + c, g) for c in (1, 2, 3) for g in (1.0, 2.0)]
    assert study.inputs.block_h == 5


def test_cases_take_the_place_of_axes(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        policies=["weave", "solo"],
        axes={"max_group_size": [2, 5], "host_dram_gb": 1000},
        case=[
            {"name": "as it stands"},
            {"name": "alone", "max_group_size": 1, "policies": "weave"},
            {"name": "one pool", "rollout_host_dram_gb": 500, "policies": "solo"},
        ],
    )
    found = [(r.case, r.policy, r.max_group_size, r.rollout_host_dram_gb) for r in study.runs]
    assert found == [
        ("as it stands", "weave", 2, 1000),
        ("as it stands", "solo", 2, 1000),
        ("as it stands", "weave", 5, 1000),
        ("as it stands", "solo", 5, 1000),
        ("alone", "weave", 1, 1000),
        ("one pool", "solo", 2, 500),
        ("one pool", "solo", 5, 500),
    ]


def test_what_is_said_twice_runs_once(tmp_path: Path) -> None:
    cases = [{"name": "a", "max_rate": [1, 2]}, {"name": "b", "max_rate": [2, 3]}]
    study = study_of(tmp_path, case=cases)
    assert [(r.case, r.max_rate, r.number) for r in study.runs] == [
        ("a", 1, 1),
        ("a", 2, 2),
        ("b", 3, 3),
    ]
    assert study.repeated == 1


# --- ids ------------------------------------------------------------------------------------------


def ids(study: Any) -> list[str]:
    return [run.run_id for run in study.runs]


def test_ids_depend_on_contents_and_not_on_names(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "one" / "a.csv", LARGE_STATE)
    write(tmp_path / "two" / "b.csv", LARGE_STATE)
    one = study_of(tmp_path / "one", trace=[{"file": "a.csv"}])
    two = study_of(tmp_path / "two", trace=[{"file": "b.csv"}], name="other")
    assert ids(one) == ids(two)
    write(tmp_path / "one" / "a.csv", LARGE_STATE.replace("1.5,30", "1.5,31"))
    assert ids(study_of(tmp_path / "one", trace=[{"file": "a.csv"}])) != ids(one)


def test_ids_of_a_larger_study_include_those_of_the_smaller(tmp_path: Path) -> None:
    small = study_of(tmp_path, axes={"max_rate": [1, 2]})
    large = study_of(tmp_path, axes={"max_rate": [3, 2, 1], "max_group_size": [5, 2]})
    assert set(ids(small)) < set(ids(large))


def test_ids_depend_on_cluster_coefficients_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "cluster.toml", "[links]\nlinks = 3\n")
    write(tmp_path / "numbers.toml", "train_mfu = 0.41\n")
    found = [
        study_of(tmp_path),
        study_of(tmp_path, cluster="cluster.toml"),
        study_of(tmp_path, coefficients="numbers.toml"),
    ]
    monkeypatch.setattr("planner.sweep.expand.version", lambda _: "99.0")
    found.append(study_of(tmp_path))
    assert len({run.run_id for study in found for run in study.runs}) == len(found)


# --- faults ---------------------------------------------------------------------------------------


def test_all_faults_at_once(tmp_path: Path) -> None:
    text = """\
policies = ["weave", "weav"]
convention = ["work"]
replications = -1
[[trace]]
generator = "productoin"
[axes]
max_rate = [1, 0]
host_dram_gb = "1000"
tie_rule = ["tightest", "oldes"]
fleet = ["24;12"]
[bootstrap]
block = 24
"""
    assert faults(tmp_path, text) == [
        "study.toml: Expected policies #2 in weave, repack, regroup, solo, colocated, random, "
        "most-idle, gavel, swapping, got 'weav'. Did you mean 'weave'?",
        "study.toml: Expected replications >= 0, got -1.",
        "study.toml: Expected [trace #1] generator in production, profiles, tiny-gang, "
        "tiny-open-shop, tiny-sync-gap, got 'productoin'. Did you mean 'production'?",
        "study.toml: Expected [axes] max_rate #2 >= 1, got 0.",
        "study.toml: Expected [axes] host_dram_gb #1 to be a number, got '1000'.",
        "study.toml: Expected [axes] tie_rule #2 in least-shrink, tightest, most-room, "
        "nearest-deadline, nearest-departure, oldest, got 'oldes'. Did you mean 'oldest'?",
        'study.toml: Expected [axes] fleet #1 to be rollout and train nodes such as "24,12", or '
        "\"none\", got '24;12'.",
        "study.toml: Unknown key '[bootstrap] block'. Did you mean 'block_h'? Known keys: seed, "
        "block_h.",
        "study.toml: Unknown key 'convention'. Did you mean 'conventions'? Known keys: name, "
        "cluster, coefficients, policies, conventions, seeds, replications, "
        "runtime_replications, trace, axes, "
        "bootstrap, case.",
    ]


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ({"trace": [{}]}, "[trace #1] Expected file or generator, got none."),
        (
            {"trace": [TINY, {"file": "a.csv", "generator": "profiles"}]},
            "[trace #2] Expected file or generator, not both.",
        ),
        (
            {"trace": [{**TINY, "jobs": 3}]},
            "[trace #1] Key jobs does not apply to generator 'tiny-open-shop'.",
        ),
        (
            {"trace": [{"generator": "profiles", "gangs": True}]},
            "[trace #1] Key gangs does not apply to generator 'profiles'.",
        ),
        (
            {"trace": [{"file": "a.csv", "seeds": [1]}]},
            "[trace #1] Key seeds does not apply to a file.",
        ),
        (
            {"axes": {"host_dram_gb": 1000, "train_host_dram_gb": 900}},
            "[axes] Expected host_dram_gb or train_host_dram_gb, not both.",
        ),
        (
            {"axes": {"price_ratio": 2, "train_usd_per_gpu_hour": 3}},
            "[axes] Expected price_ratio or train_usd_per_gpu_hour, not both.",
        ),
        (
            {"axes": {"queue": "fifo"}},
            "[axes] Expected queue only with fleet: without one no job waits.",
        ),
        (
            {"axes": {"growth": 2}},
            "[axes] Expected replications >= 1 with growth: it is drawn with bootstrapped copies.",
        ),
        ({"bootstrap": {"seed": 1}}, "Expected replications >= 1 with [bootstrap], got 0."),
        (
            {"case": [{"name": "a"}, {"name": "a"}]},
            "Expected distinct names of [[case]], got 'a' twice.",
        ),
        ({"case": [{"max_rate": 1}]}, "Missing [case #1] name."),
        ({"policies": []}, "Expected policies to be not empty, got []."),
        ({"name": "a\nb"}, "Expected name to be printable text on one line, got 'a\\nb'."),
        ({"axes": 3}, "Expected axes to be a table of keys, got 3."),
        ({"trace": []}, "Expected trace to be not empty, got []."),
    ],
)
def test_one_fault(tables: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        study_of(tmp_path, **tables)
    assert str(caught.value) == f"study.toml: {fault}"


def test_traces_are_read_before_anything_runs(tmp_path: Path) -> None:
    write(tmp_path / "bad.csv", LARGE_STATE.replace("a,0,1000", "a,0,-1"))
    with pytest.raises(InputError) as caught:
        study_of(tmp_path, trace=[{"file": "none.csv"}, TINY, {"file": "bad.csv"}])
    first, *rest = str(caught.value).splitlines()
    assert first.startswith("study.toml: [trace #1] ")
    assert "none.csv" in first
    assert all(line.startswith("study.toml: [trace #3] ") for line in rest)
    assert "duration_s" in "".join(rest)


def test_a_state_that_some_run_has_room_for_is_no_fault(tmp_path: Path) -> None:
    # 1,500 GB: refused with nodes of 1,000 GB, read where some run has 2,000
    write(tmp_path / "jobs.csv", LARGE_STATE)
    write(tmp_path / "cluster.toml", "[rollout]\nhost_dram_gb = 1000\n")
    trace = [{"file": "jobs.csv"}]
    with pytest.raises(InputError, match="rollout_state_gb"):
        study_of(tmp_path, cluster="cluster.toml", trace=trace)
    axes = {"host_dram_gb": [1000, 2000]}
    assert len(study_of(tmp_path, cluster="cluster.toml", trace=trace, axes=axes).runs) == 2


def test_too_many_runs(tmp_path: Path) -> None:
    side = list(range(1, 1002))  # 1001 x 1001 > 1,000,000
    with pytest.raises(InputError, match=f"at most {MAX_RUNS:,} runs, got 1,002,001"):
        study_of(tmp_path, axes={"max_group_size": side, "slo_scale": [float(s) for s in side]})


def test_not_a_study(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got an empty file"):
        read_study(write(tmp_path / "study.toml", ""))
    with pytest.raises(InputError, match="Not valid TOML"):
        read_study(write(tmp_path / "study.toml", "["))
    with pytest.raises(InputError, match="No such file"):
        read_study(tmp_path / "other.toml")
