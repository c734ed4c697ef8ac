# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # An optimality study
#
# *Snapshot problem*: given the jobs present, find groups, pins and a cyclic schedule of least cost
# in $/h. It is strongly NP-hard. This notebook asks
#
# 1. whether methods that share no formulation agree,
# 2. how much the one-by-one placer loses,
# 3. how good the bounds are where optima get hard,
# 4. why loads alone do not decide whether a group is possible (two counterexamples, drawn),
# 5. where each method stops scaling.
#
# All instances are **synthetic**, generated from the seeds given, so every figure can be made
# again.

# %%
import time

import matplotlib.pyplot as plt
import pandas as pd

from planner import (
    POLICIES,
    SNAPSHOT_METHODS,
    Selection,
    catalog_path,
    gantt_figure,
    production,
    read_trace,
    schedule_group,
    snapshot_bounds,
    solve_snapshot,
)

OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]  # apart for most colour-blind readers
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=OKABE_ITO)
plt.rcParams.update({"figure.figsize": (9, 3.6), "figure.constrained_layout.use": True})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
plt.rcParams.update({"grid.alpha": 0.3, "legend.edgecolor": "none", "legend.framealpha": 0.9})
pd.options.display.precision = 3
pd.options.display.width = 120

ALL = Selection.all_jobs()
print("methods :", ", ".join(SNAPSHOT_METHODS))
print("policies:", ", ".join(POLICIES))

# %% [markdown]
# ## 1. Do the methods agree?
#
# `exhaustive` decides every subset and adds them up by dynamic programming; `milp` states
# assignment and cyclic precedence with big-M (HiGHS); `cpsat` packs intervals on a circle;
# `set-partition` lists groups and covers the jobs; `column-generation` proves from below;
# `local-search` improves a plan. Every plan returned has passed the independent checker.
#
# `snapshot(n, seed)` is our instance: n jobs that are all present at once.


# %%
def snapshot(n, seed, **options):
    """Return n jobs that are all present at once, drawn with a seed."""
    return production(n_jobs=n, seed=seed, concurrent=True, **options)


def solved(jobs, method, time_limit_s=60.0):
    """Return one row: what a method found for these jobs, and in how long."""
    report = solve_snapshot(
        jobs, select=ALL, method=method, time_limit_s=time_limit_s, clock=time.process_time
    )
    return {
        "method": method,
        "jobs": len(jobs.job_id),
        "$/h": report.usd_per_hour,
        "bound $/h": report.bound_usd_per_hour,
        "ratio": report.ratio,
        "placer $/h": report.placer_usd_per_hour,
        "solo $/h": report.solo_usd_per_hour,
        "ended": report.result.termination.value,
        "CPU s": report.seconds,
    }


METHODS = [name for name in SNAPSHOT_METHODS if name != "auto"]
table = pd.DataFrame(
    {"seed": seed, **solved(snapshot(n, seed), method)}
    for n, seed in ((6, 0), (6, 1), (8, 0), (8, 1))
    for method in METHODS
)
table[table.jobs == 8].set_index(["seed", "method"]).drop(columns=["jobs", "solo $/h"])

# %% [markdown]
# Look at the column `$/h`: within one seed it should hold one number. We do not trust our eyes.
# Whatever is proved optimal must be equal, and nothing may be below it.

# %%
for (n, seed), rows in table.groupby(["jobs", "seed"]):
    least = rows[rows.ended == "optimal"]["$/h"]
    assert least.max() - least.min() < 1e-6, (n, seed)
    assert (rows["$/h"] >= least.min() - 1e-6).all(), (n, seed)
    assert (rows["bound $/h"] <= least.min() + 1e-6).all(), (n, seed)
proved = table.groupby("method").ended.apply(lambda ended: (ended == "optimal").mean())
proved.rename("share of instances proved optimal")

# %% [markdown]
# ## 2. What does the placer lose?
#
# The placer sees one job at a time, in order of arrival, and never regrets. Its cost over the
# optimum, on many small snapshots:

# %%
ratios = pd.DataFrame(
    {"jobs": n, "seed": seed, "ratio": row["placer $/h"] / row["$/h"]}
    for n in (6, 12, 24)
    for seed in range(40)
    for row in [solved(snapshot(n, seed), "set-partition")]
)
ratios.groupby("jobs").ratio.describe()[["count", "min", "50%", "mean", "max"]]

# %%
fig, axes = plt.subplots()
for style, (n, group) in zip(("-", "--", ":"), ratios.groupby("jobs"), strict=True):
    ordered = [1.0, *group.ratio.sort_values()]
    share = [100 * i / len(group) for i in range(len(ordered))]
    axes.step(ordered, share, style, where="post", label=f"{n} jobs")
axes.set(xlabel="cost of the placer over the optimum", ylabel="% of snapshots up to that ratio")
axes.legend()
plt.show()

# %% [markdown]
# Read a line from the left: how high it rises at 1 is the share of snapshots in which the placer
# is optimal. Lines further right lose more. With few jobs there is little to get wrong.

# %%
exact = ratios.assign(optimal=ratios.ratio < 1 + 1e-6).groupby("jobs").optimal.mean()
print(
    "The placer is optimal in "
    + ", ".join(f"{share:.0%} of the snapshots of {n} jobs" for n, share in exact.items())
    + f"; at worst it costs {ratios.ratio.max():.2f} x the least."
)

# %% [markdown]
# ## 3. How good are the bounds?
#
# Where the optimum is out of reach, a bound has to say how far a plan may be from it. Three, each
# built on the one before: *volume* adds up time and memory; *pool decomposition* packs each pool
# exactly as bins, by column generation; the *group LP* couples the two pools again.

# %%
SIZES = (5, 10, 15, 20, 30, 40)
rows = []
for n in SIZES:
    for seed in range(4):
        jobs = snapshot(n, seed)
        best = solved(jobs, "set-partition")
        assert best["ended"] == "optimal"
        for bound in snapshot_bounds(jobs, select=ALL, clock=time.process_time):
            assert bound.usd_per_hour <= best["$/h"] + 1e-6  # a bound above it would be a fault
            share = bound.usd_per_hour / best["$/h"]
            rows.append({"jobs": n, "bound": bound.method, "share": share, "CPU s": bound.seconds})
bounds = pd.DataFrame(rows)
bounds.pivot_table(index="jobs", columns="bound", values="share", sort=False)

# %% [markdown]
# Each number is the bound over the optimum, averaged over seeds: 1 is perfect.

# %%
fig, axes = plt.subplots()
for marker, (name, group) in zip("osv", bounds.groupby("bound", sort=False), strict=True):
    by_size = group.groupby("jobs").share
    (line,) = axes.plot(by_size.mean(), marker + "-", label=name)
    axes.fill_between(SIZES, by_size.min(), by_size.max(), alpha=0.2, color=line.get_color())
axes.set(xlabel="jobs present", ylabel="bound over optimum", ylim=(0, 1.05))
axes.legend(loc="lower right")
plt.show()

# %% [markdown]
# The band is from the worst seed to the best. Volume is cheap and weak, because nodes are whole and
# jobs do not divide. Most of what it misses is in the packing of each pool; what couples the pools
# is the smaller part.

# %%
means = bounds.groupby("bound", sort=False).share.mean()
packing = means["pool-decomposition"] - means["volume"]
assert packing > means["group-lp"] - means["pool-decomposition"]
print(
    "On average "
    + ", ".join(f"{name} proves {share:.1%} of the optimum" for name, share in means.items())
    + "."
)

# %% [markdown]
# ## 4. Loads do not decide: two counterexamples
#
# A group's period is at least the longest chain of one job (rollout, train, sync), and at least the
# load of every node. It is tempting to place jobs by these numbers alone. Both are tiny traces of
# the catalog.
#
# **Sync.** Three jobs, one node of each kind, r = (5, 5, 1), t = (2, 3, 6), s = (2, 3, 0) s.

# %%
sync = schedule_group(read_trace(catalog_path("tiny-sync-gap")).jobs)
pd.DataFrame(
    {name: getattr(sync.jobs, name) for name in ("rollout_s", "train_s", "sync_s", "deadline_s")},
    index=sync.jobs.job_id,
)

# %% [markdown]
# Chains and loads say 11 s, and 11 s is the deadline of all three. So by loads the group is
# possible. An exact search refuses every period below 11.5 s: it is not.

# %%
assert sync.proved
assert (sync.bound.chain_s, sync.bound.node_s) == (11.0, 11.0)
assert abs(sync.period_s - 11.5) < 1e-6
assert not sync.within_slo
gantt_figure(sync.group, sync.jobs)

# %% [markdown]
# Look at the H20 row: it idles although its load equals the deadline. Each job's next rollout must
# wait for its own sync, and no order of the three lets all of them wait at once.
#
# **Gangs.** Five jobs share one H800 node and three H20 nodes, of which each takes two or three *at
# once*: r = (5, 3, 11, 6, 9), t = (3, 4, 6, 5, 3) s.

# %%
pins = [(0, 1, 2), (1, 2), (0, 1, 2), (0, 1), (0, 2)]
gang = schedule_group(read_trace(catalog_path("tiny-gang")).jobs, rollout_pins=pins)
assert gang.proved
assert gang.bound.node_s == 31.0
assert abs(gang.period_s - 34.0) < 1e-6
gantt_figure(gang.group, gang.jobs)

# %% [markdown]
# No H20 node carries more than 31 s, yet the least period is 34 s. Look at any two jobs: they have
# a node in common, so their rollouts can never overlap and the five add up. That is a third bound,
# the heaviest set of phases whose pins pairwise intersect:

# %%
pd.DataFrame(
    {
        name: {
            "longest chain, s": found.bound.chain_s,
            "heaviest node, s": found.bound.node_s,
            "heaviest clique, s": found.bound.clique_s,
            "least period, s (proved)": found.period_s,
        }
        for name, found in (("sync", sync), ("gangs", gang))
    }
)

# %% [markdown]
# With it the gang example is explained, the sync example is not. So the planner never admits a
# group by bounds: it holds the start of every phase, or there is no group.
#
# ## 5. Where methods stop
#
# Each method gets larger and larger snapshots, and a second or two for each. It is dropped after
# its first failure to prove the optimum. Seconds depend on the machine; how steeply they grow does
# less.

# %%
LIMIT_S = 1.5
LADDERS = {
    "exhaustive": (8, 10, 12, 14, 16),
    "set-partition": (10, 20, 30, 40, 50, 60, 80),
    "milp": (6, 8, 10, 12, 14, 16),
    "cpsat": (8, 12, 16, 20, 25, 30),
}
rows = []
for method, sizes in LADDERS.items():
    for n in sizes:
        rows.append(solved(snapshot(n, seed=3), method, LIMIT_S))
        if rows[-1]["ended"] != "optimal":
            break
scaling = pd.DataFrame(rows)
scaling.groupby("method", sort=False).last()[["jobs", "ended", "ratio", "CPU s"]]

# %%
fig, axes = plt.subplots()
for marker, (method, group) in zip("osv^", scaling.groupby("method", sort=False), strict=True):
    axes.semilogy(group.jobs, group["CPU s"], marker + "-", label=method)
failed = scaling[scaling.ended != "optimal"]
axes.plot(failed.jobs, failed["CPU s"], "kx", markersize=12, label="not proved in time")
axes.axhline(LIMIT_S, color="black", linewidth=0.8, linestyle=":")
axes.set(xlabel="jobs present", ylabel="CPU seconds to the proof (log scale)")
axes.legend()
plt.show()

# %% [markdown]
# A cross is where a method gave up; a line without one ends where it refuses the size
# (`exhaustive`) or where we stopped asking. The dotted line is the limit; solvers hold it by the
# clock on the wall, so on a busy machine a cross lies below it. Beyond the last cross there is no
# proof of optimality in this time, only a plan with a ratio. Gangs are harder still, because a set
# of jobs is no longer decided by sums:

# %%
hard = pd.DataFrame(
    {"nodes per job": kind, **solved(snapshot(20, 3, gangs=gangs), method, LIMIT_S)}
    for kind, gangs in (("one", False), ("1, 2 or 4", True))
    for method in ("set-partition", "cpsat", "local-search")
)
hard.set_index(["nodes per job", "method"])[["$/h", "ratio", "ended", "CPU s"]]

# %% [markdown]
# `auto` chooses by measurements like these: exhaustive for few jobs, then set partitioning, then
# local search under a bound from column generation. Here is what it makes of 60 jobs, and what it
# can and cannot claim:

# %%
large = solved(snapshot(60, 3), "auto", LIMIT_S)
claim = "optimal, proved" if large["ended"] == "optimal" else "at most that far from the least"
print(
    f"{large['jobs']} jobs: ${large['$/h']:,.2f}/h, {large['ratio']:.3f} x the bound ({claim}); "
    f"the placer needs {large['placer $/h'] / large['$/h']:.2f} x as much, every job alone "
    f"{large['solo $/h'] / large['$/h']:.2f} x."
)
