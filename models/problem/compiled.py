"""Compile the inner loops of searches where numba is installed (extra ``speed``).

A kernel is one plain Python function over NumPy arrays and numbers. With numba it is compiled
at its first call and releases the GIL; without, the same function runs as it stands, slower
and with the same answer. So the plain path is the compiled one's twin by construction, and
tests run both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar, cast

from models.problem.whole_import import whole_import

__all__ = ["COMPILED", "compiled", "plain"]

P = ParamSpec("P")
R = TypeVar("R")


def _numba() -> Any:
    """Return the module; ``None`` where the extra is not installed."""
    try:
        return whole_import("numba")
    except ImportError:
        return None


_NUMBA: Final = _numba()
#: Whether kernels are compiled.
COMPILED: Final[bool] = _NUMBA is not None and not _NUMBA.config.DISABLE_JIT


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function compiled by numba, else itself."""
    if _NUMBA is None:
        return function
    try:
        kernel: Any = _NUMBA.njit(cache=True, nogil=True)(function)
    except RuntimeError:  # no folder to keep compiled code in: compile in every process
        kernel = _NUMBA.njit(nogil=True)(function)
    return cast(Callable[P, R], kernel)


def plain(kernel: Callable[P, R]) -> Callable[P, R]:
    """Return the plain Python function of a kernel, the twin that tests compare it with."""
    return cast(Callable[P, R], getattr(kernel, "py_func", kernel))
