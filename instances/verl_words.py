"""What a person is told about the import of one verl log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from instances.trace_table import plain
from instances.verl_log import VerlLog
from instances.verl_phases import SYNC, PhaseKeys, Phases, step_ranges
from instances.verl_worst_case import PERCENTILE_STEPS, Limit, slowest

__all__ = ["Words"]

_ENOUGH_STEPS: Final = 3
#: Fewer steps are hardly a whole run.
_WHOLE_RUN: Final = 20
_ENOUGH_SHARE: Final = 0.8
_OUTLIER: Final = 2.0


class Words:
    """What a person is told about one log."""

    def __init__(self, log: VerlLog, phases: Phases, limit: Limit, row: Mapping[str, str]) -> None:
        self.log = log
        self.phases = phases
        self.limit = limit
        self.row = row

    def notes(self, *, counted: bool) -> list[str]:
        """Return the account: steps, keys, phases, what was left out."""
        log, phases, keys = self.log, self.phases, self.phases.keys
        used = [step.step for step in phases.steps]
        lines = [
            f"{log.source}: {log.form}, {phases.logged} steps with timings, {len(used)} used "
            f"({step_ranges(used)}); job {self.row['job_id']!r}, mode {keys.mode}."
        ]
        if counted:
            lines.append(f"  iterations: {phases.logged}, the steps logged.")
        lines += [f"  Left out: {words}." for words in self.left_out()]
        lines += [self.phase("rollout", keys.rollout), self.phase("train", keys.train)]
        lines.append(self.sync(keys))
        if len(used) >= PERCENTILE_STEPS:
            lines.append(
                "  p50 and p95 are over steps; response percentiles are not in such a log."
            )
        if self.limit.found:
            words = plain(self.limit.tokens)
            lines.append(f"  max_tokens: {words}, the longest response where some were cut off.")
        if self.limit.ragged:
            lines.append(
                "  response_length/clip_ratio is above 0 at lengths that differ: it counts the "
                "longest of each batch and tells nothing about the limit."
            )
        if self.limit.reached and 0 < self.limit.clipped < 1:
            lines.append(
                f"  Responses at the limit: at most {self.limit.clipped:.1%} of a step's. With all "
                "of them there a step takes longer; at_limit estimates that."
            )
        if phases.share is not None:
            lines.append(f"  The phases explain {phases.share:.0%} of the step time.")
        if others := self.others():
            lines.append(f"  In no phase (mean per step): {others}.")
        return lines

    def left_out(self) -> list[str]:
        """Return which steps do not count, and why."""
        phases = self.phases
        out = []
        if phases.warm_up:
            seconds = ", ".join(
                f"step {s.step} {s.rollout_s:.4g} + {s.train_s:.4g} s" for s in phases.warm_up[:3]
            )
            more = f" and {len(phases.warm_up) - 3} more" if len(phases.warm_up) > 3 else ""
            out.append(f"{seconds}{more} (warm-up, rollout + train)")
        if phases.superseded:
            steps = step_ranges(phases.superseded)
            out.append(f"step {steps} (logged again later: the last one counts)")
        for key, lacking in phases.lacking.items():
            out.append(f"step {step_ranges(lacking)} (no {key})")
        if phases.untimed:
            out.append(f"step {step_ranges(phases.untimed)} (no timings)")
        return out

    def phase(self, name: str, keys: Sequence[str]) -> str:
        """Return what a phase takes, and what it is made of."""
        steps = self.phases.steps
        median = float(np.median([getattr(step, f"{name}_s") for step in steps]))
        return (
            f"  {name}_s: {float(self.row[f'{name}_s']):.6g} s "
            f"({self.row[f'verl_origin_{name}']}; median {median:.6g} s), "
            f"from {' + '.join(keys)}."
        )

    def sync(self, keys: PhaseKeys) -> str:
        """Return where sync_s comes from, and what the log could give."""
        if keys.sync:
            return (
                f"  sync_s: {float(self.row['sync_s']):.6g} s, the most of {' + '.join(keys.sync)}."
            )
        if "sync_s" in self.row or "sync_gb" in self.row:
            return "  sync_s: from the table of jobs."
        logged = [name for name in SYNC if name in self.phases.neither]
        words = ", ".join(f"{name} {self.phases.neither[name]:.4g} s" for name in logged)
        hint = (
            f" The log's own cluster took {words} on average; sync keys use that." if logged else ""
        )
        return f"  sync_s: estimated from model_b.{hint}"

    def others(self) -> str:
        """Return what is in no phase, longest first."""
        items = [item for item in self.phases.neither.items() if item[0] not in SYNC]
        more = f" and {len(items) - 6} more" if len(items) > 6 else ""
        return ", ".join(f"{name} {seconds:.4g} s" for name, seconds in items[:6]) + more

    def excerpt(self) -> str:
        """Return how short a job is that does no more than the steps logged."""
        phase_s = sum(float(self.row[name]) for name in ("rollout_s", "train_s"))
        plural = "" if self.phases.logged == 1 else "s"
        minutes = self.phases.logged * phase_s / 60
        return (
            f"{self.log.source}: {self.phases.logged} iteration{plural} (the steps logged), "
            f"{minutes:.3g} min in all: give iterations (--iterations) of the whole run."
        )

    def warnings(self, at_limit: str | None, *, counted: bool) -> list[str]:
        """Return what makes the row worth less than it looks."""
        phases, source, limit = self.phases, self.log.source, self.limit
        out = []
        if len(phases.steps) < _ENOUGH_STEPS:
            plural = "step" if len(phases.steps) == 1 else "steps"
            out.append(f"{source}: only {len(phases.steps)} {plural} measured; use 3 at least.")
        if at_limit is not None:
            out.append(f"{source}: rollout_s and train_s are estimates at the token limit.")
        elif limit.reached is None:
            out.append(
                f"{source}: nothing tells whether responses reached the token limit; rollout_s "
                "and train_s are the most measured, the worst case may be longer."
            )
        elif not limit.reached:
            of = f" of {plain(limit.tokens)}" if limit.tokens > 0 else ""
            out.append(
                f"{source}: no response reached the token limit (longest "
                f"{limit.longest:g}{of}); rollout_s and train_s are the most measured, the worst "
                "case is longer."
            )
        if phases.share is not None and phases.share < _ENOUGH_SHARE:
            rest = f" Not counted: {others}." if (others := self.others()) else ""
            out.append(
                f"{source}: the phases explain only {phases.share:.0%} of the step time.{rest}"
            )
        if phases.belated:
            steps = step_ranges(phases.belated)
            out.append(
                f"{source}: step {steps} first logged after higher ones, as where two runs share "
                "a log: give each run a log of its own."
            )
        if phases.gaps:
            gaps = step_ranges(phases.gaps)
            out.append(f"{source}: not in the log: step {gaps}; a slower one may be among them.")
        if self.log.sampled:
            out.append(f"{source}: rows stand for several steps (MIN and MAX differ); export all.")
        for name in ("rollout", "train"):
            values = [float(getattr(step, f"{name}_s")) for step in phases.steps]
            most, median = max(values), float(np.median(values))
            if most > _OUTLIER * median:
                step = slowest(phases.steps, f"{name}_s").step
                out.append(
                    f"{source}: the slowest {name}, {most:.6g} s in step {step}, is "
                    f"{most / median:.1f} x the median; look whether something else held it up."
                )
        if counted and phases.logged < _WHOLE_RUN:
            out.append(self.excerpt())
        return out
