"""What moving running jobs is worth: ``repack`` against policies that never move.

Run ``python tests/benchmarks/study_repack.py FOLDER [--seeds 0,1,2,3,4]
[--variants 'weave;repack'] [--trace FILE] [--no-optimum] [--table] [--figure FILE.svg]``.
``FOLDER`` is a folder outside the project; the
results are its ``repack.csv``, one row per (trace, variant, convention), written whole after each.
A run continues where the last one was stopped. ``--table`` prints the file as Markdown and
``--figure`` draws it; neither runs anything.

Traces are generated (``instances.generate.production``, 200 jobs), one per seed, or ``--trace``.
A row has the cost, nodes, moves and SLO attainment of one replay, and

* ``optimum_usd_total``: the least cost of the jobs present, integrated over time. Under
  ``wallclock`` of the *unpaused* trace: no policy with valid plans is cheaper, pauses only make
  stays longer. Under ``work`` along the policy's own trajectory, where sharing stretches stays:
  a policy with another trajectory may be cheaper. Proved moment by moment
  (:func:`planner.optimality_gap`); for groups with one iteration a period, and for variants with
  more rates also against that strict optimum: *not* a gap, since they may be below it;
* ``volume_usd_total``: the volume bound at the variant's own limits.

``--no-optimum`` leaves the former out, which takes long for many jobs at once.

Decision times are in CPU milliseconds per event, arrivals and departures, on whatever machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from instances.generate import production
from instances.hardware import DEFAULT_CLUSTER
from instances.jobs import JobTable
from instances.plan import DURATION_CONVENTIONS, Limits
from instances.trace import read_trace
from planner import optimality_gap
from planner.policies.policy import PolicyOptions
from planner.policies.repack_params import RepackParams
from planner.policies.replay_result import Convention
from planner.replay.interval import interval
from planner.replay.replaying import ReplayResult, replay

SEEDS = (0, 1, 2, 3, 4)
FILE = "repack.csv"
KEYS = ["trace", "variant", "convention"]
#: Seconds for a moment whose least cost is not proved sooner.
SECONDS = 20.0

STRICT = Limits()
RATES = Limits(max_rate=4)
#: Moves allowed per job that has come; the default of ``repack`` is 2.
BUDGETS = (0.0, 0.25, 0.5, 1.0)
CURVE = "at most "
UNLIMITED = "repack, any number of moves"


def variants() -> dict[str, tuple[str, Limits, RepackParams]]:
    """Return policy, limits and parameters by the name of a variant."""
    plain = RepackParams()
    out = {
        "solo": ("solo", STRICT, plain),
        "colocated": ("colocated", STRICT, plain),
        "weave": ("weave", STRICT, plain),
        "repack": ("repack", STRICT, plain),
        UNLIMITED: ("repack", STRICT, replace(plain, moves_per_job=inf)),
        "repack, break-even": ("repack", STRICT, replace(plain, rule="break-even")),
        "repack, remaining known": ("repack", STRICT, replace(plain, oracle="remaining")),
        "weave, 4 rates": ("weave", RATES, plain),
        "repack, 4 rates": ("repack", RATES, plain),
    }
    for most in BUDGETS:
        out[f"{CURVE}{most:g} moves a job"] = (
            "repack",
            STRICT,
            replace(plain, moves_per_job=most),
        )
    return out


def optimum_usd(
    jobs: JobTable, policy: str, options: PolicyOptions, convention: Convention
) -> float:
    """Return the least cost of the jobs present, integrated over time, groups strict, $."""
    found = optimality_gap(
        jobs,
        policy=policy,
        limits=STRICT,
        repack=options.repack,
        durations=convention,
        time_limit_per_snapshot_s=SECONDS,
    )
    return found.totals.bound_usd


def row_of(result: ReplayResult, optimum: float) -> dict[str, Any]:
    """Return the figures of one replay."""
    decisions = np.array(result.decision_s) * 1e3 if result.decision_s else np.zeros(1)
    return {
        "usd_per_hour": result.usd_per_hour_mean,
        "usd_total": result.usd_total,
        "horizon_h": result.horizon_h,
        "optimum_usd_total": optimum,
        "volume_usd_total": result.bound_usd_total,
        "peak_rollout": result.peak_nodes["rollout"],
        "peak_train": result.peak_nodes["train"],
        "p95_rollout": result.p95_nodes["rollout"],
        "p95_train": result.p95_nodes["train"],
        "moves_per_job": result.moves / len(result.records),
        "paused_h": result.paused_h,
        "stay_h": sum(record.elapsed_s for record in result.records) / 3600,
        "slo_attainment": result.slo_attainment,
        "decision_p50_ms": float(np.median(decisions)),
        "decision_p99_ms": float(np.percentile(decisions, 99)),
        "decision_max_ms": float(decisions.max()),
    }


def run(path: Path, traces: dict[str, JobTable], names: list[str], *, optimum: bool) -> None:
    """Replay what is not on file."""
    frame = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=KEYS)
    done = set(frame[KEYS].itertuples(index=False, name=None))
    known = variants()
    strict: dict[tuple[str, str], float] = {}
    for trace, jobs in traces.items():
        for name in names:
            policy, limits, params = known[name]
            for convention in DURATION_CONVENTIONS:
                if (trace, name, convention) in done:
                    continue
                if convention == "work" and name.startswith(CURVE):
                    continue
                options = PolicyOptions(
                    cluster=DEFAULT_CLUSTER,
                    limits=limits,
                    repack=params,
                    clock=time.process_time,
                )
                result = replay(jobs, policy, options, convention=convention)
                # wallclock: one optimum for all policies; work: one per trajectory
                valid = policy != "colocated" and (convention == "wallclock" or limits == STRICT)
                key = (trace, convention) if convention == "wallclock" else (trace, name)
                if valid and optimum and key not in strict:
                    own = policy if convention == "work" else "solo"
                    strict[key] = optimum_usd(jobs, own, options, convention)
                row = dict(zip(KEYS, (trace, name, convention), strict=True))
                row |= row_of(result, strict.get(key, np.nan) if valid else np.nan)
                frame = pd.concat([frame, pd.DataFrame([row])], ignore_index=True)
                frame.to_csv(path.with_suffix(".part"), index=False)
                path.with_suffix(".part").replace(path)
                ratio = row["usd_total"] / row["optimum_usd_total"]
                print(
                    f"{trace}, {name}, {convention}: ${row['usd_per_hour']:.1f}/h, ratio "
                    f"{ratio:.4f}, {row['moves_per_job']:.2f} moves a job, "
                    f"{row['decision_p50_ms']:.0f} ms",
                    file=sys.stderr,
                )


def spread(values: pd.Series, digits: int) -> str:
    """Return a mean over traces with half its 95 % interval."""
    found = interval(values.to_numpy())
    if found.high is None or found.high == found.mean:
        return f"{found.mean:.{digits}f}"
    return f"{found.mean:.{digits}f} ± {found.high - found.mean:.{digits}f}"


def table(frame: pd.DataFrame, convention: str) -> str:
    """Return the rows of one convention as Markdown: means over traces with 95 % intervals."""
    head = (
        "policy", "$/h", "over the optimum", "most", "over its volume bound", "peak H20",
        "peak H800", "moves a job", "hours lost, %", "SLO met, %",
    )  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    frame = frame[frame["convention"] == convention]
    gpus = DEFAULT_CLUSTER.rollout.gpus_per_node, DEFAULT_CLUSTER.train.gpus_per_node
    for name in dict.fromkeys(frame["variant"]):
        rows = frame[frame["variant"] == name]
        ratio = rows["usd_total"] / rows["optimum_usd_total"]
        known = bool(ratio.notna().all())
        volume = rows["usd_total"] / rows["volume_usd_total"]
        lines.append(
            f"| {name} | {spread(rows['usd_per_hour'], 1)} | "
            f"{spread(ratio, 3) if known else ''} | {f'{ratio.max():.3f}' if known else ''} | "
            f"{spread(volume, 2) if name != 'colocated' else ''} | "
            f"{spread(rows['peak_rollout'] * gpus[0], 0)} | "
            f"{spread(rows['peak_train'] * gpus[1], 0)} | {rows['moves_per_job'].mean():.2f} | "
            f"{100 * (rows['paused_h'] / rows['stay_h']).mean():.2f} | "
            f"{100 * rows['slo_attainment'].min():.1f} |"
        )
    return "\n".join(lines)


def summary(frame: pd.DataFrame) -> str:
    """Return both conventions side by side as Markdown: policies, the optimum and the bound."""
    head = ["policy"]
    for convention in ("wallclock", "work"):
        head += [f"{convention}, $/h", "over the optimum", "peak H20 + H800 GPUs", "moves a job"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    gpus = DEFAULT_CLUSTER.rollout.gpus_per_node, DEFAULT_CLUSTER.train.gpus_per_node
    names = [name for name in variants() if name in set(frame["variant"])]
    for name in names:
        if name.startswith(CURVE):
            continue
        cells = [name]
        for convention in ("wallclock", "work"):
            rows = frame[(frame["variant"] == name) & (frame["convention"] == convention)]
            if not len(rows):
                cells += [""] * 4
                continue
            ratio = rows["usd_total"] / rows["optimum_usd_total"]
            known = bool(ratio.notna().all())
            cells += [
                spread(rows["usd_per_hour"], 1),
                spread(ratio, 3) if known else "",
                f"{spread(rows['peak_rollout'] * gpus[0], 0)} + "
                f"{spread(rows['peak_train'] * gpus[1], 0)}",
                f"{rows['moves_per_job'].mean():.2f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    for name, column in (
        ("snapshot optimum", "optimum_usd_total"),
        ("volume bound", "volume_usd_total"),
    ):
        rows = frame[(frame["variant"] == "weave") & (frame["convention"] == "wallclock")]
        ratio = rows[column] / rows["optimum_usd_total"]
        usd = spread(rows[column] / rows["horizon_h"], 1)
        lines.append(f"| {name} | {usd} | {spread(ratio, 3)} | | | | | | |")
    return "\n".join(lines)


def figure(frame: pd.DataFrame, path: Path) -> None:
    """Draw cost over the optimum against moves made, mean and range over traces."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "repack"
    from matplotlib import pyplot as plt

    frame = frame[frame["convention"] == "wallclock"].copy()
    frame["over"] = 100 * (frame["usd_total"] / frame["optimum_usd_total"] - 1)
    grouped = frame.groupby("variant")
    means = grouped[["over", "moves_per_job"]].mean()
    low, high = grouped["over"].min(), grouped["over"].max()
    curve = [f"{CURVE}{most:g} moves a job" for most in BUDGETS]
    curve = [name for name in [*curve, "repack", UNLIMITED] if name in means.index]
    figure, axes = plt.subplots(figsize=(7.2, 4.0), layout="constrained")
    x = means.loc[curve, "moves_per_job"]
    axes.fill_between(x, low[curve], high[curve], alpha=0.2, linewidth=0)
    axes.plot(
        x,
        means.loc[curve, "over"],
        marker="o",
        label="repack: at most 0, ¼, ½, 1, 2, any moves a job",
    )
    for name, marker in (("repack, break-even", "s"), ("repack, remaining known", "^")):
        if name in means.index:
            axes.plot(*means.loc[name, ["moves_per_job", "over"]], marker, label=name)
    axes.axhline(means.loc["weave", "over"], color="0.4", linestyle="--", label="weave")
    axes.set_xlabel("moves made per job")
    axes.set_ylabel("cost over the snapshot optimum, %")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="center right")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run, print or draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--variants", default=";".join(variants()))
    parser.add_argument("--no-optimum", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    path = given.folder / FILE
    if given.table or given.figure:
        frame = pd.read_csv(path)
        if given.table:
            print(f"{summary(frame)}\n")
            for convention in ("wallclock", "work"):
                print(f"{convention}\n\n{table(frame, convention)}\n")
        if given.figure:
            figure(frame, given.figure)
        return
    if given.trace:
        traces = {given.trace.stem: read_trace(given.trace).jobs}
    else:
        seeds = map(int, given.seeds.split(","))
        traces = {f"production-200, seed {seed}": production(seed=seed) for seed in seeds}
    run(path, traces, given.variants.split(";"), optimum=not given.no_optimum)


if __name__ == "__main__":
    main()
