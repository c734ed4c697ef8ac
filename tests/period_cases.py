"""Groups by hand and at random, judged by the oracle and the checker, for the tests of the period.

Groups are :class:`Case`, jobs with pins and rates; the oracle gets their run and switch seconds
apart, so it also checks what :meth:`GroupShape.of` adds. Every schedule is judged twice, by the
oracle's ``verify`` and by ``instances.checker``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

from instances.checker import check_group
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import Job, JobTable
from instances.plan import GroupVersion, JobPlacement, Limits
from models.group.period import GroupShape, Schedule, Starts
from oracles.least_period import Data, verify
from oracles.least_period import least_period as oracle_least_period

#: Relative difference between our periods and the oracle's (its LP is good to about 1e-9).
REL = 1e-6
Pins = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """Jobs of one group with their pins and rates."""

    jobs: tuple[Job, ...]
    rollout_pins: Pins
    train_pins: Pins
    rates: tuple[int, ...]

    def shape(self) -> GroupShape:
        return GroupShape.of(self.jobs, self.rollout_pins, self.train_pins, self.rates)

    def data(self) -> Data:
        return Data(
            [job.rollout_s for job in self.jobs],
            [job.train_s for job in self.jobs],
            [job.sync_s for job in self.jobs],
            self.rollout_pins,
            self.train_pins,
            self.rates,
            [job.rollout_switch_s for job in self.jobs],
            [job.train_switch_s for job in self.jobs],
            [job.lag for job in self.jobs] if any(job.lag > 1 for job in self.jobs) else None,
        )

    def first(self, n: int) -> Case:
        """The same group with its first ``n`` jobs only."""
        return Case(self.jobs[:n], self.rollout_pins[:n], self.train_pins[:n], self.rates[:n])

    def faults(self, period_s: float, starts_s: Starts, limit_s: float | None = None) -> list[str]:
        """What the oracle's verifier and the project's checker find wrong.

        Deadlines are such that the period may be ``limit_s``, or the period itself.
        """
        limit = period_s if limit_s is None else limit_s
        jobs = [
            replace(job, slo=limit / (rate * job.solo_s))
            for job, rate in zip(self.jobs, self.rates, strict=True)
        ]
        group = GroupVersion(
            group_id="g",
            from_s=0.0,
            to_s=3600.0,
            period_s=period_s,
            rollout_nodes=tuple(sorted({x for pins in self.rollout_pins for x in pins})),
            train_nodes=tuple(sorted({x for pins in self.train_pins for x in pins})),
            placements=tuple(
                JobPlacement(job_id=job.job_id, rollout_pins=r, train_pins=t, starts_s=s, rate=k)
                for job, r, t, s, k in zip(
                    jobs, self.rollout_pins, self.train_pins, starts_s, self.rates, strict=True
                )
            ),
        )
        limits = Limits(max_group_size=0, max_rate=max(self.rates))
        found = check_group(group, JobTable.from_jobs(jobs), DEFAULT_CLUSTER, limits)
        # the checker's tolerance, so that a long period is judged alike by both
        tolerance_s = 1e-6 + 1e-9 * period_s
        return [
            *verify(period_s, starts_s, *self.data(), tolerance_s=tolerance_s),
            *(violation.message for violation in found),
        ]

    def assert_valid(self, schedule: Schedule, limit_s: float | None = None) -> None:
        assert self.faults(schedule.period_s, schedule.starts_s, limit_s) == [], self
        assert all(0 <= pairs[0][0] < schedule.period_s for pairs in schedule.starts_s), self


def case_of(
    rollout_s: Sequence[float],
    train_s: Sequence[float],
    sync_s: Sequence[float] | None = None,
    rollout_pins: Sequence[Sequence[int]] | None = None,
    train_pins: Sequence[Sequence[int]] | None = None,
    rates: Sequence[int] | None = None,
    rollout_switch_s: Sequence[float] | None = None,
    train_switch_s: Sequence[float] | None = None,
) -> Case:
    """Return a group from columns; all on one node of each kind unless told otherwise."""
    n = len(rollout_s)
    zeros, ones = (0.0,) * n, ((0,),) * n
    r_pins = tuple(tuple(pins) for pins in rollout_pins or ones)
    t_pins = tuple(tuple(pins) for pins in train_pins or ones)
    jobs = tuple(
        Job(
            job_id=f"j{i}",
            rollout_s=rollout_s[i],
            train_s=train_s[i],
            sync_s=(sync_s or zeros)[i],
            slo=1.0,
            rollout_nodes=len(r_pins[i]),
            train_nodes=len(t_pins[i]),
            rollout_switch_s=(rollout_switch_s or zeros)[i],
            train_switch_s=(train_switch_s or zeros)[i],
        )
        for i in range(n)
    )
    return Case(jobs, r_pins, t_pins, tuple(rates or (1,) * n))


#: Node loads and longest iteration are 11; no schedule of 11 exists (FORMULATION section 4).
SYNC = case_of((5, 5, 1), (2, 3, 6), (2, 3, 0))
#: Unsaturated: loads 11 below the longest iteration 12 (job 2: 6 + 1 + 5); least 12.5.
UNSATURATED_SYNC = case_of((3, 2, 6), (4, 6, 1), (4, 1, 5))
#: The rollouts' pins pairwise intersect: 5 + 3 + 11 + 6 + 9 = 34; no node has more than 31.
GANG = case_of(
    (5, 3, 11, 6, 9),
    (3, 4, 6, 5, 3),
    rollout_pins=((0, 1, 2), (1, 2), (0, 1, 2), (0, 1), (0, 2)),
)
#: Each rollout meets two others, no three meet pairwise, so LB is 2; two arcs of length 1 at
#: a time for five phases take 5 / 2.
FIVE_CYCLE = case_of(
    (1,) * 5,
    (0.25,) * 5,
    rollout_pins=[(i, (i + 1) % 5) for i in range(5)],
    train_pins=[(i,) for i in range(5)],
)
#: Exact fits: job 0's iteration is 0.7 + 0.3 + 0.1 = 1.1, job 1's rollout has 0.1 of slack.
EXACT = case_of((0.7, 0.3), (0.3, 0.1), (0.1, 0.3))
#: The same with a third job.
EXACT_AND_ONE = case_of((0.7, 0.3, 0.1), (0.3, 0.1, 0.1), (0.1, 0.3, 0.0))
#: Orders alone do not fix the period: 6 or 12.
TWO = case_of((5, 1), (1, 5))


class Kind(NamedTuple):
    """What random groups of one kind have; ``single`` = single-node jobs, k = 1."""

    rollout_nodes: int = 1
    train_nodes: int = 1
    gang: bool = False
    most_sync_s: int = 0
    most_switch_s: int = 0
    most_rate: int = 1

    @property
    def single(self) -> bool:
        return not self.gang and self.most_rate == 1


KINDS = {
    "open-shop": Kind(),
    "sync": Kind(most_sync_s=4),
    "nodes": Kind(2, 2, most_sync_s=4, most_switch_s=1),
    "gangs": Kind(3, 2, gang=True),
    "gangs-all": Kind(4, 2, gang=True, most_sync_s=4, most_switch_s=1),
    "rates": Kind(2, 1, most_sync_s=2, most_rate=2),
    "rates-all": Kind(3, 2, gang=True, most_sync_s=2, most_switch_s=1, most_rate=3),
}


def random_case(rng: random.Random, n: int, kind: Kind, *, whole: bool) -> Case:
    """Return a group of ``n`` jobs, phases 1 to 9 s, in whole seconds or not."""

    def seconds(low: int, high: int) -> list[float]:
        return [
            float(rng.randint(low, high)) if whole else rng.uniform(low, high) for _ in range(n)
        ]

    def pins(nodes: int) -> list[list[int]]:
        return [
            sorted(rng.sample(range(nodes), rng.randint(1, nodes if kind.gang else 1)))
            for _ in range(n)
        ]

    return case_of(
        seconds(1, 9),
        seconds(1, 9),
        seconds(0, kind.most_sync_s),
        pins(kind.rollout_nodes),
        pins(kind.train_nodes),
        [rng.randint(1, kind.most_rate) for _ in range(n)],
        seconds(0, kind.most_switch_s),
        seconds(0, kind.most_switch_s),
    )


def random_cases(seed: int, count: int, most: int, names: Sequence[str] = ()) -> list[Case]:
    """Return ``count`` groups of 1 to ``most`` jobs, kind after kind, whole every second time."""
    rng = random.Random(seed)
    kinds = [KINDS[name] for name in names or KINDS]
    return [
        random_case(rng, rng.randint(1, most), kinds[i % len(kinds)], whole=i % 2 == 0)
        for i in range(count)
    ]


@st.composite
def cases(draw: st.DrawFn, most: int = 5, *, most_rate: int = 3) -> Case:
    """Groups of any kind, whole or other seconds, for properties that need no oracle."""
    kind = Kind(
        draw(st.integers(1, 4)),
        draw(st.integers(1, 3)),
        gang=draw(st.booleans()),
        most_sync_s=draw(st.sampled_from((0, 4))),
        most_switch_s=draw(st.sampled_from((0, 2))),
        most_rate=draw(st.integers(1, most_rate)),
    )
    rng = random.Random(draw(st.integers(0, 2**32)))
    return random_case(rng, draw(st.integers(1, most)), kind, whole=draw(st.booleans()))


POSITIVE = st.floats(1e-3, 1e6)


#: Random groups per kind that the oracle solves (1 to 4 jobs); 60 x 7 take about 10 s.
SOLVED = 60


@cache
def solved_cases() -> dict[str, list[tuple[Case, float, Starts]]]:
    """Return random groups per kind with their least period and a schedule of it."""
    out = {}
    for number, name in enumerate(KINDS):
        out[name] = []
        for case in random_cases(900 + number, SOLVED, 4, [name]):
            least, starts = oracle_least_period(*case.data())
            out[name].append((case, least, tuple(tuple(pairs) for pairs in starts)))
    return out
