"""Importers: rows are kept, counted or refused, never lost; profiles are labelled synthetic."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, H20, H800, NodeType
from instances.importers import IMPORTERS, import_generic, import_philly
from instances.jobs import FLOAT_FIELDS
from instances.profiles import PROFILE_TABLE, PROFILES
from instances.trace import read_trace, write_trace

PHILLY = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "philly" / "philly.csv"
needs_philly = pytest.mark.skipif(
    not PHILLY.exists(), reason=f"needs the Philly log beside the repository ({PHILLY})"
)

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
#: Row 1 comes last in time; row 3 has too few GPUs, row 4 is too short.
SMALL = HEADER + (
    "2017-10-09 12:00:00,7200.0,8,57600.0,aaa\n"
    "2017-10-08 12:00:00,36000.0,12,432000.0,bbb\n"
    "2017-10-08 11:00:00,36000.0,4,144000.0,ccc\n"
    "2017-10-08 13:00:00,3599.0,8,28792.0,ddd\n"
    "2017-10-08 14:00:00,3600.0,128,460800.0,eee\n"
)


def write(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- Philly ----------------------------------------------------------------------------


def test_rows_are_sorted_traceable_and_relative_to_the_first_kept(tmp_path):
    jobs, summary = import_philly(write(tmp_path, SMALL), seed=0)
    assert jobs.job_id == ("philly-000002", "philly-000005", "philly-000001")
    assert jobs.arrival_s.tolist() == [0, 2 * 3600, 24 * 3600]
    assert jobs.duration_s.tolist() == [36000, 3600, 7200]
    assert jobs.extra["philly_timestamp"][0] == "2017-10-08 12:00:00"
    assert jobs.extra["philly_num_gpus"] == ("12", "128", "8")
    assert jobs.extra["philly_cluster"] == ("bbb", "eee", "aaa")
    assert summary.dropped == {"min_gpus": 1, "min_hours": 1, "window": 0, "jobs": 0}
    assert summary.window == ("2017-10-08 12:00:00", "2017-10-09 12:00:00")


def test_gpus_round_up_to_whole_nodes_of_both_kinds(tmp_path):
    jobs, summary = import_philly(write(tmp_path, SMALL), seed=0)
    assert jobs.rollout_nodes.tolist() == jobs.train_nodes.tolist() == [2, 16, 1]
    assert summary.gpus == {8: (1, 1, 1), 12: (2, 2, 1), 128: (16, 16, 1)}
    single, summary = import_philly(write(tmp_path, SMALL), seed=0, single_node=True)
    assert set(single.rollout_nodes) == set(single.train_nodes) == {1}
    assert summary.gpus == {8: (1, 1, 1), 12: (1, 1, 1), 128: (1, 1, 1)}


def test_each_pool_rounds_up_to_its_own_nodes(tmp_path):
    """12 GPUs are three 4-GPU rollout nodes and one 16-GPU train node."""
    cluster = DEFAULT_CLUSTER.replace(
        rollout=NodeType(gpu=H20, gpus_per_node=4), train=NodeType(gpu=H800, gpus_per_node=16)
    )
    jobs, summary = import_philly(write(tmp_path, SMALL), seed=0, cluster=cluster)
    assert jobs.rollout_nodes.tolist() == [3, 32, 2]
    assert jobs.train_nodes.tolist() == [1, 8, 1]
    assert summary.gpus == {8: (2, 1, 1), 12: (3, 1, 1), 128: (32, 8, 1)}


@pytest.mark.parametrize(
    ("options", "dropped"),
    [
        # The window starts at the earliest timestamp of the file, row 3 at 11:00.
        ({"hours": 3}, {"min_gpus": 1, "min_hours": 1, "window": 2, "jobs": 0}),
        ({"hours": 3.5}, {"min_gpus": 1, "min_hours": 1, "window": 1, "jobs": 0}),
        ({"start_h": 2}, {"min_gpus": 1, "min_hours": 1, "window": 1, "jobs": 0}),
        ({"jobs": 1}, {"min_gpus": 1, "min_hours": 1, "window": 0, "jobs": 2}),
        ({"min_gpus": 1}, {"min_gpus": 0, "min_hours": 1, "window": 0, "jobs": 0}),
        ({"min_gpus": 9, "min_hours": 2}, {"min_gpus": 3, "min_hours": 1, "window": 0, "jobs": 0}),
    ],
)
def test_every_row_is_counted_under_its_first_reason(tmp_path, options, dropped):
    jobs, summary = import_philly(write(tmp_path, SMALL), seed=0, **options)
    assert summary.dropped == dropped
    assert summary.rows_read == summary.kept + sum(summary.dropped.values()) == 5
    assert summary.kept == len(jobs)


def test_profiles_are_seeded_and_labelled(tmp_path):
    path = write(tmp_path, SMALL)
    first, _ = import_philly(path, seed=3)
    again, _ = import_philly(path, seed=3)
    other, _ = import_philly(path, seed=4)
    assert first.rollout_s.tolist() == again.rollout_s.tolist() != other.rollout_s.tolist()
    assert set(first.extra["profile_source"]) == {"synthetic:mixed:seed=3"}
    known = {f"{kind}/{size}" for kind in PROFILE_TABLE for size in "SML"}
    assert set(first.extra["profile"]) <= known
    drawn, _ = import_philly(path, seed=3, profile="production")
    assert set(drawn.extra["profile_source"]) == {"synthetic:production:seed=3"}
    assert "rollout_state_gb" in first.estimated_columns()


def test_a_job_keeps_its_profile_when_the_window_moves(tmp_path):
    path = write(tmp_path, SMALL)
    every, _ = import_philly(path, seed=0)
    late, _ = import_philly(path, seed=0, start_h=10)
    assert late.job_id == ("philly-000001",)
    assert (late.job(0).rollout_s, late.job(0).slo) == (every.job(2).rollout_s, every.job(2).slo)


def test_gzip_and_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + SMALL.encode()))
    assert import_philly(path, seed=0)[1].kept == 3


def test_summary_lines_say_what_was_read_kept_and_drawn(tmp_path):
    _, summary = import_philly(write(tmp_path, SMALL), seed=5, jobs=2)
    text = "\n".join(summary.lines())
    assert "log.csv: 5 rows read, 2 kept." in text
    assert "min_gpus 1, min_hours 1, window 0, jobs 1" in text
    assert "128 GPUs as 16+16 nodes: 1" in text
    assert "synthetic: mixed, seed 5" in text


@pytest.mark.parametrize(
    ("options", "running"),
    [
        ({}, 0),
        # The window starts 2 h after 11:00: row 2 (12:00, 10 h) runs at 13:00; rows 3 and 4 are
        # left out for other reasons.
        ({"start_h": 2}, 1),
        ({"start_h": 2, "min_gpus": 1, "min_hours": 0}, 2),
        ({"start_h": 11.5}, 0),  # row 2 ended at 22:00
        ({"start_h": 10.5}, 1),
    ],
)
def test_jobs_that_run_when_the_window_starts_are_counted(tmp_path, options, running):
    _, summary = import_philly(write(tmp_path, SMALL), seed=0, **options)
    assert summary.running == running
    said = "\n".join(summary.lines())
    words = {
        0: "",
        1: "1 job that arrived earlier still runs at the start of the window and is left out: the "
        "cluster starts empty.",
        2: "2 jobs that arrived earlier still run at the start of the window and are left out: the "
        "cluster starts empty.",
    }[running]
    assert words in said
    assert ("cluster starts empty" in said) is bool(running)


def test_the_summary_says_what_hardware_a_job_becomes(tmp_path):
    """Of the sizes kept, one job each, the smallest: 8 GPUs are a node of each kind."""
    path = write(tmp_path, SMALL)
    _, summary = import_philly(path, seed=0)
    assert (
        "A job of 8 GPUs becomes 1 rollout node and 1 train node (8 H20 + 8 H800 GPUs)."
        in summary.lines()
    )
    cluster = DEFAULT_CLUSTER.replace(
        rollout=NodeType(gpu=H20, gpus_per_node=4), train=NodeType(gpu=H800, gpus_per_node=16)
    )
    _, summary = import_philly(path, seed=0, cluster=cluster)
    assert (
        "A job of 8 GPUs becomes 2 rollout nodes and 1 train node (8 H20 + 16 H800 GPUs)."
        in summary.lines()
    )


def test_a_window_beyond_the_log_says_how_long_the_log_is(tmp_path):
    """From row 3 (the 8th, 11:00) to row 1 (the 9th, 12:00)."""
    with pytest.raises(InputError, match=r"got none of 5 rows .*\. Arrivals span 25 h\.$"):
        import_philly(write(tmp_path, SMALL), seed=0, start_h=9999)


@pytest.mark.parametrize(
    ("row", "column", "value", "rule"),
    [
        ("2017-10-09,10,8,80,a", "timestamp", "2017-10-09", "YYYY-MM-DD HH:MM:SS"),
        ("2017-02-30 00:00:00,10,8,80,a", "timestamp", "2017-02-30 00:00:00", "timestamp as"),
        ("2017-10-09 00:00:00,-5,8,80,a", "duration", "-5", "duration > 0"),
        ("2017-10-09 00:00:00,,8,80,a", "duration", "", "duration > 0"),
        ("2017-10-09 00:00:00,inf,8,80,a", "duration", "inf", "duration > 0"),
        ("2017-10-09 00:00:00,10,7.5,75,a", "num_gpus", "7.5", "a whole number from 1"),
        ("2017-10-09 00:00:00,10,0,80,a", "num_gpus", "0", "a whole number from 1"),
        ("2017-10-09 00:00:00,10,eight,80,a", "num_gpus", "eight", "a whole number from 1"),
        ("2017-10-09 00:00:00,10,8,81,a", "gpu_time", "81", "duration x num_gpus = 80"),
        ("2017-10-09 00:00:00,10,8,nan,a", "gpu_time", "nan", "gpu_time > 0 seconds"),
    ],
)
def test_a_malformed_cell_names_file_line_column_value_and_rule(tmp_path, row, column, value, rule):
    """The row is the sixth after the header, so line 7; it would be filtered out if valid."""
    with pytest.raises(InputError) as caught:
        import_philly(write(tmp_path, SMALL + row + "\n"), seed=0)
    head, fault = str(caught.value).splitlines()
    assert head == "log.csv: 1 fault:"
    assert fault.startswith("Expected ")
    assert rule in fault
    shown = f"got {value!r}" if value else "got an empty cell"
    assert fault.endswith(f"{shown} (line 7, column {column}).")


def test_all_faults_are_counted_and_twenty_shown_in_file_order(tmp_path):
    bad = "2017-10-09 00:00:00,-1,0,80,a\n" * 15
    with pytest.raises(InputError) as caught:
        import_philly(write(tmp_path, HEADER + bad), seed=0)
    head, *lines = str(caught.value).splitlines()
    assert head == "log.csv: 30 faults, the first 20:"
    assert len(lines) == 20
    assert "(line 2, column duration)" in lines[0]
    assert "(line 11, column num_gpus)" in lines[19]  # two faults a line from line 2 on


def test_a_row_of_the_wrong_length_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"Expected 5 cells, got 4 \(line 7\)"):
        import_philly(write(tmp_path, SMALL + "2017-10-09 00:00:00,10,8,80\n"), seed=0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected a header line"),
        ("timestamp,duration,gpu_time,cluster\n", "Missing column 'num_gpus'"),
        (HEADER.replace("cluster", "cluster,cluster"), "cluster"),
        (HEADER, "at least one job to keep, got none of 0 rows"),
        (
            HEADER + "2017-10-09 00:00:00,10,1,10,a\n",
            r"got none of 1 rows \(left out: min_gpus 1, ",
        ),
    ],
)
def test_unusable_files_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        import_philly(write(tmp_path, text), seed=0)


def test_unreadable_files_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        import_philly(tmp_path / "absent.csv", seed=0)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xd8\x00")
    with pytest.raises(InputError, match="Not a text file"):
        import_philly(binary, seed=0)
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(SMALL.encode())[:-12])
    with pytest.raises(InputError, match=r"broken\.csv\.gz"):
        import_philly(broken, seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hours": 0}, "hours > 0, got 0"),
        ({"start_h": -1}, "start_h >= 0, got -1"),
        ({"jobs": 0}, "jobs >= 1, got 0"),
        ({"min_gpus": -1}, "min_gpus >= 0, got -1"),
        ({"min_hours": float("nan")}, "min_hours >= 0, got nan"),
        ({"seed": -1}, "seed >= 0, got -1"),
        ({"profile": "mixd"}, "Did you mean 'mixed'"),
    ],
)
@pytest.mark.parametrize("importer", IMPORTERS)
def test_options_are_checked_before_the_file_is_read(tmp_path, importer, options, message):
    with pytest.raises(InputError, match=message):
        IMPORTERS[importer](tmp_path / "absent.csv", **{"seed": 0, **options})


@needs_philly
def test_the_real_log():
    """SOURCE.txt of the log: 82,247 rows, 1,932 with >= 8 GPUs, 1,335 of them of >= 1 h."""
    jobs, summary = import_philly(PHILLY, seed=0)
    assert summary.rows_read == 82_247
    assert summary.dropped["min_gpus"] == 82_247 - (1643 + 7 + 199 + 7 + 67 + 6 + 3)
    assert summary.kept == len(jobs) == 1335
    assert summary.rows_read == summary.kept + sum(summary.dropped.values())
    assert sum(jobs_ for *_, jobs_ in summary.gpus.values()) == 1335
    assert np.all(np.diff(jobs.arrival_s) >= 0)
    assert jobs.rollout_nodes.max() == 16  # the 128-GPU jobs stay


@needs_philly
def test_a_window_of_the_real_log():
    jobs, summary = import_philly(PHILLY, seed=1, hours=580, start_h=1000, jobs=300)
    assert summary.kept == len(jobs) == 300
    assert summary.rows_read == summary.kept + sum(summary.dropped.values())
    assert jobs.arrival_s[-1] < 580 * 3600
    # philly-000123 is the 123rd row after the header.
    with PHILLY.open(encoding="utf-8") as log:
        rows = log.read().splitlines()
    for job_id, timestamp in zip(jobs.job_id, jobs.extra["philly_timestamp"], strict=True):
        assert rows[int(job_id.split("-")[1])].startswith(timestamp)


@pytest.mark.parametrize("profile", PROFILES)
def test_an_import_written_as_a_trace_reads_back_the_same(tmp_path, profile):
    jobs, _ = import_philly(write(tmp_path, SMALL), seed=0, profile=profile)
    write_trace(jobs, tmp_path / "trace.csv")
    back = read_trace(tmp_path / "trace.csv", DEFAULT_CLUSTER).jobs
    assert back.job_id == jobs.job_id
    assert dict(back.extra) == dict(jobs.extra)
    for name in FLOAT_FIELDS:
        np.testing.assert_array_equal(getattr(back, name), getattr(jobs, name))


# --- generic ---------------------------------------------------------------------------

GENERIC = "job_id,arrival_s,service_sec,gpu_count,team\nb,100,50,1,x\na,40.5,7200,16,y\n"


def test_generic_keeps_everything_unless_asked(tmp_path):
    jobs, summary = import_generic(write(tmp_path, GENERIC), seed=0)
    assert jobs.job_id == ("a", "b")
    assert jobs.arrival_s.tolist() == [0, 59.5]
    assert jobs.duration_s.tolist() == [7200, 50]
    assert jobs.rollout_nodes.tolist() == [2, 1]
    assert jobs.extra["generic_team"] == ("y", "x")
    assert jobs.extra["generic_arrival_s"] == ("40.5", "100")
    assert summary.dropped == {"min_gpus": 0, "min_hours": 0, "window": 0, "jobs": 0}
    _, summary = import_generic(write(tmp_path, GENERIC), seed=0, min_gpus=8)
    assert summary.dropped["min_gpus"] == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,1,1,1,z", r"job_id not used before \(line 3\), got 'a' \(line 4, column job_id\)"),
        (",1,1,1,z", r"job_id not empty, got an empty cell \(line 4, column job_id\)"),
        ("c,soon,1,1,z", r"arrival_s a finite number, got 'soon' \(line 4, column arrival_s\)"),
        ("c,1,0,1,z", r"service_sec > 0 seconds, got '0' \(line 4, column service_sec\)"),
        ("c,1,1,-2,z", r"got '-2' \(line 4, column gpu_count\)"),
    ],
)
def test_generic_refuses_malformed_rows(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        import_generic(write(tmp_path, GENERIC + row + "\n"), seed=0)


def test_a_quoted_line_break_does_not_shift_line_numbers(tmp_path):
    text = 'job_id,arrival_s,service_sec,gpu_count\n"a\nb",1,1,1\nc,1,x,1\n'
    with pytest.raises(InputError, match=r"\(line 4, column service_sec\)"):
        import_generic(write(tmp_path, text), seed=0)
