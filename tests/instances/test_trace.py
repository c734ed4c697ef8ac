"""Reading and writing traces: every format, round trips, broken files, whole-file promises."""

import gzip
import hashlib
import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from instances import trace, trace_io
from instances.errors import InputError
from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER, Links
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, MODES, Job, JobTable
from instances.trace import Fault, TraceError, jobs_from_frame, read_trace, write_trace
from instances.trace_rules import jobs_from_table

has_pyarrow = importlib.util.find_spec("pyarrow") is not None
has_zstd = importlib.util.find_spec("zstandard") is not None or sys.version_info >= (3, 14)
needs_pyarrow = pytest.mark.skipif(not has_pyarrow, reason="pyarrow (extra parquet) is absent")
needs_zstd = pytest.mark.skipif(not has_zstd, reason="zstandard (extra zstd) is absent")
SUFFIXES = [
    "csv",
    "csv.gz",
    pytest.param("csv.zst", marks=needs_zstd),
    "jsonl",
    "jsonl.gz",
    pytest.param("jsonl.zst", marks=needs_zstd),
    "ndjson",
    "ndjson.gz",
    pytest.param("ndjson.zst", marks=needs_zstd),
    pytest.param("parquet", marks=needs_pyarrow),
]
HEADER = "job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b\n"
ROW = "a17,0,3600,1.5,100,50,7\n"
VALID = HEADER + ROW


def content(jobs):
    """Return everything a table holds as plain Python values, empty masks left out."""
    columns = {name: getattr(jobs, name).tolist() for name in (*FLOAT_FIELDS, *INT_FIELDS)}
    columns["optional"] = {
        k: [None if x != x else x for x in v.tolist()] for k, v in jobs.optional.items()
    }
    columns["extra"] = dict(jobs.extra)
    columns["estimated"] = {k: v.tolist() for k, v in jobs.estimated.items() if v.any()}
    return {"job_id": jobs.job_id, "mode": jobs.mode, **columns}


@pytest.fixture
def jobs():
    """Return jobs with odd ids, two modes, one estimated cell and text that needs quoting."""
    table = JobTable.from_jobs(
        [
            Job(job_id="007", rollout_s=100.1, train_s=1 / 3, slo=1.0, sync_s=5.88, sync_gb=14.0),
            Job(job_id='#a, "b"', rollout_s=1e-300, train_s=1e12, slo=1e5, mode="async"),
            Job(
                job_id="é漢🙂", rollout_s=5e-324, train_s=2.0, slo=1.1, arrival_s=1e9, train_nodes=3
            ),
        ]
    )
    return table.replace(
        rollout_state_gb=[275.7, 1.0, 2.0],
        optional={"model_b": [7.0, np.nan, 1.0], "max_tokens": [np.nan] * 3},
        extra={"note": ("x\r\ny", "", ' "q", \r'), "": ("1", "2", "NA"), 'a"b%s': ("", "", "")},
        estimated={"rollout_state_gb": [True, False, False]},
    )


# -- round trips -----------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_back_exactly(tmp_path, jobs, suffix):
    write_trace(jobs, tmp_path / f"t.{suffix}")
    assert content(read_trace(tmp_path / f"t.{suffix}").jobs) == content(jobs)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_generated_trace_survives(tmp_path, suffix):
    jobs = production(seed=3, n_jobs=50)
    write_trace(jobs, tmp_path / f"t.{suffix}")
    assert content(read_trace(tmp_path / f"t.{suffix}").jobs) == content(jobs)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_equal_jobs_give_equal_bytes(tmp_path, jobs, suffix):
    (tmp_path / "sub").mkdir()
    write_trace(jobs, tmp_path / f"one.{suffix}")
    write_trace(jobs.take(range(len(jobs))), tmp_path / "sub" / f"two.{suffix}")
    one, two = tmp_path / f"one.{suffix}", tmp_path / "sub" / f"two.{suffix}"
    assert one.read_bytes() == two.read_bytes()
    assert read_trace(one).sha256 == hashlib.sha256(one.read_bytes()).hexdigest()
    assert read_trace(two).name == f"two.{suffix}"


def test_gzip_header_holds_neither_time_nor_name(tmp_path, jobs):
    write_trace(jobs, tmp_path / "t.csv.gz")
    head = (tmp_path / "t.csv.gz").read_bytes()[:10]
    assert head[3] == 0  # flags: no FNAME
    assert head[4:8] == b"\0\0\0\0"  # MTIME


def test_the_csv_text_itself(tmp_path):
    job = Job(job_id="007", rollout_s=100.0, train_s=0.1, slo=1.5, sync_s=1.0, sync_gb=2.0)
    jobs = JobTable.from_jobs([job]).replace(
        optional={"model_b": [7.0]},
        extra={"note": ('a "b"',)},
        estimated={"sync_s": [True], "sync_gb": [True]},
    )
    write_trace(jobs, tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == (
        b"job_id,arrival_s,duration_s,slo,rollout_s,train_s,sync_s,rollout_state_gb,"
        b"train_state_gb,rollout_switch_s,train_switch_s,sync_gb,rollout_nodes,train_nodes,"
        b"mode,model_b,note\n"
        b'007,0,3600,1.5,100,0.1,,0,0,0,0,,1,1,sync,7,"a ""b"""\n'
    )


def test_estimates_come_back_as_estimates(tmp_path):
    (tmp_path / "a.csv").write_text(VALID)
    jobs = read_trace(tmp_path / "a.csv").jobs
    write_trace(jobs, tmp_path / "b.csv")
    assert content(read_trace(tmp_path / "b.csv").jobs) == content(jobs)
    # Another cluster estimates anew: nothing estimated was written as if measured.
    slow = DEFAULT_CLUSTER.replace(links=Links(inter_gbps=10.0))
    assert read_trace(tmp_path / "b.csv", slow).jobs.sync_s[0] > jobs.sync_s[0]


positive = st.floats(1e-300, 1e12, exclude_max=True)
zero_up = st.floats(0, 1000)
no_surrogates = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
printable = st.characters(exclude_categories=["Cs", "Cc"])
ids = st.one_of(
    st.text(printable, min_size=1, max_size=20),
    st.sampled_from(["007", "NA", "nan", "null", "1e5", "#", '"', ",", "'", "True", " x "]),
).filter(str.strip)


@st.composite
def tables(draw):
    """Draw valid tables in arrival order, with ties, empty cells and any writable text."""
    names = draw(st.lists(ids, min_size=1, max_size=6, unique=True))
    n = len(names)

    def column(strategy):
        return draw(st.lists(strategy, min_size=n, max_size=n))

    loose = ("sync_s", "sync_gb", "rollout_state_gb", "train_state_gb", "rollout_switch_s")
    extra = draw(st.lists(st.text(no_surrogates, max_size=8), max_size=2, unique=True))
    phases = st.floats(1e-3, 1e9)
    return JobTable(
        job_id=tuple(names),
        arrival_s=sorted(column(st.one_of(st.just(0.0), st.floats(0, 1e10)))),
        duration_s=column(st.floats(1e-200, 1e12)),
        slo=column(st.floats(1, 1e12)),
        rollout_s=column(phases),
        train_s=column(phases),
        train_switch_s=column(zero_up),
        rollout_nodes=column(st.integers(1, 1_000_000)),
        train_nodes=column(st.integers(1, 9)),
        mode=tuple(column(st.sampled_from(MODES))),
        optional={"model_b": column(st.one_of(st.just(np.nan), positive))},
        extra={f"x{name}": tuple(column(st.text(no_surrogates, max_size=9))) for name in extra},
        **{name: column(zero_up) for name in loose},
    )


@pytest.mark.parametrize("suffix", ["csv", "jsonl", pytest.param("parquet", marks=needs_pyarrow)])
@settings(max_examples=150, deadline=None)
@given(jobs=tables())
def test_any_valid_table_survives(tmp_path_factory, suffix, jobs):
    path = tmp_path_factory.mktemp("trip") / f"t.{suffix}"
    write_trace(jobs, path)
    assert content(read_trace(path).jobs) == content(jobs)
    first = path.read_bytes()
    write_trace(read_trace(path).jobs, path, force=True)
    assert path.read_bytes() == first


cells = st.one_of(
    st.floats().map(repr),
    st.integers(-5, 5).map(str),
    st.text("0123456789.eE+-_ nax\t", max_size=6),
    st.sampled_from(["", "true", "FALSE", "nan", "inf", "1e400", "0x1", "1,0", "NULL", "Infinity"]),
)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=3))
def test_the_typed_and_the_text_reading_never_disagree(rows):
    """Whatever pandas types, the text of the cells says too, fault by fault."""
    text = (
        "job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b,sync_s,sync_gb,rollout_p50_s\n"
    )
    for i, row in enumerate(rows):
        quoted = ",".join(f'"{cell}"' if "," in cell else cell for cell in row)
        text += f"j{i},0,3600,1.5,1e12,50,7,{quoted}\n"
    raw = trace_io.CsvText(text.encode(), "t.csv")
    results = []
    for typed in (True, False):
        table = raw.table(typed=typed)
        if table is None:
            return  # left to the text reading, the only one then
        try:
            results.append(content(jobs_from_table(table, DEFAULT_CLUSTER)))
        except TraceError as error:
            results.append([(f.row, f.column, f.rule) for f in error.faults])
    assert _without_raw(results[0]) == _without_raw(results[1])


def _without_raw(result):
    """Drop the quoted numbers of a percentile rule: the typed reading spells them anew."""
    if isinstance(result, list):
        return [(row, column, rule.partition(" = ")[0]) for row, column, rule in result]
    return result


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_all_formats_and_frames_agree(tmp_path, suffix):
    text = (
        "job_id,arrival_s,iterations,slo,rollout_s,train_s,model_b,team,mode,rollout_nodes\n"
        "007,5,10,1.5,100,50,7,red,,2\n"
        "NA,5,20,2,200,50,,,one-step,\n"
        "b,0,1.5,1,300,0.1,32,blue,sync,1\n"
    ).replace("NA,5,20,2,200,50,,", "NA,5,20,2,200,50,14,")
    (tmp_path / "a.csv").write_text(text)
    expected = read_trace(tmp_path / "a.csv").jobs
    frame = pd.read_csv(tmp_path / "a.csv", dtype={"job_id": str}, keep_default_na=False)
    frame["rollout_nodes"] = pd.to_numeric(frame["rollout_nodes"])
    assert content(jobs_from_frame(frame)) == content(expected)
    path = tmp_path / f"t.{suffix}"
    if suffix == "parquet":
        frame.to_parquet(path)
    elif "json" in suffix:
        lines = frame.astype({"rollout_nodes": object}).to_dict("records")
        clean = [{k: None if v != v else v for k, v in line.items()} for line in lines]
        data = "\n".join(map(json.dumps, clean)).encode()
        path.write_bytes(trace._compress(data, suffix.partition(".")[2]))
    else:
        path.write_bytes(trace._compress(text.encode(), suffix.partition(".")[2]))
    assert content(read_trace(path).jobs) == content(expected)


def test_jobs_are_sorted_by_arrival_with_file_order_on_ties(tmp_path):
    rows = [("d", 5), ("c", 0), ("b", 5), ("a", 0)]
    text = HEADER + "".join(f"{job},{at},3600,1.5,100,50,7\n" for job, at in rows)
    (tmp_path / "t.csv").write_text(text)
    jobs = read_trace(tmp_path / "t.csv").jobs
    assert jobs.job_id == ("c", "a", "d", "b")
    assert jobs.arrival_s.tolist() == [0, 0, 5, 5]
    # Long enough that an unstable sort would show.
    text = HEADER + "".join(f"{i},{i % 2},3600,1.5,100,50,7\n" for i in range(1000))
    (tmp_path / "t.csv").write_text(text)
    expected = [str(i) for start in (0, 1) for i in range(start, 1000, 2)]
    assert list(read_trace(tmp_path / "t.csv").jobs.job_id) == expected


def test_unknown_columns_keep_their_order_and_text(tmp_path):
    text = (
        "z,job_id,arrival_s,duration_s,slo,rollout_s,train_s,model_b,a,#\n 1.0 ,j,0,1,1,1,1,7,NA,\n"
    )
    (tmp_path / "t.csv").write_text(text)
    extra = read_trace(tmp_path / "t.csv").jobs.extra
    assert list(extra.items()) == [("z", (" 1.0 ",)), ("a", ("NA",)), ("#", ("",))]


# -- Parquet types ---------------------------------------------------------------------------


@needs_pyarrow
def test_parquet_types(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(
        {
            "job_id": pa.array([7, 8]),
            "arrival_s": pa.array([0, 1], pa.int32()),
            "duration_s": pa.array([3600.0, np.nan]),
            "iterations": pa.array([None, 2], pa.uint8()),
            "slo": pa.array(["1.5", "2"]).dictionary_encode(),
            "rollout_s": pa.array([100, 100], pa.float32()),
            "train_s": pa.array([50, 50], pa.decimal128(5, 1)),
            "model_b": pa.array([7, 7]),
            "day": pa.array([0, None], pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    jobs = read_trace(tmp_path / "t.parquet").jobs
    assert jobs.job_id == ("7", "8")
    assert jobs.slo.tolist() == [1.5, 2.0]
    assert jobs.duration_s.tolist() == [3600.0, 2 * jobs.solo_s[1]]
    assert jobs.extra == {"day": ("1970-01-01", "")}


@needs_pyarrow
def test_parquet_faults_count_rows(tmp_path):
    frame = pd.DataFrame(
        [dict(zip(HEADER.strip().split(","), ROW.strip().split(","), strict=True))] * 2
    )
    frame["job_id"] = ["a", "b"]
    frame["slo"] = [1.5, 0.5]
    frame["sync_s"] = [True, None]
    frame["team"] = [[1], None]
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "t.parquet")
    assert str(caught.value).splitlines() == [
        "t.parquet: 3 faults:",
        "Expected sync_s to be a number, got 'True' (job 'a', row 1, column sync_s).",
        "Expected team to be text or a number, got '[1]' (job 'a', row 1, column team).",
        "Expected slo >= 1, got '0.5' (job 'b', row 2, column slo).",
    ]


@pytest.mark.parametrize(
    "data", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\0" * 50 + b"PAR1"]
)
@needs_pyarrow
def test_broken_parquet(tmp_path, data):
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"^t\.parquet: Not a readable Parquet file: "):
        read_trace(tmp_path / "t.parquet")


# -- files that cannot be read -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.txt", "t", "t.csv.bz2", "csv", "t.parquet.gz", ""])
def test_unknown_suffix_lists_the_known_ones(tmp_path, name):
    with pytest.raises(InputError) as caught:
        read_trace(tmp_path / name if name else "")
    for suffix in (".csv", ".csv.gz", ".csv.zst", ".jsonl", ".ndjson.zst", ".parquet"):
        assert suffix in str(caught.value)


def test_suffixes_in_capitals_are_known(tmp_path):
    (tmp_path / "T.CSV").write_text(VALID)
    assert read_trace(tmp_path / "T.CSV").jobs.job_id == ("a17",)


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv: No such file or directory\.$"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(InputError, match=r"d\.csv: Is a directory\.$"):
        read_trace(tmp_path / "d.csv")
    with pytest.raises(InputError, match="null"):
        read_trace("a\0b.csv")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path):
    (tmp_path / "t.csv").write_text(VALID)
    (tmp_path / "t.csv").chmod(0)
    with pytest.raises(InputError, match=r"t\.csv: Permission denied\.$"):
        read_trace(tmp_path / "t.csv")


def _broken_gzip():
    whole = gzip.compress(VALID.encode(), mtime=0)  # ids must not change by the second
    flipped = bytearray(whole)
    flipped[-6] ^= 0xFF  # the checksum
    return [b"", b"plain text", whole[:-9], bytes(flipped), whole + b"junk"][1:]


@pytest.mark.parametrize("data", _broken_gzip())
def test_corrupt_gzip(tmp_path, data):
    (tmp_path / "t.csv.gz").write_bytes(data)
    with pytest.raises(InputError, match=r"^t\.csv\.gz: Not a whole \.gz file: "):
        read_trace(tmp_path / "t.csv.gz")


@needs_zstd
@pytest.mark.parametrize("how", ["junk", "cut", "flip"])
def test_corrupt_zstd(tmp_path, how):
    whole = trace._compress(VALID.encode() * 50, "zst")
    flipped = whole[:2] + b"\xff" + whole[3:]
    (tmp_path / "t.csv.zst").write_bytes({"junk": b"text", "cut": whole[:-3], "flip": flipped}[how])
    with pytest.raises(InputError, match=r"^t\.csv\.zst: Not a whole \.zst file: "):
        read_trace(tmp_path / "t.csv.zst")


@needs_zstd
def test_several_zstd_frames_are_one_file(tmp_path):
    parts = [trace._compress(text.encode(), "zst") for text in (HEADER, ROW)]
    (tmp_path / "t.csv.zst").write_bytes(b"".join(parts))
    assert len(read_trace(tmp_path / "t.csv.zst").jobs) == 1


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (VALID.encode() + b"b\xff", "Not UTF-8 text: byte 0xff in line 3. Save the file as UTF-8."),
        ("é\n".encode() * 5_000_000 + b"\xe9", "Not UTF-8 text: byte 0xe9 in line 5000001."),
        (VALID.encode("utf-16"), "Expected UTF-8 text, got UTF-16. Save the file as UTF-8"),
        (b"\x89PNG\r\n\x1a\n\0\0", "Not a text file: NUL byte in line 3."),
    ],
    ids=["latin1", "far", "utf16", "png"],
)
def test_bytes_that_are_no_text(tmp_path, suffix, data, message):
    (tmp_path / f"t.{suffix}").write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_trace(tmp_path / f"t.{suffix}")
    assert str(caught.value).startswith(f"t.{suffix}: {message}")


@settings(max_examples=300, deadline=None)
@given(
    junk=st.one_of(
        st.binary(max_size=60),
        st.text('ab",\n\r\t 1{}[]:', max_size=60).map(str.encode),
        st.text('",\n\r1', max_size=30).map(lambda t: (VALID + t).encode()),
    ),
    suffix=st.sampled_from(["csv", "csv.gz", "jsonl"]),
)
def test_no_bytes_raise_anything_but_an_input_error(tmp_path_factory, junk, suffix):
    path = tmp_path_factory.mktemp("junk") / f"t.{suffix}"
    path.write_bytes(junk)
    said = None
    try:
        jobs = read_trace(path).jobs
    except InputError as error:
        said = str(error)
    # Only the valid start can make a job.
    assert said.startswith(f"t.{suffix}: ") if said is not None else jobs.job_id[:1] == ("a17",)


@pytest.mark.parametrize(
    ("suffix", "modules", "extra"),
    [
        ("parquet", ("pyarrow", "pyarrow.parquet"), "parquet"),
        ("csv.zst", ("zstandard", "compression.zstd"), "zstd"),
    ],
)
def test_an_absent_library_names_its_extra(tmp_path, monkeypatch, jobs, suffix, modules, extra):
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    path = tmp_path / f"t.{suffix}"
    words = f"which is not installed: install the extra '{extra}'."
    with pytest.raises(InputError, match=words):
        write_trace(jobs, path)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(b"x")
    with pytest.raises(InputError, match=words):
        read_trace(path)


# -- files that cannot be written ----------------------------------------------------------------


def test_an_existing_file_is_kept_unless_forced(tmp_path, jobs):
    path = tmp_path / "t.csv"
    path.write_text("mine")
    with pytest.raises(InputError, match=r"t\.csv: File exists"):
        write_trace(jobs, path)
    assert path.read_text() == "mine"
    write_trace(jobs, path, force=True)
    assert content(read_trace(path).jobs) == content(jobs)
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch, jobs, failure, step):
    path = tmp_path / "t.csv"
    path.write_text("mine")

    def fail(*_):
        raise failure

    monkeypatch.setattr(os, step, fail)
    expected = InputError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected) as caught:
        write_trace(jobs, path, force=True)
    if expected is InputError:
        assert str(caught.value) == f"{path}: Cannot write: No space left on device."
    assert path.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


def test_places_that_cannot_be_written(tmp_path, jobs):
    with pytest.raises(InputError, match="Cannot write: No such file or directory"):
        write_trace(jobs, tmp_path / "none" / "t.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(InputError, match=r"d\.csv: Is a directory"):
        write_trace(jobs, tmp_path / "d.csv", force=True)
    with pytest.raises(InputError, match="Expected a file name ending in"):
        write_trace(jobs, tmp_path / "t.xlsx")


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_the_file_has_the_usual_permissions(tmp_path, jobs):
    write_trace(jobs, tmp_path / "t.csv")
    (tmp_path / "usual").touch()
    mode = (tmp_path / "t.csv").stat().st_mode
    assert mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job_id": ("a", "a", "b")}, "Expected a job_id used once"),
        ({"slo": [0.5, 1, 1]}, "Expected slo >= 1, got '0.5'"),
        ({"slo": [np.nan, 1, 1]}, "Expected slo >= 1, got an empty cell"),
        ({"extra": {"n": ("\0", "", "")}}, "text without NUL or unpaired surrogates"),
        ({"extra": {"n": ("\udc80", "", "")}}, "text without NUL or unpaired surrogates"),
        ({"extra": {"slo": ("", "", "")}}, "Expected extra columns with new names, got 'slo'"),
        ({"optional": {"other": [1, 2, 3]}}, "Expected known optional columns, got 'other'"),
        (
            {"estimated": {"train_nodes": [True, False, False]}},
            "Expected train_nodes to be given, got estimated cells",
        ),
        (
            {"estimated": {"train_state_gb": [False, True, False]}},  # the job without model_b
            "Expected train_state_gb or model_b, got an empty cell",
        ),
        ({"estimated": {"train_s": [True, False, False]}}, "Expected train_s > 0, got an empty"),
    ],
)
def test_jobs_that_could_not_be_read_back_are_not_written(tmp_path, jobs, changes, message):
    with pytest.raises(InputError, match=message):
        write_trace(jobs.replace(**changes), tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


# -- promises of the module ------------------------------------------------------------------------


def test_fault_and_error_are_plain_values():
    fault = Fault(row=12, column="train_s", value="-3", rule="train_s > 0", job_id="a17")
    assert str(fault) == "Expected train_s > 0, got '-3' (job 'a17', line 12, column train_s)."
    error = TraceError("t.csv", [fault] * 30, 30)
    assert isinstance(error, InputError)
    assert (len(error.faults), error.total) == (20, 30)
    assert str(error).startswith("t.csv: 30 faults, the first 20:\nExpected train_s > 0")


def test_long_values_are_shortened_in_the_message_only():
    fault = Fault(row=1, column="c", value="x" * 500, rule="c > 0")
    assert len(str(fault)) < 150
    assert fault.value == "x" * 500


def test_importing_is_cheap_and_reading_is_silent(tmp_path):
    (tmp_path / "t.csv").write_text(VALID)
    program = (
        "import sys, instances.trace as t\n"
        "assert not {'pandas', 'pyarrow', 'zstandard'} & set(sys.modules)\n"
        f"t.read_trace({str(tmp_path / 't.csv')!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=os.path.dirname(os.path.dirname(trace_io.__file__)),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
