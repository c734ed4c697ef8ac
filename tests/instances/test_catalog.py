"""The catalog: every file is what its recorded command writes, and reads back as it was."""

import gzip
import inspect
import shlex
from pathlib import Path

import numpy as np
import pytest

import instances.catalog
from instances.catalog import CATALOG, catalog_path
from instances.errors import InputError
from instances.generate import GENERATORS
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import FLOAT_FIELDS, INT_FIELDS
from instances.trace import read_trace, write_trace

FOLDER = Path(instances.catalog.__file__).parent
#: Command line option -> argument of the generator, and what its text means.
OPTIONS = {"--jobs": ("n_jobs", int), "--seed": ("seed", int), "--kind": ("kind", str)}
FLAGS = {"--gangs": "gangs", "--concurrent": "concurrent"}

each_entry = pytest.mark.parametrize("name", CATALOG)


def contents(path: Path) -> bytes:
    """The uncompressed bytes: zlib's builds differ in what they write."""
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


@each_entry
def test_generating_again_gives_the_same_bytes(name, tmp_path):
    entry = CATALOG[name]
    again = tmp_path / entry.filename
    write_trace(GENERATORS[entry.generator](**entry.arguments), again)
    assert contents(again) == contents(catalog_path(name))


@each_entry
def test_the_command_says_what_the_arguments_say(name):
    entry = CATALOG[name]
    program, generate, generator, *words = shlex.split(entry.command)
    assert (program, generate, generator) == ("planner", "generate", entry.generator)
    arguments: dict[str, object] = {}
    while words:
        word = words.pop(0)
        if word == "--out":
            assert words.pop(0) == entry.filename
        elif word in FLAGS:
            arguments[FLAGS[word]] = True
        else:
            key, kind = OPTIONS[word]
            arguments[key] = kind(words.pop(0))
    assert arguments == dict(entry.arguments)
    assert set(arguments) <= set(inspect.signature(GENERATORS[generator]).parameters)


@each_entry
def test_reading_gives_the_generated_jobs(name):
    """Estimated cells are empty in the file and come back equal, float for float."""
    entry = CATALOG[name]
    jobs = GENERATORS[entry.generator](**entry.arguments)
    back = read_trace(catalog_path(name), DEFAULT_CLUSTER).jobs
    assert back.job_id == jobs.job_id
    assert back.mode == jobs.mode
    assert dict(back.extra) == dict(jobs.extra)
    assert back.estimated_columns() == jobs.estimated_columns()
    for column in (*FLOAT_FIELDS, *INT_FIELDS):
        np.testing.assert_array_equal(getattr(back, column), getattr(jobs, column), column)


def test_catalog_readme_and_folder_list_the_same_files():
    shipped = {path.name for path in FOLDER.iterdir() if ".csv" in path.suffixes}
    assert {entry.filename for entry in CATALOG.values()} == shipped
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    for entry in CATALOG.values():
        assert f"| `{entry.filename}` | `{entry.command}` |" in readme


def test_paths_are_found_by_name_and_by_file_name():
    assert catalog_path("large-2000") == catalog_path("large-2000.csv.gz")
    assert catalog_path("tiny-gang").is_file()
    with pytest.raises(InputError, match="Did you mean 'tiny-gang'"):
        catalog_path("tiny-gangs")


def test_files_end_lines_with_a_line_feed_only():
    for name in CATALOG:
        data = contents(catalog_path(name))
        assert data.endswith(b"\n")
        assert b"\r" not in data
