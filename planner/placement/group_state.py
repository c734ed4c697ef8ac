"""One group as the planner holds it: who is in it, on which nodes, with which starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from instances.jobs import Job
from instances.plan import GroupVersion, JobPlacement
from models.problem.group_shape import GroupShape, Pins, Starts

__all__ = ["GroupState"]


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group between two membership changes; index ``i`` runs over its members.

    Attributes
    ----------
    number : int
        Creation number of the group, its identity and its place in the stable order.
    jobs : tuple of Job
        Members, in order of arrival.
    rollout_pins, train_pins : tuple of tuple of int
        Nodes of this group that each member uses.
    rates : tuple of int
        Iterations per period, by member.
    period_s : float
        C_g, seconds.
    starts_s : tuple
        Per member one (rollout, train) start per iteration; see :class:`JobPlacement`.
    """

    number: int
    jobs: tuple[Job, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]
    rates: tuple[int, ...]
    period_s: float
    starts_s: Starts

    @classmethod
    def alone(cls, job: Job, number: int) -> GroupState:
        """Return a group of one job on nodes of its own, train right after rollout."""
        rollout, train = tuple(range(job.rollout_nodes)), tuple(range(job.train_nodes))
        starts = (((0.0, job.rollout_s),),)
        return cls(number, (job,), (rollout,), (train,), (1,), job.solo_s, starts)

    @property
    def group_id(self) -> str:
        """Name of the group in every output."""
        return f"g{self.number}"

    @property
    def rollout_nodes(self) -> Pins:
        """Rollout nodes somebody is pinned to, ascending."""
        return _union(self.rollout_pins)

    @property
    def train_nodes(self) -> Pins:
        """Train nodes somebody is pinned to, ascending."""
        return _union(self.train_pins)

    @property
    def iteration_s(self) -> float:
        """Mean over the members of their mean iteration time ``C / k_j``, seconds."""
        if max(self.rates) == 1:
            return self.period_s
        return self.period_s * sum([1 / rate for rate in self.rates]) / len(self.rates)

    def shape(self) -> GroupShape:
        """Return the group's phases and pins, switches included."""
        return GroupShape.of(self.jobs, self.rollout_pins, self.train_pins, self.rates)

    def without(self, job_id: str) -> GroupState:
        """Return the group without one member, everything else as it was."""
        keep = [i for i, job in enumerate(self.jobs) if job.job_id != job_id]
        return replace(
            self,
            jobs=tuple(self.jobs[i] for i in keep),
            rollout_pins=tuple(self.rollout_pins[i] for i in keep),
            train_pins=tuple(self.train_pins[i] for i in keep),
            rates=tuple(self.rates[i] for i in keep),
            starts_s=tuple(self.starts_s[i] for i in keep),
        )

    def version(self, from_s: float, to_s: float) -> GroupVersion:
        """Return this state as a plan's record of the interval ``[from_s, to_s)``."""
        return GroupVersion(
            group_id=self.group_id,
            from_s=from_s,
            to_s=to_s,
            period_s=self.period_s,
            rollout_nodes=self.rollout_nodes,
            train_nodes=self.train_nodes,
            placements=tuple(
                JobPlacement(
                    job_id=job.job_id, rollout_pins=r, train_pins=t, starts_s=starts, rate=rate
                )
                for job, r, t, starts, rate in zip(
                    self.jobs,
                    self.rollout_pins,
                    self.train_pins,
                    self.starts_s,
                    self.rates,
                    strict=True,
                )
            ),
        )


def _union(pins: Sequence[Pins]) -> Pins:
    return tuple(sorted({node for nodes in pins for node in nodes}))
