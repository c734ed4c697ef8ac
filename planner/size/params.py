"""What ``planner size`` is asked: which parts, at which levels, with how much effort."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from instances.errors import InputError, did_you_mean
from planner.output.report_parts import parts_in_order
from planner.policies.wait_target import WaitTarget

if TYPE_CHECKING:
    from instances.bootstrap import Bursts

__all__ = ["PARTS", "Perfect", "SizeParams"]

#: Parts beyond demand and the least-cost split, which are always there, in order of making.
PARTS: Final = (
    "alternatives",
    "fleet",
    "loss",
    "prices",
    "changes",
    "tokens",
    "worth",
    "uncertainty",
)
#: What stands beside the policies as a perfect system.
Perfect = Literal["bound", "optimum", "none"]
#: What may be named, by field, and the option that names it.
_KINDS: Final = {
    "sync_kinds": ("--sync-kinds", ("hierarchical", "flat")),
    "switches": ("--switches", ("none", "warm", "cold")),
    "plan_at": ("--plan-at", ("p50", "p95", "p99", "max")),
}


@dataclass(frozen=True)
class _Rule:
    """What every number of a field has to be, and the option it comes from."""

    option: str
    text: str
    holds: Callable[[float], bool]


#: Checked before anything is computed: a wrong number must not cost what came before it.
_RULES: Final = {
    "ladder_s": _Rule("--waits", "waits >= 0 s", lambda x: x >= 0),
    "near": _Rule("--near", "shares >= 0 and < 10 above the least cost", lambda x: 0 <= x < 10),
    "price_ratios": _Rule("--price-ratios", "price_ratios > 0", lambda x: 0 < x < math.inf),
    "dram_tb": _Rule("--dram-tb", "dram_tb >= 0 TB", lambda x: 0 <= x < math.inf),
    "slo_scales": _Rule("--slo-scales", "slo_scales >= 0", lambda x: 0 <= x < math.inf),
    "link_gbps": _Rule("--links-gbps", "link_gbps >= 1e-09 Gb/s", lambda x: 1e-9 <= x < math.inf),
    "links": _Rule("--links", "links >= 1", lambda x: x >= 1),
    "group_sizes": _Rule("--group-sizes", "group_sizes >= 0", lambda x: x >= 0),
    "growths": _Rule("--growth", "growths > 0", lambda x: 0 < x < math.inf),
    "block_h": _Rule("--block-hours", "block_h > 0 h", lambda x: 0 < x < math.inf),
    "warm_up_h": _Rule("--warm-up-hours", "warm_up_h >= 0 h", lambda x: 0 <= x < math.inf),
    "confidence": _Rule("--confidence", "confidence > 0 and <= 1", lambda x: 0 < x <= 1),
    "coverage": _Rule("--coverage", "coverage > 0 and <= 1", lambda x: 0 < x <= 1),
    "growth_years": _Rule("--growth-in", "growth_years > 0 years", lambda x: 0 < x < math.inf),
}


@dataclass(frozen=True, kw_only=True)
class SizeParams:
    """The questions that a size report answers.

    Attributes
    ----------
    parts : tuple of str
        Of :data:`PARTS`; ``loss`` needs ``fleet``.
    perfect : {"bound", "optimum", "none"}
        Volume bound, or the snapshot optimum at every moment (which takes long), or neither.
    target : WaitTarget
        Of a fixed fleet.
    ladder_s : tuple of float
        Further waiting targets, for the frontier of cost against wait, s.
    most_nodes : tuple of (int, int), optional
        Most rollout and train nodes of a fixed fleet; default: the peak of the plain replay.
    near : tuple of float
        How far above the least cost alternatives may be, as shares.
    price_ratios : tuple of float
        Price of a train GPU over that of a rollout GPU, increasing.
    dram_tb : tuple of numbers
        Levels of host DRAM per node, TB.
    slo_scales : tuple of numbers
        Levels of tolerated slack, as multiples of slo - 1.
    link_gbps : tuple of numbers
        Levels of one link between the clusters, Gb/s.
    links : tuple of numbers
        Levels of the number of such links.
    group_sizes : tuple of numbers
        Levels of the most jobs in a group; 0: no limit.
    sync_kinds, switches : tuple of str
        Levels of ``changes``; an empty one is left out.
    plan_at : tuple of str
        Of ``p50``, ``p95``, ``p99``, ``max``: levels of ``tokens``.
    samples : int
        Sampled executions of each plan, for ``tokens``.
    moments : int
        Snapshots solved exactly, for ``worth``.
    time_limit_s : float
        Of one snapshot.
    growths : tuple of float
        Arrivals over those of the trace, for ``uncertainty``.
    growth_years : float or None
        In how many years the last growth is reached.
    replications : int
        Drawn traces.
    processes : int
        That replay drawn traces; answers do not depend on it.
    block_h : float
        Blocks of the bootstrap, h.
    bursts : {"independent", "coincident"}
        Whether growth is more customers, or the same ones sending more at the same moments.
    warm_up_h : float or None
        Leave out so many hours while the drawn traces fill, and the time in which they drain.
    confidence, coverage : float
        Share of the futures in which, and share of the time for which, a fleet has to be enough.
    seed : int
        Of every draw.

    Raises
    ------
    InputError
        For a number out of its range.
    """

    parts: tuple[str, ...] = PARTS
    perfect: Perfect = "bound"
    target: WaitTarget = field(default_factory=lambda: WaitTarget(1800.0))
    ladder_s: tuple[float, ...] = (0.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0)
    most_nodes: tuple[int, int] | None = None
    near: tuple[float, ...] = (0.01, 0.05)
    price_ratios: tuple[float, ...] = tuple(1.0 + 0.25 * i for i in range(29))
    dram_tb: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 3.0)
    slo_scales: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0)
    link_gbps: tuple[float, ...] = (10.0, 20.0, 100.0, 400.0)
    links: tuple[int, ...] = (1, 2, 4)
    group_sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 8, 0)
    sync_kinds: tuple[str, ...] = ("hierarchical", "flat")
    switches: tuple[str, ...] = ("none", "warm", "cold")
    plan_at: tuple[str, ...] = ("p50", "p95", "p99", "max")
    samples: int = 5
    moments: int = 5
    time_limit_s: float = 5.0
    growths: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0)
    growth_years: float | None = None
    replications: int = 60
    processes: int = 1
    block_h: float = 24.0
    bursts: Bursts = "independent"
    warm_up_h: float | None = None
    confidence: float = 0.95
    coverage: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", parts_in_order(self.parts, PARTS))
        if "loss" in self.parts and "fleet" not in self.parts:
            raise InputError("Expected part fleet with part loss: it is that fleet's nodes.")
        if self.seed < 0:
            raise InputError(f"Expected seed >= 0, got {self.seed}.")
        for name in ("samples", "moments", "replications", "processes"):
            if getattr(self, name) < 1:
                raise InputError(f"Expected {name} >= 1, got {getattr(self, name)}.")
        for name, (option, known) in _KINDS.items():
            unknown = [kind for kind in getattr(self, name) if kind not in known]
            if unknown:
                raise InputError(
                    f"Expected {name} in {', '.join(known)}, got '{unknown[0]}' ({option})."
                    f"{did_you_mean(unknown[0], known)}"
                )
        self._check_numbers()
        self._check_growths()
        if "tokens" in self.parts and not self.plan_at:
            raise InputError("Expected plan_at at least one quantile, got none (--plan-at).")

    def _check_numbers(self) -> None:
        for name, rule in _RULES.items():
            value = getattr(self, name)
            numbers = value if isinstance(value, tuple) else () if value is None else (value,)
            for number in numbers:
                if not rule.holds(number):
                    raise InputError(f"Expected {rule.text}, got {number:g} ({rule.option}).")

    def _check_growths(self) -> None:
        growths = self.growths
        if "uncertainty" not in self.parts:
            return
        if not growths or list(growths) != sorted(set(growths)):
            raise InputError(
                "Expected growths increasing, at least one, got "
                f"{[float(growth) for growth in growths]} (--growth)."
            )
        if self.growth_years is not None and not growths[0] == 1 < growths[-1]:
            raise InputError(
                "Expected growths from 1, which is now, to one above 1 with growth_years, got "
                f"{[float(growth) for growth in growths]} (--growth with --growth-in)."
            )
