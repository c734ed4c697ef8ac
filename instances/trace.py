"""Read and write traces: one row a job, in CSV, JSON Lines or Parquet."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import importlib
import io
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from instances.coefficients import DEFAULT_COEFFICIENTS, Coefficients
from instances.errors import InputError
from instances.hardware import DEFAULT_CLUSTER, Cluster, NodeType
from instances.jobs import FLOAT_FIELDS, INT_FIELDS, OPTIONAL_FIELDS, JobTable
from instances.trace_files import (
    decompress,
    optional_module,
    read_bytes,
    split_suffix,
    zstd_module,
)
from instances.trace_io import CsvText, jsonl_table, parquet_table, table_from_frame
from instances.trace_rules import PHASES, jobs_from_table
from instances.trace_table import (
    ESTIMABLE,
    KNOWN_COLUMNS,
    Column,
    Fault,
    RawTable,
    TraceError,
    plain,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Fault",
    "Trace",
    "TraceError",
    "jobs_from_frame",
    "read_trace",
    "refuse_estimates",
    "write_trace",
]


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Jobs read from a file: its name without folders and the sha256 of its bytes.

    ``coefficients`` are those that estimated phase seconds, where any were; ``sha256`` is
    ``None`` for jobs that come from no file.

    Attributes
    ----------
    name : str
        Of the file, without folders.
    sha256 : str or None
        Of its bytes.
    jobs : JobTable
        One row a job.
    coefficients : Coefficients
        That estimated phase seconds.
    """

    name: str
    sha256: str | None
    jobs: JobTable
    coefficients: Coefficients = DEFAULT_COEFFICIENTS


def read_trace(
    path: str | Path,
    cluster: Cluster = DEFAULT_CLUSTER,
    coefficients: Coefficients = DEFAULT_COEFFICIENTS,
) -> Trace:
    """Read and validate a trace; the format follows from the file name.

    Parameters
    ----------
    path : str or Path
        ``.csv``, ``.jsonl`` or ``.ndjson``, each also with ``.gz`` or ``.zst``, or
        ``.parquet``.
    cluster : Cluster
        Gives GPUs, host DRAM, links and the per-model numbers behind estimated cells.
    coefficients : Coefficients
        What the GPUs reach, behind estimated phase seconds (:mod:`instances.estimate`).

    Returns
    -------
    Trace
        Jobs sorted by ``arrival_s``, in file order where arrivals are equal.

    Raises
    ------
    TraceError
        When the contents break rules; every fault is counted, the first 20 are kept.
    InputError
        When the file cannot be read or decoded at all.

    Notes
    -----
    Ids, ``mode`` and unknown columns are text exactly as it stands. Numbers are plain
    decimals; spaces and tabs around one are accepted, separators (``1,000``, ``1_000``) and
    hexadecimals are not. Wholly empty lines carry no job.
    """
    source = Path(path).name
    kind, packed = split_suffix(path)
    raw = read_bytes(path)
    sha256 = hashlib.sha256(raw).hexdigest()
    data = decompress(raw, packed, source)
    del raw
    if kind == "parquet":
        jobs = jobs_from_table(parquet_table(data, source), cluster, coefficients)
    else:
        read = CsvText(data, source).table if kind == "csv" else partial(jsonl_table, data, source)
        jobs = _jobs_from_text(read, cluster, coefficients)
    return Trace(name=source, sha256=sha256, jobs=jobs, coefficients=coefficients)


def _jobs_from_text(
    read: Callable[..., RawTable | None], cluster: Cluster, coefficients: Coefficients
) -> JobTable:
    """Read typed columns; only when anything fails, read again to quote raw cells."""
    table = read(typed=True)
    if table is not None:
        try:
            return jobs_from_table(table, cluster, coefficients)
        except TraceError:
            del table
    table = read(typed=False)
    assert table is not None
    return jobs_from_table(table, cluster, coefficients)


def jobs_from_frame(
    frame: pd.DataFrame,
    cluster: Cluster = DEFAULT_CLUSTER,
    source: str = "frame",
    coefficients: Coefficients = DEFAULT_COEFFICIENTS,
) -> JobTable:
    """Validate a pandas data frame by the rules of :func:`read_trace`.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row a job; the index is ignored. None, NaN and NA are empty cells.
    cluster : Cluster
        Gives GPUs, host DRAM, links and the per-model numbers behind estimated cells.
    source : str
        Name put in front of every error; faults count rows from 1.
    coefficients : Coefficients
        What the GPUs reach, behind estimated phase seconds.

    Raises
    ------
    TraceError
        When the contents break rules.
    """
    return jobs_from_table(table_from_frame(frame, source), cluster, coefficients)


def refuse_estimates(jobs: JobTable) -> None:
    """Raise unless every cell that a plan depends on was given.

    A ``sync_gb`` beside a given ``sync_s`` is not one: it only feeds link utilisation.

    Raises
    ------
    InputError
        Naming each estimated column and how many of its cells are estimates.
    """
    masks = {name: jobs.estimated[name] for name in jobs.estimated_columns()}
    if "sync_gb" in masks:
        masks["sync_gb"] = masks["sync_gb"] & masks.get("sync_s", np.zeros(len(jobs), np.bool_))
    counts = {name: int(mask.sum()) for name, mask in masks.items() if mask.any()}
    if counts:
        words = ", ".join(f"{name} ({count} of {len(jobs)})" for name, count in counts.items())
        raise InputError(f"Expected every value to be given, got estimated cells: {words}.")


# -- writing -------------------------------------------------------------------------------


def write_trace(jobs: JobTable, path: str | Path, *, force: bool = False) -> None:
    """Write jobs so that :func:`read_trace` gives exactly the same jobs back.

    Parameters
    ----------
    jobs : JobTable
        Estimated cells are left empty, never written as if given; reading estimates them
        again, with the cluster and the coefficients that are given then.
    path : str or Path
        The format follows from the name, see :func:`read_trace`.
    force : bool
        Overwrite an existing file.

    Raises
    ------
    InputError
        When the file exists and ``force`` is false, cannot be written, or ``jobs`` holds
        something that the file could not give back.

    Notes
    -----
    The file appears whole or not at all. Equal jobs give equal bytes.
    """
    target = Path(path)
    kind, packed = split_suffix(path)
    if target.is_dir():
        raise InputError(f"{path}: Is a directory.")
    if not force and os.path.lexists(target):
        raise InputError(f"{path}: File exists; ask for overwriting to replace it.")
    table = _raw_table(jobs, target.name)
    # What reading would refuse is refused here, for a node of any size.
    jobs_from_table(table, _ANY_NODE)
    data = {"csv": _csv_bytes, "jsonl": _jsonl_bytes, "parquet": _parquet_bytes}[kind](table)
    _replace_file(path, _compress(data, packed))


def _endless(node: NodeType) -> NodeType:
    """Return the node with room for everything, in host DRAM and in HBM."""
    gpu = dataclasses.replace(node.gpu, hbm_gb=math.inf)
    return dataclasses.replace(node, gpu=gpu, host_dram_gb=math.inf)


_ANY_NODE: Final = DEFAULT_CLUSTER.replace(
    rollout=_endless(DEFAULT_CLUSTER.rollout), train=_endless(DEFAULT_CLUSTER.train)
)
_MAY_BE_ESTIMATED: Final = (*ESTIMABLE, *PHASES, "sync_s", "sync_gb")
_BLOCK: Final = 20_000
_TO_QUOTE: Final = re.compile('[",\r\n]')


def _raw_table(jobs: JobTable, source: str) -> RawTable:
    """Return the columns to write, in order, with estimated cells empty."""
    if fixed := sorted(set(jobs.estimated_columns()) - set(_MAY_BE_ESTIMATED)):
        raise InputError(f"{source}: Expected {fixed[0]} to be given, got estimated cells.")
    cells = {"job_id": Column(texts=jobs.job_id)}
    for name in (*FLOAT_FIELDS, *INT_FIELDS):
        numbers = getattr(jobs, name).astype(np.float64)
        if name in jobs.estimated:
            numbers[jobs.estimated[name]] = np.nan
        cells[name] = Column(numbers=numbers)
    cells["mode"] = Column(texts=jobs.mode)
    for name, values in jobs.optional.items():
        if name not in OPTIONAL_FIELDS:
            raise InputError(f"{source}: Expected known optional columns, got {name!r}.")
        cells[name] = Column(numbers=values)
    for name, texts in jobs.extra.items():
        if name in KNOWN_COLUMNS:
            raise InputError(f"{source}: Expected extra columns with new names, got {name!r}.")
        cells[name] = Column(texts=texts)
    rows = np.arange(1, len(jobs) + 1)
    return RawTable(source=source, columns=tuple(cells), cells=cells, rows=rows, place="row")


def _blocks(table: RawTable, empty: str, quote: Callable[[str], str]) -> Iterator[list[list[str]]]:
    """Return the cells of every column as text, some rows at a time."""
    for start in range(0, len(table.rows), _BLOCK):
        block = []
        for cell in table.cells.values():
            part: list[str]
            if cell.texts is not None:
                part = [quote(text) for text in cell.texts[start : start + _BLOCK]]
            else:
                assert cell.numbers is not None
                numbers = cell.numbers[start : start + _BLOCK].tolist()
                part = [empty if value != value else plain(value) for value in numbers]
            block.append(part)
        yield block


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _TO_QUOTE.search(text) else text


def _csv_bytes(table: RawTable) -> bytes:
    out = io.BytesIO()
    out.write((",".join(map(_csv_cell, table.columns)) + "\n").encode())
    for block in _blocks(table, "", _csv_cell):
        out.write("".join([",".join(row) + "\n" for row in zip(*block, strict=True)]).encode())
    return out.getvalue()


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _jsonl_bytes(table: RawTable) -> bytes:
    out = io.BytesIO()
    keys = [_json_text(name).replace("%", "%%") for name in table.columns]
    line = "{" + ", ".join(f"{key}: %s" for key in keys) + "}\n"
    for block in _blocks(table, "null", _json_text):
        out.write("".join([line % row for row in zip(*block, strict=True)]).encode())
    return out.getvalue()


def _parquet_bytes(table: RawTable) -> bytes:
    optional_module(("pyarrow",), "A .parquet file", "parquet")
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    arrays = []
    for name, cell in table.cells.items():
        if cell.texts is not None:
            arrays.append(pa.array(cell.texts, type=pa.string()))
            continue
        assert cell.numbers is not None
        empty = np.isnan(cell.numbers)
        if name in INT_FIELDS and not empty.any():
            arrays.append(pa.array(cell.numbers.astype(np.int64)))
        else:
            arrays.append(pa.array(cell.numbers, mask=empty))
    out = io.BytesIO()
    pq.write_table(pa.table(arrays, names=list(table.columns)), out)
    return out.getvalue()


def _compress(data: bytes, packed: str) -> bytes:
    """Apply ``gz``, ``zst`` or no compression; equal bytes in give equal bytes out."""
    if packed == "gz":
        buffer = io.BytesIO()
        with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, mtime=0) as handle:
            handle.write(data)
        return buffer.getvalue()
    if packed == "zst":
        module = zstd_module()
        if module.__name__ == "zstandard":
            return bytes(module.ZstdCompressor().compress(data))
        return bytes(module.compress(data))
    return data


def _replace_file(path: str | Path, data: bytes) -> None:
    """Write ``data`` to a temporary file beside ``path``, then move it into place."""
    target = Path(path)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"{path}: Cannot write: {error.strerror or error}.") from error
        raise
