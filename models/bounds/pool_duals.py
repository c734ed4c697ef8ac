"""Duals of a packing LP: the bound that any of them prove, inequalities that best ones keep.

Both are stated, with their proofs, in :mod:`models.bounds.columns`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from models.bounds.pool_items import PoolItems

__all__ = ["dual_bound", "easier_pairs"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

#: Covering pairs of the order of difficulty that one job enters at most as the harder one.
_MOST_EASIER: Final = 4


def dual_bound(duals: FloatArray, width: IntArray, most_value: FloatArray) -> float:
    """Return the best bound of the module docstring over ``h``.

    Parameters
    ----------
    duals : (n,) float64
        >= 0.
    width : (n,) int64
    most_value : (n,) float64
        ``V_i``; ``inf`` where nothing is known.
    """
    total = float(duals @ width)
    value = np.maximum(most_value, 1.0) * (1 + 1e-12)
    order = np.argsort(-value, kind="stable")
    value = value[order]
    wide = width[order].astype(np.float64)
    if not len(value) or not np.isfinite(value[0]):
        return 0.0
    above = np.cumsum(wide) - wide
    above_value = np.cumsum(wide * value) - wide * value
    height = 1.0 / value
    return float((height * (total - above_value) + above).max())


def easier_pairs(items: PoolItems, most: int = _MOST_EASIER) -> IntArray:
    """Return pairs ``(a, b)``, ``(m, 2)``: ``a`` asks no more than ``b``, and nothing is between.

    Equal jobs are ordered by index. At most ``most`` pairs of each ``b``, those of the largest
    loads.
    """
    n = len(items)
    asks = np.stack(
        (items.load, items.chain_s, -items.deadline_s, items.state_gb, items.width.astype(float))
    )
    index = np.arange(n)
    pairs = []
    for b in range(n):
        easier = (asks <= asks[:, b : b + 1]).all(axis=0)
        equal = (asks == asks[:, b : b + 1]).all(axis=0)
        left = np.flatnonzero(easier & (~equal | (index < b)))
        left = left[np.lexsort((left, asks[0, left]))[::-1]]
        for _ in range(most):
            if not len(left):
                break
            a = left[0]
            pairs.append((a, b))
            left = left[1:]
            left = left[~(asks[:, left] <= asks[:, a : a + 1]).all(axis=0)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)
