"""Where moving the last responses of a rollout pays: by lengths, pairing and guesses.

Run ``python tests/benchmarks/study_migration.py [gains|search|rows|all] [HISTOGRAM.csv]`` (default
all; CPU seconds are printed last). With a histogram of lengths (lowest tokens of a bin,
probability) its shape is one more law.

* ``gains``: threshold 80 %, ``k`` 1: iterations per hour with over without, per pairing and
  lengths at default guesses, then the cells of the whole family in which migration hurts, and how
  many there are by what binds;
* ``search``: threshold, ``k`` and ``when`` that serve best, on seeds that the search did not see;
* ``rows``: beside the published 1.06 to 1.28.

All figures depend on nothing but the seeds.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from planner.replay.interval import Interval
from planner.simulate.lengths import LengthLaw
from planner.simulate.migration_study import (
    LENGTHS,
    cell_of,
    each_migration_row,
    pairings,
    search,
    variants,
)

SEEDS = range(5)
PERIODS = 40
SEARCHED = ("defaults", "a response's KV cache 4 % of weights")
PARTS = ("gains", "search", "rows")


def _text(ours: Interval) -> str:
    return f"{ours.mean:6.3f} [{ours.low:.3f}, {ours.high:.3f}]"


def gains(laws: Mapping[str, LengthLaw]) -> None:
    """Print gains at default guesses, and where they are below 1."""
    cells = [
        cell_of(pairing, lengths, inputs, seeds=SEEDS, periods=PERIODS, laws=laws)
        for pairing, lengths, inputs in product(pairings(), laws, variants())
    ]
    print("pairing | lengths | gain | rollouts moved | until threshold | binds | effect")
    for cell in cells:
        if cell.inputs.label == "defaults":
            print(
                f"{cell.pairing} | {cell.lengths} | {_text(cell.gain)} | {cell.moved_share:.0%} | "
                f"{cell.before_share:.0%} | {cell.binds} | {cell.effect}"
            )
    print("\ninputs | least gain | mean | largest | hurts in")
    for inputs in variants():
        mine = [cell for cell in cells if cell.inputs.label == inputs.label]
        means = [cell.gain.mean for cell in mine]
        hurts = sum(cell.effect == "hurts" for cell in mine)
        print(
            f"{inputs.label} | {min(means):.3f} | {sum(means) / len(means):.3f} | "
            f"{max(means):.3f} | {hurts} of {len(mine)}"
        )
    print("\nwhere it hurts")
    for cell in cells:
        if cell.effect == "hurts":
            print(
                f"{cell.pairing} | {cell.lengths} | {cell.inputs.label} | {_text(cell.gain)} | "
                f"{cell.binds}"
            )
    total = Counter(cell.binds for cell in cells)
    for effect in ("helps", "neither", "hurts"):
        found = Counter(cell.binds for cell in cells if cell.effect == effect)
        print(effect, {name: f"{found[name]} of {total[name]}" for name in sorted(total)})


def best(laws: Mapping[str, LengthLaw]) -> None:
    """Print what serves best."""
    print("\npairing | lengths | inputs | threshold | k | when | gain | gain at 80 %, k 1")
    searched = [inputs for inputs in variants() if inputs.label in SEARCHED]
    for inputs, pairing, lengths in product(searched, pairings(), laws):
        found = search(pairing, lengths, inputs, seeds=SEEDS, periods=PERIODS, laws=laws)
        move = found.best.inputs.migration
        print(
            f"{pairing.name} | {lengths} | {inputs.label} | {move.threshold:g} | {move.gpus} | "
            f"{move.when} | {_text(found.best.gain)} | {found.usual.gain.mean:.3f}"
        )


def rows(laws: Mapping[str, LengthLaw]) -> None:
    """Print the rows of the reproduction table."""
    print()
    for row in each_migration_row(seeds=SEEDS, periods=PERIODS, laws=laws):
        ours = next(iter(row.ours.values()))
        print(f"{row.item} | {_text(ours)} | {row.published} | {row.verdict} | {row.why}")


def main(arguments: list[str]) -> None:
    """Print the parts asked for."""
    laws = dict(LENGTHS)
    for name in arguments:
        if name.endswith(".csv"):
            laws["histogram"] = LengthLaw.from_histogram(Path(name))
    asked = [name for name in arguments if name in PARTS] or list(PARTS)
    began = time.process_time()
    for name, part in (("gains", gains), ("search", best), ("rows", rows)):
        if name in asked:
            part(laws)
    print(f"\n{time.process_time() - began:.1f} CPU seconds")


if __name__ == "__main__":
    main(sys.argv[1:])
