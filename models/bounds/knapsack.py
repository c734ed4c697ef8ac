"""Knapsacks of several resources, many at once: the pricing problem of every column generation.

Per problem, with items, capacities, most items and perhaps a forced item of its own: a valid
upper bound of the most valuable set always, the best value itself where the search ended within
its budget, and sets worth more than a floor, best first. The statement of the problem and the
search are those of :mod:`models.bounds.knapsack_search`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError
from models.bounds.knapsack_search import EPS, Answer, Batch, price_range
from models.problem.options import Deadline

__all__ = ["EPS", "Knapsacks", "Prices", "price_range"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

#: Problems between two looks at the clock.
_CHUNK: Final = 64
#: Nodes of the search between two looks at the clock: less than half a second.
_NODES_A_LOOK: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Answers to many problems.

    Attributes
    ----------
    bound : (P,) float64
        No set of the problem is worth more; ``inf`` where the deadline came first.
    exact : (P,) bool
        Whether the best value is known: ``bound`` (to ``EPS``) where it is above the floor, else
        it is at most the floor.
    problem : (m,) int64
        Ascending; of the sets found. All sets are worth more than their floor.
    value : (m,) float64
        Of the sets found, best first within a problem.
    sets : (m, k) int64
        Items of each, the forced one first, padded with -1.
    """

    bound: FloatArray
    exact: BoolArray
    problem: IntArray
    value: FloatArray
    sets: IntArray


class Knapsacks:
    """Many knapsack problems over the same items, to be priced again and again.

    Parameters
    ----------
    loads : (n, R) float64
        Of every item, >= 0.
    eligible : sequence of (k,) int arrays
        Items of each problem; a forced item need not be among them.
    capacity : (P, R) float64
        With the slack for round-off.
    most : (P,) int64, optional
        Most items of a set, the forced one counted; left out: no limit.
    forced : (P,) int64, optional
        An item that is in every set of the problem; -1: none.

    Raises
    ------
    InputError
        When shapes disagree, or a load is negative or not finite.

    Examples
    --------
    >>> import numpy as np
    >>> loads = np.array([[2.0], [3.0], [4.0]])
    >>> packs = Knapsacks(loads, [np.arange(3)], np.array([[5.0]]))
    >>> prices = packs.price(np.array([3.0, 4.0, 5.0]), floor=1.0)
    >>> round(float(prices.value[0]), 6), sorted(prices.sets[0].tolist())
    (7.0, [0, 1])
    """

    def __init__(
        self,
        loads: FloatArray,
        eligible: Sequence[IntArray],
        capacity: FloatArray,
        *,
        most: IntArray | None = None,
        forced: IntArray | None = None,
    ) -> None:
        n, resources = loads.shape
        count = len(eligible)
        if capacity.shape != (count, resources):
            raise InputError(
                f"Expected capacities of shape {(count, resources)}, got {capacity.shape}."
            )
        if not (np.isfinite(loads).all() and (loads >= 0).all()):
            raise InputError("Expected loads >= 0, got a negative or infinite one.")
        sizes = np.array([len(items) for items in eligible], dtype=np.int64)
        self._loads = np.ascontiguousarray(loads, dtype=np.float64)
        self._capacity = np.ascontiguousarray(capacity, dtype=np.float64)
        self._start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
        self._item = np.concatenate((np.zeros(0, dtype=np.int64), *eligible)).astype(np.int64)
        self._forced = np.full(count, -1, dtype=np.int64) if forced is None else forced
        self._most = np.full(count, n + 1, dtype=np.int64) if most is None else most
        self._longest = int(sizes.max(initial=0))
        self._size = self._most_items()

    def __len__(self) -> int:
        return len(self._forced)

    @property
    def item(self) -> IntArray:
        """Items of all problems, one problem after the other; ``start`` says where each begins."""
        return self._item

    @property
    def start(self) -> IntArray:
        """Where the items of each problem begin, ``(P + 1,)``."""
        return self._start

    @property
    def most_items(self) -> int:
        """Most items of any set of any problem: the width of ``Prices.sets``."""
        return self._size

    def _most_items(self) -> int:
        """Return how many items any set has at most, the forced one counted."""
        if not len(self):
            return 1
        most = min(int(self._most.max()), self._longest + 1)
        for r, capacity in enumerate(self._capacity.max(axis=0)):
            sums = np.cumsum(np.sort(self._loads[:, r]))
            most = min(most, int(np.searchsorted(sums, capacity * (1 + 1e-9), side="right")) + 1)
        return max(most, 1)

    def price(
        self,
        values: FloatArray,
        floor: float | FloatArray = 0.0,
        *,
        budget: int = 100_000,
        keep: int = 4,
        threads: int = 1,
        deadline: Deadline | None = None,
    ) -> Prices:
        """Solve all problems; the answer does not depend on the number of threads.

        Parameters
        ----------
        values : (n,) or (len(self.item),) float64
            Of each item, or of each item of each problem. A forced item's own value is read
            from the first form, and is 0 with the second: lower the floor by it.
        floor : float or (P,) float64
            Only sets worth more are wanted.
        budget : int
            Nodes of the search of each problem; 0 asks for the bounds of its root only.
        keep : int
            Most sets of each problem.
        threads : int
        deadline : Deadline, optional
            Looked at between a few problems.
        """
        problems = len(self)
        own = len(values) == len(self._loads)
        values = np.ascontiguousarray(values, dtype=np.float64)
        forced_value = np.zeros(problems)
        if own:
            forced_value = np.where(self._forced >= 0, values[self._forced], 0.0)
        batch = Batch(
            start=self._start,
            item=self._item,
            value=values[self._item] if own else values,
            loads=self._loads,
            capacity=self._capacity,
            most=self._most,
            forced=self._forced,
            forced_value=forced_value,
            floor=np.broadcast_to(np.asarray(floor, dtype=np.float64), (problems,)).copy(),
        )
        answer = Answer(
            bound=np.full(problems, np.inf),
            exact=np.zeros(problems, dtype=np.bool_),
            found=np.zeros(problems, dtype=np.int64),
            value=np.zeros((problems, keep)),
            sets=np.full((problems, keep, self._size), -1, dtype=np.int64),
        )

        step = max(1, min(_CHUNK, _NODES_A_LOOK // max(budget, 1)))
        stopped = threading.Event()

        def chunk(first: int) -> None:
            if not stopped.is_set() and (deadline is None or not deadline.expired):
                last = min(first + step, problems)
                price_range(first, last, batch, answer, budget, self._longest)

        if threads > 1 and problems > step:
            with ThreadPoolExecutor(threads) as pool:
                try:
                    list(pool.map(chunk, range(0, problems, step)))
                finally:  # Ctrl-C: the pool ends when all chunks have returned
                    stopped.set()
        else:
            for first in range(0, problems, step):
                chunk(first)
        problem, row = np.nonzero(np.arange(keep) < answer.found[:, None])
        return Prices(
            bound=answer.bound,
            exact=answer.exact,
            problem=problem.astype(np.int64),
            value=answer.value[problem, row],
            sets=answer.sets[problem, row],
        )
