"""The policies, by name.

A policy is told of arrivals and departures, in order of time, and answers with the groups that
changed. It never sees the future, but that ``repack`` may be told when the jobs present leave.
``weave`` keeps every rule of a valid plan, and so does ``repack``, which moves running jobs where
that pays (:mod:`planner.policies.repack`), and ``regroup``, which moves them every hour for the
least price (:mod:`planner.policies.regroup`); ``solo`` gives every job nodes of its own;
``colocated`` runs both phases of a job on its train nodes; ``random`` and ``most-idle`` share by
room and not by time (:mod:`planner.policies.sharing_baselines`); ``gavel`` shares by time, one job
after the other (:mod:`planner.policies.gavel`), and so does ``swapping``, on train nodes alone
(:mod:`planner.policies.swapping`). Plans of these last five may break rules, so they are reported
``checked: false``, breaches counted by rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from instances.errors import InputError, did_you_mean
from planner.policies.dedicated import Colocated, Solo
from planner.policies.policy import Policy, PolicyOptions
from planner.policies.sharing_baselines import MostIdle, RandomGroup
from planner.policies.weave import Weave

__all__ = ["POLICIES", "make_policy", "require_policy"]


def _repack(options: PolicyOptions) -> Policy:
    """Return the policy that moves running jobs; it needs a solver, which takes long to import."""
    from planner.policies.repack import Repack

    return Repack(options)


def _regroup(options: PolicyOptions) -> Policy:
    """Return the policy of hourly optima; it needs a solver too."""
    from planner.policies.regroup import Regroup

    return Regroup(options)


def _gavel(options: PolicyOptions) -> Policy:
    """Return the policy of shares of time; it needs a solver too."""
    from planner.policies.gavel import Gavel

    return Gavel(options)


def _swapping(options: PolicyOptions) -> Policy:
    """Return the policy of shares of time on train nodes; it needs a solver too."""
    from planner.policies.swapping import Swapping

    return Swapping(options)


POLICIES: Final[dict[str, Callable[[PolicyOptions], Policy]]] = {
    "weave": Weave,
    "repack": _repack,
    "regroup": _regroup,
    "solo": Solo,
    "colocated": Colocated,
    "random": RandomGroup,
    "most-idle": MostIdle,
    "gavel": _gavel,
    "swapping": _swapping,
}


def require_policy(name: str) -> None:
    """Raise InputError for an unknown policy, with the nearest known name."""
    if name not in POLICIES:
        raise InputError(
            f"Unknown policy '{name}'.{did_you_mean(name, POLICIES)} "
            f"Known policies: {', '.join(POLICIES)}."
        )


def make_policy(name: str, options: PolicyOptions) -> Policy:
    """Return a fresh policy by name.

    Raises
    ------
    InputError
        For an unknown name, with the nearest known one.
    """
    require_policy(name)
    return POLICIES[name](options)
