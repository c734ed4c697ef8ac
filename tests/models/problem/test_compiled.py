"""Kernels run compiled where numba is installed, and as plain Python where it is not."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from models.problem.compiled import COMPILED, compiled, plain

PROBE = """
import sys
if sys.argv[1] == "absent":
    sys.modules["numba"] = None  # importing it now raises ImportError
from models.problem.compiled import COMPILED, compiled, plain

@compiled
def triple(x):
    return 3 * x

print(COMPILED, triple(2), plain(triple)(2))
"""


def probe(word: str, **env: str) -> str:
    """Return what a fresh process says."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, word],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_both_paths_answer_the_same() -> None:
    """1 + 4 + 9."""

    @compiled
    def squares(values: np.ndarray) -> float:
        total = 0.0
        for value in values:
            total += value * value
        return total

    values = np.array([1.0, 2.0, 3.0])
    assert squares(values) == plain(squares)(values) == 14.0
    assert (plain(squares) is not squares) == COMPILED


def test_without_numba_a_kernel_is_its_plain_function() -> None:
    assert probe("absent") == "False 6 6"


def test_jit_switched_off_counts_as_not_compiled() -> None:
    assert probe("there", NUMBA_DISABLE_JIT="1") == "False 6 6"
