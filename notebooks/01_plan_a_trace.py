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
# # Plan a trace
#
# An RL post-training job repeats three phases: **rollout** on cheap H20 GPUs, **train** on dear
# H800 GPUs, **sync** of the new weights. While one phase runs, the other pool idles. Jobs that
# take turns on the same nodes fill each other's idle time.
#
# Question of this notebook: *for one list of jobs, what does sharing save, is the plan valid, and
# how far is it from the least possible cost?*

# %%
import dataclasses
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from planner import (
    DEFAULT_CLUSTER,
    catalog_path,
    check_plan,
    gantt_figure,
    optimality_gap,
    plan_trace,
    read_plan,
    read_trace,
    write_plan_json,
)

OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]  # apart for most colour-blind readers
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=OKABE_ITO)
plt.rcParams.update({"figure.figsize": (9, 3.6), "figure.constrained_layout.use": True})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
plt.rcParams.update({"grid.alpha": 0.3, "legend.edgecolor": "none", "legend.framealpha": 0.9})
pd.options.display.precision = 2
pd.options.display.width = 120

# %% [markdown]
# ## The trace
#
# One row a job. This one ships with the planner and is **synthetic**: 200 jobs drawn to the
# published marginals of a production trace. Look at `slo`, the slowdown a job tolerates: what is
# above 1 is the room that sharing has.

# %%
trace = read_trace(catalog_path("production-200"))
jobs = trace.jobs
columns = ("arrival_s", "duration_s", "slo", "rollout_s", "train_s", "sync_s", "train_state_gb")
pd.DataFrame({name: getattr(jobs, name) for name in columns}, index=jobs.job_id).describe()

# %% [markdown]
# Not all of that was given: a trace may name the model size alone, and the planner fills in the
# rest. It never hides which columns it estimated.

# %%
pd.Series({name: int(rows.sum()) for name, rows in jobs.estimated.items()}, name="estimated cells")

# %% [markdown]
# ## The plan
#
# One call replays the trace under the placer (`weave`) and two baselines: `solo` gives every job
# nodes of its own, `colocated` runs both phases on H800 nodes alone.

# %%
report = plan_trace(trace, baselines=["solo", "colocated"])


def summary(result):
    """Return the figures of one replay that a planner asks for first."""
    return {
        "k$ in all": result.usd_total / 1000,
        "$/h": result.usd_per_hour_mean,
        "peak H20 nodes": result.peak_nodes["rollout"],
        "peak H800 nodes": result.peak_nodes["train"],
        "SLO met": result.slo_attainment,
        "idle H20": result.idle_fraction["rollout"],
        "idle H800": result.idle_fraction["train"],
    }


pd.DataFrame({(when, name): summary(result) for when, name, result in report}).T

# %% [markdown]
# Two conventions, never mixed. By **work** each job does its iterations, so sharing stretches its
# stay; by **wallclock** it stays as long as alone. Compare the totals within a block, and the idle
# shares: what sharing saves is idle time that nobody pays for any more. (NaN: `colocated` holds no
# H20 node that could idle.)

# %%
weave, solo = report.result("weave"), report.result("solo")
pd.DataFrame(
    {
        when: {base: report.saving(base, when) for base in report.baselines}
        for when in ("work", "wallclock")
    }
).rename_axis("cost of ... over weave's", axis=0)

# %% [markdown]
# ## Cost over time
#
# The same trace, hour by hour. Watch the gap between the lines: sharing pays most when many jobs
# are present, and nothing when one is alone.


# %%
def usd_per_hour(result):
    """Return the price of the nodes held at every moment of a replay, $/h."""
    line = result.timeline
    return result.cluster.usd_per_hour(line.rollout_nodes, line.train_nodes)


fig, axes = plt.subplots()
for style, result in zip(("-", "--", ":"), report.results["work"].values(), strict=True):
    hours = (result.timeline.time_s - result.timeline.time_s[0]) / 3600
    axes.step(hours, usd_per_hour(result), style, where="post", label=result.policy)
axes.set(xlabel="time, h", ylabel="price of the nodes held, $/h", title="By work", ylim=(0, None))
axes.legend()
plt.show()

# %% [markdown]
# ## One group
#
# The jobs of a group share its nodes, often only the dear one. Here is the first group of the plan
# that has as many jobs as any, over two periods. Follow one colour: rollout, then train, then sync,
# then the next rollout. Hatched is the warm start that a phase pays on a shared node.

# %%
plan = weave.plan
group = max(plan.groups, key=lambda version: len(version.placements))
gantt_figure(group, plan.jobs)

# %% [markdown]
# ## Is the plan valid?
#
# The checker shares no code with the placer. It verifies every rule on every interval, and
# re-derives the price. We write the plan to a file and check what is read back.

# %%
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "plan.json"
    write_plan_json(plan, path)
    again = read_plan(path)
found = check_plan(again)
assert found.ok
assert abs(found.usd_total_recomputed - weave.usd_total) < 0.01
print(f"{found.n_groups} group versions, {len(found.violations)} violations")

# %% [markdown]
# A check that cannot fail is worth nothing, so we break the plan: the group drawn above gets a
# period 10 % shorter. Now phases overlap.

# %%
hasty = dataclasses.replace(group, period_s=0.9 * group.period_s)
broken = dataclasses.replace(
    plan, groups=tuple(hasty if version is group else version for version in plan.groups)
)
caught = check_plan(broken)
assert not caught.ok
print(caught.counts)
print(caught.violations[0].message)

# %% [markdown]
# ## How far from the least cost?
#
# A plan that is valid may still be dear. At every moment of the wallclock replay the planner also
# solves the problem *exactly*: the least-cost valid plan of the jobs present, with a proof.

# %%
gap = optimality_gap(trace)
totals = gap.totals
limits = weave.plan.limits
print(
    f"{gap.n_proved} of {len(gap.rows)} moments proved optimal, with groups of at most "
    f"{limits.max_group_size} jobs and at most {limits.max_rate} iteration of each a period"
)
pd.Series(
    {
        "cost over bound": totals.ratio,
        "of which: never moving a running job": totals.online_regret,
        "of which: placing one job at a time": totals.heuristic_loss,
        "of which: not proved": totals.unproved_rest,
    },
    name="ratio",
)

# %% [markdown]
# The factors multiply to the first line, which holds against *any* policy whose plans are valid
# under the same limits (with several iterations a period there are cheaper ones).
# The largest factor says where to look for money: what is lost because jobs come and go and nobody
# is moved, or because the placer takes jobs one by one.
#
# By work such a bound does not exist moment by moment: sharing stretches stays, so another policy
# would meet other moments. There the proved floor is what the iterations themselves must hold, each
# phase on its nodes and no idle second. It is weaker, and labelled so everywhere.

# %%
floor = weave.work_bound_usd_total
assert floor <= weave.usd_total
print(
    f"By work: ${weave.usd_total:,.0f}, at least ${floor:,.0f}, so at most "
    f"{weave.usd_total / floor:.2f} x the least"
)

# %% [markdown]
# Back to the wallclock bound, hour by hour:

# %%
fig, axes = plt.subplots()
hours = [row.moment.from_s / 3600 for row in gap.rows]
axes.step(hours, [row.policy_usd for row in gap.rows], "-", where="post", label="weave")
axes.step(hours, [row.held_usd for row in gap.rows], "--", where="post", label="best plan known")
axes.fill_between(
    hours,
    [row.bound_usd for row in gap.rows],
    step="post",
    alpha=0.2,
    color="C2",
    label="proved: nothing is cheaper",
)
axes.set(xlabel="time, h", ylabel="price, $/h", title="By wallclock", ylim=(0, None))
axes.legend()
plt.show()

# %% [markdown]
# ## Change one thing
#
# What if jobs tolerated more, or nodes had more memory? Both limit how many jobs fit into a group.
# Each point below is the whole trace planned anew.


# %%
def saving(slo=None, dram_gb=2000.0):
    """Return solo's cost over weave's by convention: one SLO for all jobs, or another DRAM."""
    cluster = DEFAULT_CLUSTER.replace(
        rollout=dataclasses.replace(DEFAULT_CLUSTER.rollout, host_dram_gb=dram_gb),
        train=dataclasses.replace(DEFAULT_CLUSTER.train, host_dram_gb=dram_gb),
    )
    changed = jobs if slo is None else jobs.replace(slo=0 * jobs.slo + slo)
    made = plan_trace(changed, baselines=["solo"], cluster=cluster)
    return {when: made.saving("solo", when) for when in ("work", "wallclock")}


slos, drams = (1.0, 1.25, 1.5, 1.75, 2.0), (600.0, 1000.0, 1500.0, 2000.0, 3000.0)
by_slo = pd.DataFrame({slo: saving(slo=slo) for slo in slos}).T.rename_axis("SLO of every job")
by_dram = pd.DataFrame({gb: saving(dram_gb=gb) for gb in drams}).T.rename_axis("DRAM, GB a node")

# %%
fig, (left, right) = plt.subplots(1, 2, sharey=True)
for axes, table in ((left, by_slo), (right, by_dram)):
    axes.plot(table.index, table.work, "o-", label="work")
    axes.plot(table.index, table.wallclock, "s--", label="wallclock")
    axes.set(xlabel=table.index.name, ylim=(0.95, None))
left.set(ylabel="cost of solo over weave's")
left.legend()
plt.show()

# %% [markdown]
# On the right, look where the lines turn flat: from there on memory does not bind. On the left,
# watch the two conventions part. A looser SLO lets more jobs share, so an *hour* gets cheaper; but
# shared iterations are longer, so by work jobs *stay* longer, and the whole bill need not fall. The
# last cell says it in words, from the numbers above.

# %%
best = by_slo.work.idxmax()
assert by_slo.wallclock.idxmax() >= best  # fixed stays gain from looser SLOs at least as long
print(
    f"Solo costs {report.saving('solo', 'work'):.2f} x as much as weave by work, "
    f"{report.saving('solo', 'wallclock'):.2f} x by wallclock. With one SLO for all, weave saves "
    f"most by work at {best:g} ({by_slo.work.max():.2f} x); at {slos[-1]:g} it is "
    f"{by_slo.work.iloc[-1]:.2f} x by work and {by_slo.wallclock.iloc[-1]:.2f} x by wallclock. "
    f"With {drams[0]:,.0f} GB of DRAM {by_dram.work.iloc[0]:.2f} x is left. Valid plans within the "
    f"same limits can save at most {1 - 1 / gap.ratio:.0%} of weave's wallclock cost."
)
