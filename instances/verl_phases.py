"""From the keys of a verl log to seconds of rollout, train and sync, step by step.

verl times the parts of a step under ``timing_s/<name>``. Which part belongs to which phase:

* *rollout*: ``gen`` (generation, with all that happens inside it), ``gen_max`` (a second, greedy
  generation) and ``reward``. Rewards score responses before any training can start, so the
  rollout nodes are held until they are there; ``--train-keys`` can claim them for the train phase.
* *train*: ``old_log_prob``, ``ref``, ``values``, ``adv``, ``update_critic``, ``update_actor``.
* *sync*: nothing unless asked for. What a log times as ``update_weights`` or
  ``sync_rollout_weights`` went over the links of the log's own cluster, seldom over the link
  between two pools.
* *neither*: ``testing``, ``save_checkpoint``, profiling, dumps. They are not part of an iteration.

``generate_sequences``, ``reshard``, ``generation_timing/...`` and ``agent_loop/...`` are parts of
``gen`` and never counted beside it.

A *one-step* job (``wait_prev_gen``, ``generate_async`` or ``sync_rollout_weights`` is logged)
generates while it trains. Its ``gen`` or ``wait_prev_gen`` is only a wait, so its rollout is
``generate_async``, else ``generate_sequences``. A fully asynchronous job logs sums over several
steps and waits of the trainer, no phases: it is refused.

Steps that count have every used key. The first steps after each start are warm-up. Of a step
logged twice, as after a restart from a checkpoint, the last one counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from instances.errors import UnsupportedError, did_you_mean
from instances.trace_table import Fault, FaultLog
from instances.verl_log import STEP_KEYS, TIMING, LoggedStep, VerlLog

__all__ = [
    "LENGTHS",
    "SYNC",
    "PhaseKeys",
    "Phases",
    "StepSeconds",
    "chosen_keys",
    "read_phases",
    "step_ranges",
]

#: What times the generation of responses, by mode: the first that is logged counts.
_FIRST: Final = {
    "sync": ("gen", "generate_sequences"),
    "one-step": ("generate_async", "generate_sequences"),
}
_GENERATION: Final = ("gen", "gen_max", "generate_async", "generate_sequences")
_REWARD: Final = "reward"
_TRAIN: Final = ("old_log_prob", "ref", "values", "adv", "update_critic", "update_actor")
_UPDATE: Final = ("update_actor", "update_critic")
#: Timings of the weight transfer; a phase only when asked for.
SYNC: Final = ("update_weights", "sync_rollout_weights", "weight_sync", "param_sync")
_NEITHER: Final = (
    "testing",
    "save_checkpoint",
    "start_profile",
    "stop_profile",
    "dump_rollout_generations",
)
_PARTS: Final = ("generate_sequences", "reshard", "generation_timing/", "agent_loop/")
_ONE_STEP: Final = ("wait_prev_gen", "generate_async", "sync_rollout_weights")
_ASYNC: Final = ("fully_async/", "training/off_policy/")
#: What is said about response and prompt lengths, and how often a step misses it is no matter.
LENGTHS: Final = (
    "response_length/max",
    "response_length/mean",
    "response_length/clip_ratio",
    "prompt_length/mean",
)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class PhaseKeys:
    """Names of timings (without ``timing_s/``) by phase, and the mode they speak of."""

    rollout: tuple[str, ...]
    train: tuple[str, ...]
    sync: tuple[str, ...]
    mode: str

    @property
    def used(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.rollout, *self.train, *self.sync)


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """The phases of one step that counts, seconds; lengths in tokens where they are logged."""

    step: int
    rollout_s: float
    generation_s: float
    train_s: float
    sync_s: float
    lengths: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Phases:
    """The steps of a log that count, and an account of all others.

    Attributes
    ----------
    keys : PhaseKeys
    steps : tuple of StepSeconds
        By step number.
    logged : int
        Distinct steps with any timing.
    warm_up : tuple of StepSeconds
        Left out as the first after a start.
    untimed : tuple of int
        Steps of which no time is logged, such as a validation before the first.
    lacking : mapping of str to tuple of int
        Key -> steps left out because they lack it.
    superseded : tuple of int
        Steps logged again later.
    gaps : tuple of int
        Numbers missing between the first and the last timed step.
    belated : tuple of int
        Steps first logged after a higher one, whose run had not reached them: of another run?
    share : float or None
        Of the step time the phases explain; None where it is not known.
    neither : mapping of str to float
        Timing left out -> mean seconds per timed step.
    """

    keys: PhaseKeys
    steps: tuple[StepSeconds, ...]
    logged: int
    warm_up: tuple[StepSeconds, ...]
    untimed: tuple[int, ...]
    lacking: Mapping[str, tuple[int, ...]]
    superseded: tuple[int, ...]
    gaps: tuple[int, ...]
    belated: tuple[int, ...]
    share: float | None
    neither: Mapping[str, float]


def step_ranges(steps: Sequence[int], most: int = 6) -> str:
    """Return ``1-3, 7`` for 1, 2, 3, 7; after ``most`` ranges, how many more there are."""
    ranges: list[tuple[int, int]] = []
    for step in sorted(set(steps)):
        if ranges and step == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], step)
        else:
            ranges.append((step, step))
    words = [f"{low}" if low == high else f"{low}-{high}" for low, high in ranges[:most]]
    rest = sum(high - low + 1 for low, high in ranges[most:])
    return ", ".join(words) + (f" and {rest} more" if rest else "")


# -- which keys ----------------------------------------------------------------------------


def _timings(log: VerlLog) -> tuple[str, ...]:
    return tuple(key.removeprefix(TIMING) for key in log.keys if key.startswith(TIMING))


def _is_part(name: str) -> bool:
    return any(name == part or (part[-1] == "/" and name.startswith(part)) for part in _PARTS)


def _default_rollout(names: Sequence[str], mode: str) -> tuple[str, ...]:
    first = next((name for name in _FIRST[mode] if name in names), None)
    if first is None:
        return ()
    more = ("gen_max", _REWARD) if first == "gen" else (_REWARD,)
    return (first, *(name for name in more if name in names))


def chosen_keys(
    log: VerlLog,
    *,
    rollout: Sequence[str] = (),
    train: Sequence[str] = (),
    sync: Sequence[str] = (),
) -> PhaseKeys:
    """Return the timings of each phase: those asked for, else the defaults that are logged.

    Names may have the prefix ``timing_s/``. What one phase asks for, the defaults of the others
    leave to it.

    Raises
    ------
    UnsupportedError
        When the log is that of a fully asynchronous job and no key is asked for.
    TraceError
        When a name asked for is not logged, two phases share one, a part of ``gen`` would count
        twice, or a phase has none.
    """
    names = _timings(log)
    asked = [tuple(name.strip().removeprefix(TIMING) for name in g) for g in (rollout, train, sync)]
    if not (rollout and train) and (found := [k for k in log.keys if k.startswith(_ASYNC)]):
        raise UnsupportedError(
            f"{log.source}: Expected the log of a synchronous or one-step job, got keys such as "
            f"{found[0]!r}: an asynchronous trainer logs sums over several steps and its own "
            "waits. Name the keys of both phases (rollout keys, train keys) to read it anyway."
        )
    mode = "one-step" if any(name in names for name in _ONE_STEP) else "sync"
    claimed = {name for group in asked for name in group}
    defaults = (
        _default_rollout(names, mode),
        tuple(name for name in _TRAIN if name in names),
        (),
    )
    chosen = [
        group or tuple(name for name in default if name not in claimed)
        for group, default in zip(asked, defaults, strict=True)
    ]
    keys = PhaseKeys(rollout=chosen[0], train=chosen[1], sync=chosen[2], mode=mode)
    faults = FaultLog()
    empty = _empty_phases(keys, log, asked_train=bool(asked[1]))
    for rule, hint in (*_key_faults(keys, names), *empty):
        faults.add(Fault(row=None, column="", value="", rule=rule, hint=hint))
    faults.raise_any(log.source)
    return keys


def _key_faults(keys: PhaseKeys, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for i, name in enumerate(keys.used):
        if name not in names:
            yield f"Expected {TIMING}{name} in the log, got no such key.", did_you_mean(name, names)
        if name in keys.used[:i]:
            yield f"Expected each key once, got {TIMING}{name} twice.", ""
        if _is_part(name) and "gen" in keys.used and keys.mode == "sync":
            hint = " Name the rollout keys without gen."
            yield f"Expected no part of {TIMING}gen beside it, got {TIMING}{name}.", hint


def _empty_phases(keys: PhaseKeys, log: VerlLog, *, asked_train: bool) -> Iterator[tuple[str, str]]:
    """Yield a fault for each phase that has no key, with the nearest key of the log."""
    timed = [TIMING + name for name in _timings(log)]
    found = timed or [key for key in log.seen if key not in STEP_KEYS]
    shown = ", ".join(found[:12]) + (f" and {len(found) - 12} more" if len(found) > 12 else "")
    none = "" if timed else f" No key begins with {TIMING}."
    tail = f"{none} Found: {shown or 'no key at all'}."
    first, second = (TIMING + name for name in _FIRST[keys.mode])
    taken = {TIMING + name for name in (*keys.used, "step")}
    spare = [key for key in found if key not in taken]
    if not keys.rollout:
        yield f"Missing {first} or {second} (rollout).{tail}", did_you_mean(first, spare)
    if not asked_train and not any(name in keys.train for name in _UPDATE):
        update = TIMING + _UPDATE[0]
        yield f"Missing {update} (train).{tail}", did_you_mean(update, spare)


# -- which steps ---------------------------------------------------------------------------


def _starts(steps: Sequence[LoggedStep], n: int) -> set[int]:
    """Return the positions of the first ``n`` timed steps after each start of the run."""
    out: set[int] = set()
    since, before = 0, -1
    for i, step in enumerate(steps):
        if step.step <= before:
            since = 0
        if since < n:
            out.add(i)
        since, before = since + 1, step.step
    return out


def _value(cells: Mapping[str, str], key: str, line: int, faults: FaultLog) -> float:
    """Return a number >= 0, or 0 and a fault."""
    text = cells[key].strip()
    value = float(text) if _NUMBER.fullmatch(text) else math.nan
    if not 0 <= value < math.inf:
        rule = f"{key} to be a finite number >= 0"
        faults.add(Fault(row=line, column=key, value=cells[key], rule=rule))
        return 0.0
    return value


def _seconds(step: LoggedStep, keys: PhaseKeys, faults: FaultLog) -> StepSeconds:
    before = faults.total
    read = {name: _value(step.cells, TIMING + name, step.line, faults) for name in keys.used}
    lengths = {
        key: _value(step.cells, key, step.line, faults) for key in LENGTHS if key in step.cells
    }
    sums = [round(math.fsum(read[name] for name in g), 6) for g in (keys.rollout, keys.train)]
    for total, group, phase in zip(
        sums, (keys.rollout, keys.train), ("rollout", "train"), strict=True
    ):
        if not total > 0 and faults.total == before:
            rule = f"{phase} seconds > 0"
            key = TIMING + group[0]
            faults.add(Fault(row=step.line, column=key, value=step.cells[key], rule=rule))
    return StepSeconds(
        step=step.step,
        rollout_s=sums[0],
        generation_s=round(math.fsum(read[n] for n in keys.rollout if n in _GENERATION), 6),
        train_s=sums[1],
        sync_s=round(math.fsum(read[name] for name in keys.sync), 6),
        lengths=lengths,
    )


def read_phases(log: VerlLog, keys: PhaseKeys, skip_steps: int) -> Phases:
    """Return the seconds of every step that counts.

    Parameters
    ----------
    log : VerlLog
    keys : PhaseKeys
    skip_steps : int
        Steps to leave out after each start; a start is seen where step numbers fall or repeat.

    Raises
    ------
    TraceError
        When a used value of a step that is kept or skipped is no finite number >= 0, or a phase
        takes no time at all.
    """
    timed = [step for step in log.steps if step.timed]
    first = _starts(timed, skip_steps)
    last = {step.step: i for i, step in enumerate(timed)}
    faults = FaultLog()
    kept: list[StepSeconds] = []
    warm_up: list[StepSeconds] = []
    lacking: dict[str, list[int]] = {}
    for i in sorted(last.values(), key=lambda i: timed[i].step):
        step = timed[i]
        missing = next((name for name in keys.used if TIMING + name not in step.cells), None)
        if missing is not None:
            lacking.setdefault(TIMING + missing, []).append(step.step)
        else:
            (warm_up if i in first else kept).append(_seconds(step, keys, faults))
    faults.raise_any(log.source)
    numbers = sorted(last)
    gaps = _gaps(numbers)
    return Phases(
        keys=keys,
        steps=tuple(kept),
        logged=len(last),
        warm_up=tuple(warm_up),
        untimed=tuple(sorted({step.step for step in log.steps if not step.timed} - set(last))),
        lacking={key: tuple(steps) for key, steps in lacking.items()},
        superseded=tuple(step.step for i, step in enumerate(timed) if last[step.step] != i),
        gaps=gaps,
        belated=_belated(timed),
        share=_share([timed[i] for i in last.values()], keys),
        neither=_neither([timed[i] for i in last.values()], keys, log),
    )


def _belated(steps: Sequence[LoggedStep]) -> tuple[int, ...]:
    """Return the steps first logged after a higher one; a restart only goes back to known steps."""
    out, seen, highest = [], set(), -1
    for step in steps:
        if step.step < highest and step.step not in seen:
            out.append(step.step)
        seen.add(step.step)
        highest = max(highest, step.step)
    return tuple(sorted(out))


def _gaps(numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers missing from an ascending list, at most 100,000 of them."""
    gaps: list[int] = []
    for low, high in pairwise(numbers):
        gaps.extend(range(low + 1, min(high, low + 100_000)))
        if len(gaps) > 100_000:
            break
    return tuple(gaps[:100_000])


# -- what the phases leave unexplained -----------------------------------------------------


def _plain(step: LoggedStep, name: str) -> float:
    text = step.cells.get(TIMING + name, "").strip()
    value = float(text) if _NUMBER.fullmatch(text) else 0.0
    return value if 0 <= value < math.inf else 0.0


def _share(steps: Sequence[LoggedStep], keys: PhaseKeys) -> float | None:
    """Return phases and weight transfer over step time.

    Over the steps without testing or checkpoints where there are any: versions of verl differ in
    whether the step's time contains them. Otherwise they are taken off it. The phases of a
    one-step job overlap, so that there is no such share.
    """
    whole = [step for step in steps if _plain(step, "step") > 0]
    whole = [s for s in whole if all(TIMING + name in s.cells for name in keys.used)]
    if keys.mode != "sync" or not whole:
        return None
    bare = [step for step in whole if not any(_plain(step, name) > 0.01 for name in _NEITHER)]
    counted = {*keys.used, *SYNC}
    explained = total = 0.0
    for step in bare or whole:
        phases_s = math.fsum(_plain(step, name) for name in counted)
        step_s = _plain(step, "step")
        if not bare:
            step_s = max(step_s - math.fsum(_plain(step, n) for n in _NEITHER), phases_s)
        explained += min(phases_s, step_s)
        total += step_s
    return explained / total


def _neither(steps: Sequence[LoggedStep], keys: PhaseKeys, log: VerlLog) -> dict[str, float]:
    """Return the timings that no phase counts, longest first, those below 10 ms left away."""
    names = [n for n in _timings(log) if n not in keys.used and n != "step" and not _is_part(n)]
    mean = {n: math.fsum(_plain(step, n) for step in steps) / len(steps) for n in names}
    return {n: s for n, s in sorted(mean.items(), key=lambda item: -item[1]) if s >= 0.01}
