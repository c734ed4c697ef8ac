"""Running groups that are re-planned, and the groups they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.bounds.covering_lp import Ending
from models.problem.group_shape import Pins, Starts

__all__ = ["Host", "NewGroup", "Replan", "node_counts"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A running group.

    Attributes
    ----------
    members : tuple of int
        Indices of the snapshot's jobs, ascending.
    rollout_pins, train_pins : tuple of tuple of int
        Per member, nodes of this group by their names, which no re-planning changes.
    rates : tuple of int
        Iterations per period.
    period_s : float
    starts_s : tuple
        Per member one (rollout, train) start per iteration.
    fresh_rollout, fresh_train : int
        The first node names that this group never used.
    """

    members: tuple[int, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]
    rates: tuple[int, ...]
    period_s: float
    starts_s: Starts
    fresh_rollout: int
    fresh_train: int

    @property
    def pins(self) -> tuple[tuple[Pins, ...], tuple[Pins, ...]]:
        """Rollout and train pins."""
        return self.rollout_pins, self.train_pins

    @property
    def fresh(self) -> tuple[int, int]:
        """First rollout and train node names never used."""
        return self.fresh_rollout, self.fresh_train


@dataclass(frozen=True, kw_only=True, slots=True)
class NewGroup:
    """A group of the new plan, valid: its schedule is in hand.

    Attributes
    ----------
    host : int or None
        Index of the running group it continues; ``None`` when all its nodes are new.
    members : tuple of int
        Ascending.
    rollout_pins, train_pins : tuple of tuple of int
        Nodes of the host by their names; new ones are numbered from its ``fresh_rollout`` and
        ``fresh_train`` on, and from 0 without a host.
    rates : tuple of int
    period_s : float
    starts_s : tuple
    movers : tuple of int
        Members that ran elsewhere, or in this host on other nodes. Newcomers are none.
    """

    host: int | None
    members: tuple[int, ...]
    rollout_pins: tuple[Pins, ...]
    train_pins: tuple[Pins, ...]
    rates: tuple[int, ...]
    period_s: float
    starts_s: Starts
    movers: tuple[int, ...] = ()

    @property
    def nodes(self) -> tuple[int, int]:
        """Number of rollout and of train nodes."""
        return node_counts(self.rollout_pins, self.train_pins)


@dataclass(frozen=True, kw_only=True)
class Replan:
    """What was found.

    Attributes
    ----------
    groups : tuple of NewGroup
        A valid plan of all jobs, by first member.
    value_usd : float
        Price of its nodes for the time it lasts, and of its moves, $.
    moves : int
    ending : Ending
        Why the search stopped; ``NODES`` also when a refutation was no proof, or sets were left
        out.
    proved : bool
        Whether no plan within the candidates is better (module :mod:`models.replan.replanning`).
    bound_usd : float or None
        No plan within the candidates is worth less; ``None`` where none is known.
    counts : mapping of str to int
    """

    groups: tuple[NewGroup, ...]
    value_usd: float
    moves: int
    ending: Ending
    proved: bool
    bound_usd: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def node_counts(rollout_pins: Sequence[Pins], train_pins: Sequence[Pins]) -> tuple[int, int]:
    """Return how many rollout and train nodes are pinned to."""
    return (
        len({node for pins in rollout_pins for node in pins}),
        len({node for pins in train_pins for node in pins}),
    )
