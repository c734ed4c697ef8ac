"""Depth-first search for choices of columns within a distance of an LP bound.

With duals of the LP (:mod:`models.replan.choice`), a choice of columns is worth the LP value plus

    sum_g rc_g z_g  +  sum_j pi_j (times j is covered - 1)

and what the other rows add, all of it >= 0: so a choice better than the plan held keeps the sum
below the *slack*, what separates the two values. A job not covered yet is covered by each of its
columns in turn, cheapest reduced cost first, as long as the sum is below the slack; all choices
with a column were looked at when its turn is over, so the later ones do without it. The job is
the one with the fewest such columns left; with none for some job, the branch ends. A choice
found within the limits of the LP's rows lowers the slack to its own value.

Covering a job again costs ``pi_j``. Where a best choice is known to cover every job once it is
forbidden, at an infinite ``pi_j``. Where it is not, a column of negative value (credits beyond its
nodes) may be worth adding to a choice that covers all jobs already: such columns are entries
of one job more, no job, and tried last. The search is exact in both cases.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from models.problem.compiled import compiled

__all__ = ["CALL_NODES", "SearchData", "SearchState", "search_choices"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Nodes of one call, and entries looked at: milliseconds with a compiler, a second without.
CALL_NODES: Final = 5_000
_CALL_LOOKS: Final = 1_000_000


class SearchData(NamedTuple):
    """What is searched.

    Attributes
    ----------
    members : (m, k) int64
        Jobs covered by each column, padded with ``n``.
    host : (m,) int64
        ``n_hosts`` for none.
    counts : (m, 3) int64
        Rollout nodes, train nodes and stayers.
    values, reduced : (m,) float64
    first, entries : (n + 2,), (e,) int64
        Columns of job ``j``, cheapest first: ``entries[first[j]:first[j + 1]]``; of no job ``n``
        those that may be added to a choice of all jobs.
    pi : (n + 1,) float64
        Duals of jobs, or infinite where none may be covered again; the last is 0.
    least, most : (3,) float64
        Limits of the sums of ``counts``.
    lp_value : float
    """

    members: IntArray
    host: IntArray
    counts: IntArray
    values: FloatArray
    reduced: FloatArray
    first: IntArray
    entries: IntArray
    pi: FloatArray
    least: FloatArray
    most: FloatArray
    lp_value: float


class SearchState(NamedTuple):
    """Where a search stands between two calls of :func:`search_choices`.

    Attributes
    ----------
    numbers : (5,) int64
        Depth, jobs covered, columns of the best choice found (0 if none was), nodes, whether a
        job is to be chosen at this depth.
    best : (1,) float64
        Slack of the best choice found, or as given.
    total, value : (n + n_hosts + 1,) float64
        Per depth, sum of reduced costs and penalties, and of values, before its column.
    entry, job, pick : (n + n_hosts + 1,) int64
        Per depth, next entry, job to cover, column taken or -1.
    times : (n + 1,) int64
        How often each job is covered; the last is no job.
    used : (n_hosts + 1,) int64
        Whether each host is used; the last is none.
    sums : (3,) int64
        Rollout nodes, train nodes and stayers of the columns taken.
    over : (m,) int64
        Per column, 1 + the depth at which its turn is over, or 0.
    chosen : (n + n_hosts + 1,) int64
        Columns of the best choice found.
    """

    numbers: IntArray
    best: FloatArray
    total: FloatArray
    value: FloatArray
    entry: IntArray
    job: IntArray
    pick: IntArray
    times: IntArray
    used: IntArray
    sums: IntArray
    over: IntArray
    chosen: IntArray

    @classmethod
    def start(cls, n_jobs: int, n_hosts: int, n_columns: int, slack: float) -> SearchState:
        """Return the state before a search."""
        deepest = n_jobs + n_hosts + 1
        return cls(
            np.array([0, 0, 0, 0, 1], dtype=np.int64),
            np.array([slack]),
            np.zeros(deepest),
            np.zeros(deepest),
            np.zeros(deepest, dtype=np.int64),
            np.zeros(deepest, dtype=np.int64),
            np.full(deepest, -1, dtype=np.int64),
            np.zeros(n_jobs + 1, dtype=np.int64),
            np.zeros(n_hosts + 1, dtype=np.int64),
            np.zeros(3, dtype=np.int64),
            np.zeros(n_columns, dtype=np.int64),
            np.zeros(deepest, dtype=np.int64),
        )

    @property
    def found(self) -> int:
        """Number of columns of the best choice found, 0 if none was."""
        return int(self.numbers[2])

    @property
    def nodes(self) -> int:
        """Columns taken so far."""
        return int(self.numbers[3])


@compiled
def _spent(members: IntArray, pi: FloatArray, times: IntArray, at: int) -> float:
    """Return the penalty of a column: the duals of the jobs that it covers again."""
    spent = 0.0
    for slot in range(members.shape[1]):
        member = members[at, slot]
        if times[member] > 0:  # never of the place that is no job
            spent += pi[member]
    return spent


@compiled
def _choose(  # noqa: PLR0913, PLR0917 - arrays in tuples are slow to hand on
    members: IntArray,
    host: IntArray,
    reduced: FloatArray,
    first: IntArray,
    entries: IntArray,
    pi: FloatArray,
    times: IntArray,
    used: IntArray,
    over: IntArray,
    left: float,
) -> tuple[int, int, int]:
    """Return the job with the fewest columns within what is left, how many, and entries looked at.

    How many is exact where it is 0.
    """
    fewest, chosen, looks = len(entries) + 1, 0, 0
    for j in range(len(pi) - 1):
        if times[j] > 0:
            continue
        number = 0
        for place in range(first[j], first[j + 1]):
            at = entries[place]
            looks += 1
            if reduced[at] >= left or number >= fewest:
                break
            if used[host[at]] > 0 or over[at] > 0:
                continue
            if reduced[at] + _spent(members, pi, times, at) < left:
                number += 1
        if number < fewest:
            fewest, chosen = number, j
            if number == 0:
                break
    return chosen, fewest, looks


@compiled
def _cover(members: IntArray, times: IntArray, at: int, by: int) -> int:
    """Cover the jobs of a column once more or less; return how many become covered, or cease."""
    changed = 0
    none = len(times) - 1
    for slot in range(members.shape[1]):
        member = members[at, slot]
        if member < none:
            before = times[member]
            times[member] = before + by
            if before == 0 or before + by == 0:
                changed += 1
    return changed


@compiled
def _back(first: IntArray, entries: IntArray, over: IntArray, job: int, depth: int) -> None:
    """Give the columns of a job their turn again, when its depth is left."""
    for place in range(first[job], first[job + 1]):
        if over[entries[place]] == depth + 1:
            over[entries[place]] = 0


@compiled
def search_choices(data: SearchData, state: SearchState, budget: int) -> bool:
    """Search for up to ``budget`` more nodes, or less; return whether the search is finished."""
    members, host, counts, values, reduced, first, entries, pi, least, most, lp_value = data
    numbers, best, total, value, entry, job, pick, times, used, sums, over, chosen = state
    n, none = len(pi) - 1, len(used) - 1
    depth, covered, opened = numbers[0], numbers[1], numbers[4] > 0
    limit, looks = numbers[3] + budget, 0
    finished = False
    while numbers[3] < limit and looks < _CALL_LOOKS and not finished:
        looks += 1
        if opened:
            j, fewest = n, 1
            if covered < n:
                left = best[0] - total[depth]
                j, fewest, seen = _choose(
                    members, host, reduced, first, entries, pi, times, used, over, left
                )
                looks += seen
            job[depth] = j
            entry[depth] = first[j] if fewest > 0 else first[j + 1]
            opened = False
        at = pick[depth]
        if at >= 0:  # undo
            pick[depth] = -1
            over[at] = depth + 1
            used[host[at]] = 0
            sums -= counts[at]
            covered -= _cover(members, times, at, -1)
        place = entry[depth]
        if place >= first[job[depth] + 1] or total[depth] + reduced[entries[place]] >= best[0]:
            _back(first, entries, over, job[depth], depth)
            finished = depth == 0
            depth -= 1
            continue
        entry[depth] = place + 1
        at = entries[place]
        spent = total[depth] + reduced[at] + _spent(members, pi, times, at)
        too_many = sums[0] + counts[at, 0] > most[0] or sums[1] + counts[at, 1] > most[1]
        if spent >= best[0] or used[host[at]] > 0 or over[at] > 0 or too_many:
            continue
        numbers[3] += 1
        pick[depth] = at
        if host[at] < none:  # the place of no host is never used
            used[host[at]] = 1
        sums += counts[at]
        covered += _cover(members, times, at, 1)
        worth = value[depth] + values[at]
        if covered == n and worth - lp_value < best[0] and np.all(sums >= least):
            best[0] = worth - lp_value
            numbers[2] = depth + 1
            chosen[: depth + 1] = pick[: depth + 1]
        if covered < n or first[n] < first[n + 1]:
            depth += 1
            total[depth], value[depth] = spent, worth
            opened = True
    numbers[0], numbers[1], numbers[4] = depth, covered, opened
    return finished
