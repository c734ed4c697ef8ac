"""Fixtures of the tests of the instances."""

import pytest

from instances.trace import TraceError, read_trace

# A failed assertion in a helper shows its values too.
pytest.register_assert_rewrite("trace_cases")


@pytest.fixture
def read(tmp_path):
    """Return a function that reads a text as a trace file."""

    def call(text, suffix="csv", **options):
        path = tmp_path / f"jobs.{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_trace(path, **options).jobs

    return call


@pytest.fixture
def refused(read):
    """Return a function that reads a text and returns the TraceError it must raise."""

    def call(text, suffix="csv", **options):
        with pytest.raises(TraceError) as caught:
            read(text, suffix, **options)
        return caught.value

    return call
