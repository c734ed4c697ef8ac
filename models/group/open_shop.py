"""One rollout node, one train node, no sync: two-machine open shop."""

from __future__ import annotations

from collections.abc import Sequence

from models.group.packing import first_turn
from models.problem.group_shape import Schedule

__all__ = ["open_shop"]


def _lapt(rollout_s: Sequence[float], train_s: Sequence[float]) -> list[list[float]]:
    """Return start times ``[machine][job]`` of the non-preemptive two-machine open shop.

    Whenever a machine is free it takes, of the jobs that have run on neither machine, the one
    with the longest time on the *other*; when none is left, a job the other machine is done
    with. Optimal for two machines (Pinedo, theorem 8.1.1).
    """
    n = len(rollout_s)
    time = (rollout_s, train_s)
    start = [[-1.0] * n, [-1.0] * n]
    free_at = [0.0, 0.0]
    left = [n, n]
    while left[0] or left[1]:
        m = min((0, 1), key=lambda i: (not left[i], free_at[i], i))
        other, now = 1 - m, free_at[m]

        def rank(j: int, other: int = other) -> tuple[int, float, int]:
            untouched = start[other][j] < 0
            return (0 if untouched else 1, -time[other][j], j)

        waiting = [j for j in range(n) if start[m][j] < 0]
        ready = [
            j for j in waiting if start[other][j] < 0 or start[other][j] + time[other][j] <= now
        ]
        if not ready:
            free_at[m] = min(start[other][j] + time[other][j] for j in waiting)
            continue
        job = min(ready, key=rank)
        start[m][job] = now
        free_at[m] = now + time[m][job]
        left[m] -= 1
    return start


def open_shop(rollout_s: Sequence[float], train_s: Sequence[float]) -> Schedule:
    """Return an optimal schedule of jobs sharing one rollout and one train node, sync 0.

    On a circle only the disjointness of a job's own two arcs matters, so a two-machine open
    shop schedule of length ``C`` is a cyclic schedule of period ``C``; Gonzalez and Sahni
    (1976) give ``C = max(sum p, sum q, max(p + q))``. It does not apply to one-step jobs, whose
    own arcs may overlap: two of ``p = q = 10`` have 20, which is also what it says, but one of
    ``p = 10, q = 4`` has 10.

    Parameters
    ----------
    rollout_s, train_s : sequence of float
        Phase seconds, one entry per job.

    Returns
    -------
    Schedule
        With ``period_s`` equal to ``bound_s``.
    """
    rollout, train = _lapt(rollout_s, train_s)
    bound = max(
        sum(rollout_s),
        sum(train_s),
        max((p + q for p, q in zip(rollout_s, train_s, strict=True)), default=0.0),
    )
    period = max(
        (max(x + p, y + q) for x, y, p, q in zip(rollout, train, rollout_s, train_s, strict=True)),
        default=0.0,
    )
    starts = tuple(
        first_turn(((x, y if y >= x else y + period),), period)
        for x, y in zip(rollout, train, strict=True)
    )
    return Schedule(period_s=period, starts_s=starts, bound_s=bound)
