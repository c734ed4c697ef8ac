"""The data of the snapshot model for CP-SAT: labels of groups, rates, and whole units.

Sets and parameters are those of :mod:`models.exact.cpsat_model`, which says why a group has a label
and a job a constant rate in it.

Rounding
--------
Time is in whole units. :class:`Data` rounds in one of two directions: for a *bound* durations
down and periods up, for a *plan* durations up and periods down; :mod:`models.exact.cpsat` says why
that is what they are. Rates are found in seconds, and a job alone is admitted in seconds, never
by the units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from instances.jobs import Job
from models.group.cyclic_cpsat import DEADLINE_REL, round_down, round_up, state_units
from models.problem.snapshot import Snapshot

__all__ = ["Data", "Label"]

#: Prices with a denominator up to this are exact; others round down to 2^-30 of the dearest.
_PRICE_DENOMINATOR: Final = 10**6
_PRICE_UNITS: Final = 2**30


class Label(NamedTuple):
    """Name of a group.

    Attributes
    ----------
    leader : int
        Rank ``g`` of a member whose SLO its period uses up.
    rate : int
        Iterations ``k`` of the leader, so that ``C = k D_g``.
    """

    leader: int
    rate: int


@dataclass(frozen=True, kw_only=True)
class Data:
    """The snapshot in whole units, jobs by rank; index 0 rollout and 1 train, then the job.

    Attributes
    ----------
    order : tuple of int
        The snapshot's index of each rank.
    labels : tuple of Label
        Those of rate 1 first, by leader.
    rate : mapping of (int, int) to int
        ``k_jl`` of each job and each label it may have.
    choices : tuple of tuple of int
        Per job the labels it may have, ascending.
    period : tuple of int
        ``C_l`` by label.
    price : (int, int)
        Of a rollout and of a train node, never more than ``per_usd`` times its $/h.
    """

    jobs: tuple[Job, ...]
    order: tuple[int, ...]
    labels: tuple[Label, ...]
    rate: Mapping[tuple[int, int], int]
    choices: tuple[tuple[int, ...], ...]
    period: tuple[int, ...]
    phase: tuple[tuple[int, ...], tuple[int, ...]]
    switch: tuple[tuple[int, ...], tuple[int, ...]]
    sync: tuple[int, ...]
    lag: tuple[int, ...]
    width: tuple[tuple[int, ...], tuple[int, ...]]
    state: tuple[list[int], list[int]]
    dram: tuple[int, int]
    price: tuple[int, int]
    per_usd: Fraction

    def __len__(self) -> int:
        return len(self.jobs)

    @classmethod
    def of(cls, snapshot: Snapshot, unit_s: float, *, for_bound: bool) -> Data:
        """Round the seconds: for a bound, durations down and periods up; else the reverse."""
        order = sorted(range(len(snapshot)), key=lambda j: (snapshot.jobs[j].deadline_s, j))
        jobs = tuple(snapshot.jobs[j] for j in order)
        shorten, lengthen = (round_down, round_up) if for_bound else (round_up, round_down)

        def units(seconds: Iterable[float]) -> tuple[int, ...]:
            return tuple(shorten(each / unit_s) for each in seconds)

        cluster = snapshot.cluster
        rollout_state, rollout_dram = state_units(
            [job.rollout_state_gb for job in jobs], cluster.rollout.host_dram_gb
        )
        train_state, train_dram = state_units(
            [job.train_state_gb for job in jobs], cluster.train.host_dram_gb
        )
        price, per_usd = _prices(snapshot)
        labels, rate = _labels(jobs, snapshot.limits.max_rate)
        longest = max(label.rate * jobs[label.leader].deadline_s for label in labels)
        return cls(
            jobs=jobs,
            order=tuple(order),
            labels=labels,
            rate=rate,
            choices=tuple(
                tuple(label for label in range(len(labels)) if (j, label) in rate)
                for j in range(len(jobs))
            ),
            period=tuple(lengthen(k * jobs[g].deadline_s / unit_s) for g, k in labels),
            phase=(units(job.rollout_s for job in jobs), units(job.train_s for job in jobs)),
            # a switch beyond every period only has to stay so
            switch=(
                units(min(job.rollout_switch_s, longest) for job in jobs),
                units(min(job.train_switch_s, longest) for job in jobs),
            ),
            sync=units(job.sync_s for job in jobs),
            lag=tuple(job.lag for job in jobs),
            width=(
                tuple(job.rollout_nodes for job in jobs),
                tuple(job.train_nodes for job in jobs),
            ),
            state=(rollout_state, train_state),
            dram=(rollout_dram, train_dram),
            price=price,
            per_usd=per_usd,
        )

    @property
    def strict(self) -> bool:
        """Whether every job has one iteration in every label."""
        return all(rate == 1 for rate in self.rate.values())

    def fewest(self, j: int) -> int:
        """Return the fewest iterations that a job has in any label."""
        return min(self.rate[j, label] for label in self.choices[j])

    def most(self, j: int) -> int:
        """Return the most iterations that a job has in any label."""
        return max(self.rate[j, label] for label in self.choices[j])

    def members(self, label: int) -> list[int]:
        """Return the jobs that may have a label, its leader among them."""
        return [j for j in range(len(self.jobs)) if (j, label) in self.rate]

    def both(self, i: int, j: int) -> list[int]:
        """Return the labels that two jobs may both have."""
        return [label for label in self.choices[i] if (j, label) in self.rate]

    def fits(self, pool: int, i: int, j: int) -> bool:
        """Return whether two jobs may share a node, as far as its load and DRAM say."""
        long = [self.phase[pool][each] + self.switch[pool][each] for each in (i, j)]
        return self.state[pool][i] + self.state[pool][j] <= self.dram[pool] and any(
            self.rate[i, label] * long[0] + self.rate[j, label] * long[1] <= self.period[label]
            for label in self.both(i, j)
        )


def _labels(jobs: Sequence[Job], most: int) -> tuple[tuple[Label, ...], dict[tuple[int, int], int]]:
    """Return the labels, and ``k_jl`` of each job and each label that it may have.

    A label of a rate above 1 that no other job may have is left out.
    """
    labels: list[Label] = []
    rate: dict[tuple[int, int], int] = {}
    for k in range(1, most + 1):
        for g, leader in enumerate(jobs):
            period = k * leader.deadline_s
            members = {g: k}
            for j, job in enumerate(jobs):
                times = math.ceil(period / job.deadline_s * (1 - DEADLINE_REL))
                # half the slack, so that g may surely be in the label that j then leads
                leads = j < g and times * job.deadline_s <= period * (1 + DEADLINE_REL / 2)
                short = times * job.solo_s <= period * (1 + DEADLINE_REL)
                if j != g and times <= most and short and not leads:
                    members[j] = times
            if k == 1 or len(members) > 1:
                rate |= {(j, len(labels)): times for j, times in members.items()}
                labels.append(Label(g, k))
    return tuple(labels), rate


def _prices(snapshot: Snapshot) -> tuple[tuple[int, int], Fraction]:
    """Return the price of a node of each pool in whole units, and the units per $/h.

    Exact where both prices have a common small denominator; else rounded down.
    """
    usd = (snapshot.usd_per_hour(1, 0), snapshot.usd_per_hour(0, 1))
    exact = [Fraction(each).limit_denominator(_PRICE_DENOMINATOR) for each in usd]
    if all(math.isclose(a, b, rel_tol=1e-12) for a, b in zip(usd, exact, strict=True)):
        scale = Fraction(math.lcm(*(each.denominator for each in exact)))
        whole = [int(each * scale) for each in exact]
        common = math.gcd(*whole) or 1
        return (whole[0] // common, whole[1] // common), scale / common
    scale = _PRICE_UNITS / Fraction(max(usd))
    return (math.floor(usd[0] * scale), math.floor(usd[1] * scale)), scale
