"""The worst case of a verl log: the most measured, or that scaled to the token limit.

What is measured, what is estimated and why is said in :mod:`instances.verl_import`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from instances.errors import InputError
from instances.trace_table import plain
from instances.verl_log import VerlLog
from instances.verl_phases import Phases, StepSeconds

__all__ = ["AT_LIMIT", "PERCENTILE_STEPS", "Limit", "slowest", "timing_cells"]

AT_LIMIT: Final = ("longest", "tokens")
#: Fewer steps have no 95th percentile but their maximum.
PERCENTILE_STEPS: Final = 20
_LONGEST: Final = "response_length/max"
_CLIPPED: Final = "response_length/clip_ratio"


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The token limit, and how far the log got.

    Attributes
    ----------
    tokens : float
        The limit, given or found; 0 where it is not known.
    found : bool
        Whether it is the log's word: the longest response where some were cut off.
    longest : float
        Longest response logged, 0 where none is.
    reached : bool or None
        Whether a response of a step that counts reached it; None where the log does not tell.
    clipped : float
        Largest share of a step's responses that were cut off.
    ragged : bool
        Whether clip ratios are of no use here: responses were "cut off" at lengths that differ,
        so batches were padded to their own longest response, and the ratio counts those as long.
    """

    tokens: float
    found: bool
    longest: float
    reached: bool | None
    clipped: float
    ragged: bool

    @classmethod
    def of(cls, log: VerlLog, phases: Phases, row: Mapping[str, str]) -> Limit:
        """Return what a log and its row say about the limit.

        Raises
        ------
        InputError
            When a response is longer than the limit that is given.
        """
        steps = [step.lengths for step in (*phases.steps, *phases.warm_up)]
        longest = max((at[_LONGEST] for at in steps if _LONGEST in at), default=0.0)
        cut = {at[_LONGEST] for at in steps if at.get(_CLIPPED, 0.0) > 0 and _LONGEST in at}
        ragged = len(cut) > 1 or any(length < longest for length in cut)
        given = _number(row.get("max_tokens", ""))
        if 0 < given < longest:
            raise InputError(
                f"{log.source}: Expected response_length/max <= max_tokens = {plain(given)}, "
                f"got {plain(longest)}."
            )
        used = [step.lengths for step in phases.steps]
        shares = [at[_CLIPPED] for at in used if _CLIPPED in at and not ragged]
        lengths = [at[_LONGEST] for at in used if _LONGEST in at]
        reached: bool | None = None
        found = not given > 0 and not ragged and bool(cut)
        tokens = max(cut) if found else given
        if tokens > 0 and lengths:
            reached = max(lengths) >= tokens
        elif shares:
            reached = max(shares) > 0
        return cls(
            tokens=tokens,
            found=found,
            longest=longest,
            reached=reached,
            clipped=max(shares, default=0.0),
            ragged=ragged,
        )


def _number(text: str) -> float:
    """Return a number, or 0 for what the trace's own rules will refuse."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0


def slowest(steps: Sequence[StepSeconds], phase: str) -> StepSeconds:
    """Return the first of the slowest steps."""
    return max(steps, key=lambda step: (float(getattr(step, phase)), -step.step))


def timing_cells(
    log: VerlLog, phases: Phases, limit: Limit, at_limit: str | None
) -> dict[str, str]:
    """Return the measured columns, and the extra ones that say where they come from."""
    steps = phases.steps
    slow = {phase: slowest(steps, phase) for phase in ("rollout_s", "train_s")}
    seconds = {phase: float(getattr(step, phase)) for phase, step in slow.items()}
    source = {p: f"measured: most of {len(steps)} steps, step {s.step}" for p, s in slow.items()}
    if at_limit is not None:
        seconds, source = _scaled(log, slow, limit, at_limit)
    out = {phase: plain(value) for phase, value in seconds.items()}
    if phases.keys.sync:
        out["sync_s"] = plain(max(step.sync_s for step in steps))
    if len(steps) >= PERCENTILE_STEPS:
        for phase in ("rollout", "train"):
            values = [getattr(step, f"{phase}_s") for step in steps]
            for level in (50, 95):
                at = float(np.percentile(values, level, method="inverted_cdf"))
                out[f"{phase}_p{level}_s"] = plain(at)
    reached = {None: "unknown", True: "yes", False: "no"}[limit.reached]
    out |= {f"verl_origin_{phase[:-2]}": words for phase, words in source.items()}
    return out | {"verl_log": log.source, "verl_limit_reached": reached}


def _scaled(
    log: VerlLog, slow: Mapping[str, StepSeconds], limit: Limit, at_limit: str
) -> tuple[dict[str, float], dict[str, str]]:
    """Return phase seconds at the token limit, and the words that call them estimates."""
    if limit.tokens <= 0:
        raise InputError(
            f"{log.source}: Expected the token limit (max_tokens) to scale to, got none, and no "
            "response was cut off at it."
        )
    rollout, train = slow["rollout_s"], slow["train_s"]
    length = "response_length/" + {"longest": "max", "tokens": "mean"}[at_limit]
    generation = limit.tokens / _length(log, rollout, length)
    rest_s = rollout.rollout_s - rollout.generation_s
    prompt = train.lengths.get("prompt_length/mean", 0.0)
    tokens = prompt + _length(log, train, "response_length/mean")
    factor = (prompt + limit.tokens) / tokens
    seconds = {
        "rollout_s": round(rest_s + rollout.generation_s * generation, 6),
        "train_s": round(train.train_s * factor, 6),
    }
    words = {
        "rollout_s": f"estimated: generation of step {rollout.step} x {generation:.4g}, {at_limit}",
        "train_s": f"estimated: step {train.step} x {factor:.4g}, linear in tokens",
    }
    return seconds, words


def _length(log: VerlLog, step: StepSeconds, key: str) -> float:
    value = step.lengths.get(key, 0.0)
    if value <= 0:
        raise InputError(
            f"{log.source}: Expected {key} > 0 to scale to the token limit, got "
            f"{plain(value) if key in step.lengths else 'none'} (step {step.step})."
        )
    return value
