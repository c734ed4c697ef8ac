"""How often the placer costs more with more host DRAM, or with a job fewer.

Run ``python tests/benchmarks/study_monotone.py [--draws 500] [--jobs 7,15,30] [--seed 0]
[--trace FILE]``. Jobs are drawn from a trace (the shipped ``production-200`` unless given); one
line per relief and number of jobs: comparisons, how many cost more, how many less, and the worst.
Figures depend on the arguments alone. The least cost never rises with either; tests hold that.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.catalog import catalog_path
from instances.trace import read_trace
from planner.placement.monotone_count import count_dearer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--jobs", default="7,15,30")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, default=catalog_path("production-200"))
    asked = parser.parse_args()
    jobs = read_trace(asked.trace).jobs
    print("| jobs | relief | comparisons | cost more | share | cost less | worst |")
    print("|---|---|---|---|---|---|---|")
    began = time.process_time()
    for n_jobs in (int(word) for word in asked.jobs.split(",")):
        for count in count_dearer(jobs, draws=asked.draws, n_jobs=n_jobs, seed=asked.seed):
            share = "" if count.dearer_share is None else f"{count.dearer_share:.1%}"
            print(
                f"| {n_jobs} | {count.relief} | {count.draws} | {count.dearer} | {share} | "
                f"{count.cheaper} | {count.worst_share:+.1%} |"
            )
    print(f"\n{time.process_time() - began:.1f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
    main()
