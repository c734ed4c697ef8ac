"""From logs of verl to rows of a trace."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances.errors import InputError
from instances.jobs import JobTable
from instances.trace import read_trace, write_trace
from instances.verl_import import VerlSummary, import_verl
from verl_cases import CONSOLE, csv_of, jsonl, put, step_of


def imported(path: Path, **choices: Any) -> tuple[JobTable, VerlSummary]:
    return import_verl(path, **({"slo": 1.5, "model_b": 7} | choices))


def log_of(tmp_path: Path, gens: list[float], **more: float) -> Path:
    """Return a log with these rollout seconds and as many train seconds, and a warm-up step."""
    steps = [(n, step_of(gen, 2 * gen, **more)) for n, gen in enumerate([99.0, *gens])]
    return put(tmp_path / "job.jsonl", jsonl(steps))


def test_a_console_log_becomes_a_row_that_a_trace_takes(tmp_path: Path) -> None:
    jobs, summary = imported(put(tmp_path / "qwen2.5-7b.log", CONSOLE))
    write_trace(jobs, tmp_path / "t.csv")
    read = read_trace(tmp_path / "t.csv").jobs
    for table in (jobs, read):
        (job,) = table
        assert job.job_id == "qwen2.5-7b"
        # The most of steps 2 and 3; step 1 (45 + 60.2 s) is warm-up.
        assert (job.rollout_s, job.train_s, job.slo, job.mode) == (25.0, 41.2, 1.5, "sync")
        # Three steps were logged: three iterations of T = 25 + 41.2 + s.
        assert job.iterations == pytest.approx(3)
        assert job.sync_s > 0
        assert (job.rollout_nodes, job.train_nodes, job.arrival_s) == (1, 1, 0)
        assert set(table.estimated_columns()) == {
            "rollout_state_gb",
            "train_state_gb",
            "rollout_switch_s",
            "train_switch_s",
            "sync_s",
            "sync_gb",
        }
        # 6 to 7 % of the responses were cut off at 1,024 tokens: that is the limit.
        assert table.optional["max_tokens"].tolist() == [1024.0]
        assert table.extra["verl_origin_rollout"] == ("measured: most of 2 steps, step 2",)
        assert table.extra["verl_limit_reached"] == ("yes",)
        assert table.extra["verl_log"] == ("qwen2.5-7b.log",)
    words = "\n".join(summary.lines())
    assert "3 steps with timings, 2 used (2-3); job 'qwen2.5-7b', mode sync." in words
    assert "iterations: 3, the steps logged." in words
    assert "Left out: step 1 45 + 60.2 s (warm-up, rollout + train)." in words
    assert "Left out: step 0 (no timings)." in words
    assert "rollout_s: 25 s (measured: most of 2 steps, step 2; median 24 s), from gen + " in words
    assert "update_weights 5 s on average; sync keys use that." in words
    # Of the steps that count: 0.0625 in step 2; the 0.07 of step 1 are not its.
    assert "Responses at the limit: at most 6.2% of a step's." in words
    assert "The phases explain 99% of the step time." in words  # 249.6 / 253
    assert "nothing converts them to another cluster" in words
    # 3 x (25 + 41.2) s is 3.31 min.
    assert summary.warnings() == (
        "qwen2.5-7b.log: only 2 steps measured; use 3 at least.",
        "qwen2.5-7b.log: 3 iterations (the steps logged), 3.31 min in all: give iterations "
        "(--iterations) of the whole run.",
    )


def test_measured_sync_replaces_the_estimate(tmp_path: Path) -> None:
    path = put(tmp_path / "a.log", CONSOLE)
    jobs, summary = imported(path, sync_keys=["update_weights"])
    assert jobs.sync_s.tolist() == [5.0]  # of 5.0 and 4.6; 5.4 was warm-up
    assert "sync_s" not in jobs.estimated_columns()
    assert "sync_s: 5 s, the most of update_weights." in "\n".join(summary.lines())


def test_percentiles_come_with_twenty_steps_and_are_measured_values(tmp_path: Path) -> None:
    # 1 ... 20 s: half of the steps take at most 10 s, 19 of 20 (95 %) at most 19 s.
    jobs, _ = imported(log_of(tmp_path, [float(n) for n in range(1, 21)]))
    values = {name: float(cells[0]) for name, cells in jobs.optional.items() if "_p" in name}
    assert values == {
        "rollout_p50_s": 10,
        "rollout_p95_s": 19,
        "train_p50_s": 20,
        "train_p95_s": 38,
    }
    assert jobs.rollout_s.tolist() == [20]
    fewer, _ = imported(log_of(tmp_path, [float(n) for n in range(1, 20)]))
    assert not [name for name in fewer.optional if "_p" in name]


def test_lengths_below_the_limit_are_warned_of_and_never_extrapolated(tmp_path: Path) -> None:
    lengths = {
        "response_length__max": 900.0,
        "response_length__clip_ratio": 0.0,
        "response_length__mean": 400.0,
    }
    path = log_of(tmp_path, [10.0, 12.0, 11.0], **lengths)
    jobs, summary = imported(path, max_tokens=1000)
    assert jobs.rollout_s.tolist() == [12]
    assert jobs.extra["verl_limit_reached"] == ("no",)
    warning, excerpt = summary.warnings()
    assert "job.jsonl: 4 iterations (the steps logged)" in excerpt
    assert "no response reached the token limit (longest 900 of 1000)" in warning
    assert "the worst case is longer" in warning
    # The limit is a promise of the row: a longer response contradicts it.
    with pytest.raises(InputError, match="response_length/max <= max_tokens = 800, got 900"):
        imported(path, max_tokens=800)
    # Without the clip ratio, the longest response tells only beside a limit.
    path = log_of(tmp_path, [10.0, 12.0, 11.0], response_length__max=900.0)
    assert imported(path)[0].extra["verl_limit_reached"] == ("unknown",)
    assert imported(path, max_tokens=900)[0].extra["verl_limit_reached"] == ("yes",)
    assert "nothing tells whether" in imported(path)[1].warnings()[0]


def test_a_clip_ratio_over_ragged_batches_tells_nothing(tmp_path: Path) -> None:
    # Batches padded to their own longest response: that one always counts as cut off.
    steps = [
        (n, step_of(10, 20) | {"response_length/max": longest, "response_length/clip_ratio": 0.001})
        for n, longest in enumerate([2700.0, 2753.0, 2382.0, 2497.0])
    ]
    path = put(tmp_path / "a.jsonl", jsonl(steps))
    jobs, summary = imported(path)
    assert "max_tokens" not in jobs.optional
    assert jobs.extra["verl_limit_reached"] == ("unknown",)
    assert "tells nothing about the limit" in "\n".join(summary.lines())
    assert imported(path, max_tokens=4096)[0].extra["verl_limit_reached"] == ("no",)


@pytest.mark.parametrize(("last", "reached"), [(8192.0, "yes"), (8000.0, "no")])
def test_a_limit_found_in_the_warm_up_is_reached_by_length(
    tmp_path: Path, last: float, reached: str
) -> None:
    """Only the warm-up has a clip ratio: its length is the limit that the others are held to."""
    lengths = [("response_length/max", value) for value in (8192.0, 4000.0, last)]
    steps = [(n, step_of(10, 20) | {key: value}) for n, (key, value) in enumerate(lengths)]
    steps[0][1]["response_length/clip_ratio"] = 0.1
    jobs, summary = imported(put(tmp_path / "a.jsonl", jsonl(steps)))
    assert jobs.optional["max_tokens"].tolist() == [8192]
    assert jobs.extra["verl_limit_reached"] == (reached,)
    said = "\n".join(summary.warnings())
    assert "nothing tells" not in said
    assert ("no response reached the token limit (longest 8192 of 8192)" in said) is (
        reached == "no"
    )


def test_a_run_of_its_own_length_is_not_called_an_excerpt(tmp_path: Path) -> None:
    """Twenty steps are taken for a run, nineteen are not, and a given number is nobody's guess."""
    path = log_of(tmp_path, [10.0] * 19)
    assert "the steps logged" not in "\n".join(imported(path)[1].warnings())
    path = log_of(tmp_path, [10.0] * 18)
    assert "19 iterations (the steps logged)" in "\n".join(imported(path)[1].warnings())
    given = imported(path, iterations=500)[1].warnings()
    assert "the steps logged" not in "\n".join(given)


def test_a_limit_above_that_of_the_run_was_not_reached(tmp_path: Path) -> None:
    lengths = {"response_length__max": 1000.0, "response_length__clip_ratio": 0.2}
    path = log_of(tmp_path, [10.0, 12.0, 11.0], **lengths)
    assert imported(path)[0].extra["verl_limit_reached"] == ("yes",)
    jobs, summary = imported(path, max_tokens=4000)
    assert jobs.extra["verl_limit_reached"] == ("no",)
    assert "longest 1000 of 4000" in summary.warnings()[0]


def test_at_the_limit_by_the_longest_response_or_by_tokens(tmp_path: Path) -> None:
    # The slowest step: gen 12 + reward 2, responses of 500 on average and 800 at most, prompts 100.
    slow = step_of(12, 30, timing_s__reward=2) | {
        "response_length/mean": 500.0,
        "response_length/max": 800.0,
        "prompt_length/mean": 100.0,
    }
    quick = step_of(6, 15, timing_s__reward=2) | {
        "response_length/mean": 50.0,
        "response_length/max": 60.0,
        "prompt_length/mean": 100.0,
    }
    path = put(tmp_path / "a.jsonl", jsonl([(1, slow), (2, quick), (3, slow)]))
    longest, summary = imported(path, max_tokens=1000, at_limit="longest", skip_steps=0)
    # 2 + 12 x 1000 / 800; train 30 x (100 + 1000) / (100 + 500).
    assert longest.rollout_s.tolist() == [17.0]
    assert longest.train_s.tolist() == [55.0]
    tokens, _ = imported(path, max_tokens=1000, at_limit="tokens", skip_steps=0)
    assert tokens.rollout_s.tolist() == [26.0]  # 2 + 12 x 1000 / 500
    assert tokens.train_s.tolist() == [55.0]
    assert longest.extra["verl_origin_rollout"] == (
        "estimated: generation of step 1 x 1.25, longest",
    )
    assert longest.extra["verl_origin_train"] == ("estimated: step 1 x 1.833, linear in tokens",)
    assert "rollout_s and train_s are estimates at the token limit" in summary.warnings()[0]
    with pytest.raises(InputError, match=r"Expected the token limit \(max_tokens\) to scale to"):
        imported(path, at_limit="tokens")
    with pytest.raises(
        InputError, match=r"longest or tokens, got 'longst'\. Did you mean 'longest'"
    ):
        imported(path, at_limit="longst")
    with pytest.raises(InputError, match=r"response_length/max > 0 to scale to .*got none"):
        imported(log_of(tmp_path, [1.0]), at_limit="longest", max_tokens=9)


def test_warnings_about_what_the_log_leaves_open(tmp_path: Path) -> None:
    # 20 of 50 s of a step are explained; step 3 is missing; step 4 takes 3 x the median.
    gens = [(1, 5.0), (2, 5.0), (4, 15.0), (5, 5.0)]
    steps = [
        (n, step_of(gen, 3 * gen, timing_s__environment=6 * gen) | {"timing_s/step": 10 * gen})
        for n, gen in gens
    ]
    _, summary = imported(put(tmp_path / "a.jsonl", jsonl(steps)), skip_steps=0)
    words = "\n".join(summary.warnings())
    # Mean over the four steps: 6 x (5 + 5 + 15 + 5) / 4.
    assert "the phases explain only 40% of the step time. Not counted: environment 45 s." in words
    assert "not in the log: step 3; a slower one may be among them" in words
    assert "the slowest rollout, 15 s in step 4, is 3.0 x the median" in words
    assert "the slowest train, 45 s in step 4, is 3.0 x the median" in words


def test_what_does_not_count_is_said(tmp_path: Path) -> None:
    # Steps 1 and 2 of a critic's warm-up; step 5 twice, with a restart between.
    critic = {"timing_s/gen": 9.0, "timing_s/update_critic": 4.0}
    full = critic | {"timing_s/update_actor": 20.0}
    steps = [(1, critic), (2, critic), (3, full), (4, full), (5, full), (5, full), (6, full)]
    _, summary = imported(put(tmp_path / "a.jsonl", jsonl(steps)))
    words = "\n".join(summary.lines())
    assert "6 steps with timings, 3 used (3-4, 6)" in words
    assert "Left out: step 5 9 + 24 s (warm-up, rollout + train)." in words
    assert "Left out: step 5 (logged again later: the last one counts)." in words
    assert "Left out: step 1-2 (no timing_s/update_actor)." in words
    head = "Step,timing_s/gen,timing_s/gen__MIN,timing_s/gen__MAX,timing_s/update_actor\n"
    path = put(tmp_path / "b.csv", head + "".join(f"{n},10,9,11,20\n" for n in range(1, 6)))
    assert "b.csv: rows stand for several steps" in imported(path)[1].warnings()[1]


def test_one_step_jobs_keep_their_mode(tmp_path: Path) -> None:
    more = {"timing_s__generate_async": 14.0, "timing_s__sync_rollout_weights": 1.0}
    jobs, _ = imported(
        log_of(tmp_path, [2.0, 2.0, 2.0], **more), sync_keys=["sync_rollout_weights"]
    )
    (job,) = jobs
    assert (job.mode, job.rollout_s, job.train_s, job.sync_s) == ("one-step", 14, 4, 1)
    assert job.solo_s == 14  # max(14, 4, (14 + 4 + 1) / 2)


def test_the_table_of_jobs_goes_before_the_options(tmp_path: Path) -> None:
    first = put(tmp_path / "a.jsonl", jsonl([(n, step_of(5, 6)) for n in range(5)]))
    second = put(tmp_path / "b.csv", csv_of([(n, step_of(7, 8)) for n in range(9)]))
    table = put(
        tmp_path / "jobs.csv",
        "job_id,slo,arrival_s,duration_s,train_nodes,model_b,sync_s\n"
        "a,2,60,3600,2,14,0.5\n"
        "b,,,,,,\n",
    )
    jobs, _ = import_verl([first, second], jobs_table=table, slo=1.2, model_b=7, train_nodes=4)
    assert jobs.job_id == ("b", "a")  # by arrival: 0 and 60 s
    assert jobs.slo.tolist() == [1.2, 2.0]
    assert jobs.train_nodes.tolist() == [4, 2]
    assert jobs.optional["model_b"].tolist() == [7.0, 14.0]
    assert jobs.duration_s[1] == 3600
    assert jobs.iterations[0] == pytest.approx(9)
    assert jobs.sync_s[1] == 0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("job,slo\na,2\n", "Missing column job_id."),
        ("job_id,rollout_s\na,2\n", "Expected no column rollout_s: it comes from the log."),
        ("job_id,sloo\na,2\n", "Expected columns of a trace, got 'sloo'. Did you mean 'slo'?"),
        ("job_id,slo\na,2\na,3\n", "Expected a job_id used once, got 'a' (line 3"),
        ("job_id,slo\nb,2\n", "no row for 'a' and no log for 'b'"),
        ("job_id,slo\na,0.5\n", "Expected slo >= 1, got '0.5' (job 'a', log 1, column slo)."),
    ],
)
def test_faults_of_the_table_of_jobs(text: str, words: str, tmp_path: Path) -> None:
    log = put(tmp_path / "a.jsonl", jsonl([(n, step_of(5, 6)) for n in range(5)]))
    with pytest.raises(InputError) as caught:
        imported(log, jobs_table=put(tmp_path / "jobs.csv", text))
    assert words in str(caught.value)


def test_logs_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = []
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        paths.append(
            put(tmp_path / name / "metrics.jsonl", jsonl([(n, step_of(5, 6)) for n in (1, 2)]))
        )
    jobs, _ = import_verl(paths, slo=1.5, model_b=7)
    assert jobs.job_id == ("x-metrics", "y-metrics")
    with pytest.raises(InputError, match="Expected one log with a job id, got 2"):
        import_verl(paths, slo=1.5, job_id="z")


def test_the_faults_of_all_logs_are_reported_at_once(tmp_path: Path) -> None:
    first = put(tmp_path / "a.jsonl", '{"step": 1, "data": {"timing_s/gen": 1}}\n')
    second = put(tmp_path / "b.jsonl", "[]\n")
    with pytest.raises(InputError) as caught:
        import_verl([first, second], slo=1.5)
    assert "a.jsonl: 1 fault:" in str(caught.value)
    assert "b.jsonl: 1 fault:" in str(caught.value)


def test_what_a_log_cannot_say_must_be_given(tmp_path: Path) -> None:
    path = log_of(tmp_path, [5.0, 6.0, 7.0])
    with pytest.raises(InputError, match="Expected slo, the slowdown promised to job 'job'"):
        import_verl(path, slo=None)
    with pytest.raises(InputError, match=r"Expected model_b \(--model-b\) of job 'job', or all"):
        import_verl(path, slo=1.5)
    with pytest.raises(InputError, match=r"got none of 4 \(4 skipped as warm-up; skip_steps is 4"):
        imported(path, skip_steps=4)
    with pytest.raises(InputError, match="Expected skip_steps >= 0, got -1"):
        imported(path, skip_steps=-1)
    with pytest.raises(InputError, match="Expected at least one log, got none"):
        import_verl([], slo=1.5)


SECONDS = st.floats(min_value=1e-3, max_value=1e5, allow_nan=False)


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=30))
def test_json_lines_and_csv_give_the_same_row(steps: list[tuple[float, float, float]]) -> None:
    logged = [
        (n, {"timing_s/gen": g, "timing_s/reward": w, "timing_s/update_actor": u})
        for n, (g, w, u) in enumerate(steps, start=1)
    ]
    with tempfile.TemporaryDirectory() as folder:
        as_json = put(Path(folder) / "job.jsonl", jsonl(logged))
        as_csv = put(Path(folder) / "job.csv", csv_of(logged, run="r"))
        tables = [imported(path, skip_steps=0)[0] for path in (as_json, as_csv)]
        for name, table in zip(("a.csv", "b.csv"), tables, strict=True):
            write_trace(table, Path(folder) / name)
        read = [read_trace(Path(folder) / name).jobs for name in ("a.csv", "b.csv")]
    assert list(tables[0]) == list(tables[1]) == list(read[0]) == list(read[1])
    (job,) = tables[0]
    # Written to the microsecond.
    assert job.rollout_s == pytest.approx(max(g + w for g, w, _ in steps), abs=1e-6)
    assert job.train_s == pytest.approx(max(u for _, _, u in steps), abs=1e-6)
    for low, high in (("rollout_p50_s", "rollout_p95_s"), ("train_p50_s", "train_p95_s")):
        assert (low in tables[0].optional) == (len(steps) >= 20)
        if low in tables[0].optional:
            assert tables[0].optional[low][0] <= tables[0].optional[high][0]


def test_a_model_that_is_not_given_is_one_fault(tmp_path: Path) -> None:
    path = log_of(tmp_path, [10.0])
    with pytest.raises(InputError) as caught:
        import_verl(path, slo=1.5)
    assert str(caught.value) == (
        "job.jsonl: Expected model_b (--model-b) of job 'job', or all of rollout_state_gb, "
        "train_state_gb, rollout_switch_s, train_switch_s, sync_s in the table of jobs, got "
        "neither."
    )
    head = "job_id,rollout_state_gb,train_state_gb,rollout_switch_s,train_switch_s"
    table = put(tmp_path / "table.csv", f"{head}\njob,1,1,0,0\n")
    with pytest.raises(InputError, match=r"or all of sync_s in the table"):
        import_verl(path, slo=1.5, jobs_table=table)
    table = put(tmp_path / "table.csv", f"{head},sync_s\njob,1,1,0,0,3\n")
    assert import_verl(path, slo=1.5, jobs_table=table)[0].sync_s.tolist() == [3]
