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
# # Fleet sizing
#
# How many H20 and H800 nodes should this cluster **own**, how many should it **rent**, and how sure
# can one be of that from a single trace? Five steps: the demand, own against rent, a fixed fleet
# where nothing can be rented, the price at which sharing stops paying, and drawn futures. The last
# cell is the decision.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from planner import (
    DEFAULT_CLUSTER,
    WaitTarget,
    catalog_path,
    cheapest_fleets,
    default_costs,
    demand_of,
    fleet_uncertainty,
    newsvendor,
    owned_and_rented,
    plan_trace,
    price_crossover,
    read_trace,
)

OKABE_ITO = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]  # apart for most colour-blind readers
plt.rcParams["axes.prop_cycle"] = plt.cycler(color=OKABE_ITO)
plt.rcParams.update({"figure.figsize": (9, 3.6), "figure.constrained_layout.use": True})
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True})
plt.rcParams.update({"grid.alpha": 0.3, "legend.edgecolor": "none", "legend.framealpha": 0.9})
pd.options.display.precision = 2
pd.options.display.width = 120
POOLS = {"rollout": "H20", "train": "H800"}
LOOKS = {"weave": ("C0", "-"), "solo": ("C1", "--"), "colocated": ("C2", ":")}  # all along

# %% [markdown]
# ## 1. The demand
#
# A fleet is sized for what a *policy* needs over time, so we replay the trace first (synthetic: 200
# jobs drawn to published marginals) and count the nodes held. All of this notebook is by **work**:
# each job does its iterations.

# %%
trace = read_trace(catalog_path("production-200"))
report = plan_trace(trace, baselines=["solo", "colocated"])
demands = {name: demand_of(report.result(name)) for name in ("weave", "solo", "colocated")}
pd.DataFrame(
    {
        (name, gpu): {
            "mean": demand.mean(pool),
            "p50": demand.quantile(pool, 0.5),
            "p95": demand.quantile(pool, 0.95),
            "peak": demand.peak(pool),
        }
        for name, demand in demands.items()
        for pool, gpu in POOLS.items()
    }
).T

# %% [markdown]
# The *duration curve* sorts the hours: at x % of the time at least so many nodes are needed. A flat
# curve is worth owning, a spike at its left end is worth renting. On the right two lines coincide:
# `colocated` and `solo` hold the same H800 nodes.

# %%
assert demands["solo"].peak("train") == demands["colocated"].peak("train")
assert demands["solo"].node_hours("train") == demands["colocated"].node_hours("train")
fig, panels = plt.subplots(1, 2)
for axes, (pool, gpu) in zip(panels, POOLS.items(), strict=True):
    for name, demand in demands.items():
        color, style = LOOKS[name]
        nodes, hours = demand.duration_curve(pool)
        share = [100, *100 * hours / demand.horizon_h, 0]
        height = [0, *nodes, demand.peak(pool)]
        axes.step(share, height, style, color=color, where="post", label=name)
    axes.set(xlabel="% of the time", ylabel=f"{gpu} nodes needed", xlim=(0, 100))
panels[0].legend()
plt.show()

# %% [markdown]
# ## 2. Own or rent
#
# An owned node costs the same used or idle; a rented one costs more, but only while it is needed.
# The default prices are quotes and guesses, labelled as such: put in your own with `read_costs`.

# %%
costs = default_costs(DEFAULT_CLUSTER)
pd.DataFrame(
    {
        gpu: {
            "own, $/h of a node": costs.pool(pool).own_usd_per_node_hour,
            "rent, $/h of a node": costs.pool(pool).rent_usd_per_node_hour,
            "price of a node, $": costs.pool(pool).usd_per_node,
        }
        for pool, gpu in POOLS.items()
    }
)

# %% [markdown]
# One more owned node pays if it is needed for more than own / rent of the time. So the best number
# is a quantile of the demand: the newsvendor's answer.

# %%
weave = demands["weave"]
answer = {
    pool: newsvendor(
        weave,
        pool,
        own_usd=costs.pool(pool).own_usd_per_node_hour,
        rent_usd=costs.pool(pool).rent_usd_per_node_hour,
    )
    for pool in POOLS
}
pd.DataFrame(
    {
        POOLS[pool]: {
            "own, nodes": found.nodes,
            "critical ratio": found.critical_ratio,
            "share of time above": found.share_above,
            "owned, $/h": found.own_usd_per_hour,
            "rented, $/h": found.rent_usd_per_hour,
        }
        for pool, found in answer.items()
    }
)

# %% [markdown]
# Is that really the least? Draw the cost of every number of nodes owned, computed from the demand
# and nothing else.

# %%
fig, panels = plt.subplots(1, 2)
for axes, (pool, gpu) in zip(panels, POOLS.items(), strict=True):
    own, rent = costs.pool(pool).own_usd_per_node_hour, costs.pool(pool).rent_usd_per_node_hour
    counts = np.arange(weave.peak(pool) + 1)
    rented = [rent * weave.node_hours_above(pool, n) / weave.horizon_h for n in counts]
    total = own * counts + rented
    assert np.isclose(total.min(), answer[pool].usd_per_hour)
    axes.plot(counts, total, "-", label="in all")
    axes.plot(counts, own * counts, "--", label="owned")
    axes.plot(counts, rented, ":", label="rented")
    axes.plot(answer[pool].nodes, answer[pool].usd_per_hour, "ko", label="newsvendor")
    axes.set(xlabel=f"{gpu} nodes owned", ylabel="$/h", ylim=(0, None))
panels[1].legend(loc="upper right")
plt.show()

# %% [markdown]
# Look how flat the bottom is: being wrong by a node costs little, owning the peak costs much. The
# same split for every policy:

# %%
splits = {name: owned_and_rented(demand, costs) for name, demand in demands.items()}
assert splits["weave"].owned == (answer["rollout"].nodes, answer["train"].nodes)


def money(name):
    """Return what a policy's demand costs, in three ways."""
    split, demand = splits[name], demands[name]
    peak = costs.fleet_usd_per_hour(demand.peak("rollout"), demand.peak("train"))
    return {
        "own H20": split.owned[0],
        "own H800": split.owned[1],
        "own + rent, k$": split.usd_total / 1000,
        "rent all, k$": report.result(name).usd_total / 1000,
        "own the peak, k$": peak * demand.horizon_h / 1000,
    }


pd.DataFrame({name: money(name) for name in demands}).T

# %% [markdown]
# Compare the column of renting with that of owning and renting: `colocated`, which holds H800 nodes
# only, gains on `weave`, because an owned H800 costs less over an owned H20 than a rented one
# does. (`colocated` is flattered here: its iterations are taken to be as long as on both kinds of
# GPU, the default `colocated_factor` of 1, which is an assumption.)

# %%
ratio_own = costs.train.own_usd_per_node_hour / costs.rollout.own_usd_per_node_hour
ratio_rent = costs.train.rent_usd_per_node_hour / costs.rollout.rent_usd_per_node_hour
assert ratio_own < ratio_rent
owned_gap = splits["colocated"].usd_total / splits["weave"].usd_total
assert owned_gap < report.saving("colocated", "work")  # which is the gap where all is rented
print(f"An H800 node over an H20 node: {ratio_own:.2f} x owned, {ratio_rent:.2f} x rented")

# %% [markdown]
# ## 3. Nothing to rent
#
# On an own cluster a job that does not fit waits. Target: 95 % of the jobs start within 30 minutes.
# The search returns the cheapest fleet and the evidence that no cheaper one will do. Patience is
# searched for at the same time.


# %%
def own_price(fleet):
    """Return what a fleet costs when all of it is owned, $/h."""
    return costs.fleet_usd_per_hour(fleet.rollout_nodes, fleet.train_nodes)


target = WaitTarget(wait_s=1800.0, share=0.95)
waits_s = (0.0, target.wait_s, 7200.0, 14400.0, 28800.0)
answers = cheapest_fleets(trace.jobs, targets_s=waits_s, share=target.share, price=own_price)
assert len(answers) == len(waits_s)
fixed = answers[waits_s.index(target.wait_s)]
assert fixed.box.cheaper_unexamined == 0  # every cheaper fleet is excluded or was replayed
assert fixed.result.wait_quantile(target.share) <= target.wait_s
print(f"{fixed.fleet}: ${fixed.usd_per_hour:,.2f}/h")
pd.Series(
    {
        "in the box": fixed.box.points,
        "cheaper than the answer": fixed.box.cheaper,
        "cheaper, neither excluded by a bound nor replayed": fixed.box.cheaper_unexamined,
    },
    name="fleets",
)

# %% [markdown]
# What is patience worth? Beside the target, the cheapest fleets for no wait, 2, 4 and 8 hours.
# Between two points the least lies on the line or below it.

# %%
fig, axes = plt.subplots()
hours = [answer.target.wait_s / 3600 for answer in answers]
usd = [answer.usd_per_hour for answer in answers]
axes.step(hours, usd, "o-", where="post")
for answer, x, y in zip(answers, hours, usd, strict=True):
    text = f"{answer.fleet.rollout_nodes} + {answer.fleet.train_nodes}"
    axes.annotate(text, (x, y), xytext=(5, 5), textcoords="offset points")
axes.axvline(target.wait_s / 3600, color="black", linewidth=0.8, linestyle=":", label="target")
axes.set(xlabel="95 % of the jobs may wait so long, h", ylabel="owned fleet (H20 + H800), $/h")
axes.margins(y=0.15)
axes.legend()
plt.show()

# %% [markdown]
# Look how much of the price the first half hour saves, and how much the next hours.
#
# ## 4. When does sharing stop paying?
#
# `colocated` needs no H20 at all. If H800 were nearly as cheap, why two pools? Everything rented,
# the price of an H800 varied, jobs placed anew at each price:

# %%
prices = price_crossover(trace.jobs, ratios=tuple(1 + 0.5 * i for i in range(11)), tolerance=0.01)
fig, axes = plt.subplots()
ratios = [point.ratio for point in prices.points]
for i, name in enumerate(prices.policies):
    color, style = LOOKS[name]
    usd = [point.usd_total[i] / 1000 for point in prices.points]
    axes.plot(ratios, usd, style, color=color, label=name)
for crossover in prices.crossovers:
    axes.axvline(crossover.ratio, color="black", linewidth=0.8)
axes.axvline(prices.base_ratio, color="grey", linewidth=3, alpha=0.4, label="rents now")
axes.set(xlabel="price of an H800 over that of an H20", ylabel="k$ in all", ylim=(0, None))
axes.legend()
plt.show()

# %%
pd.DataFrame(prices.spans, columns=["cheapest", "from ratio", "to ratio"])

# %% [markdown]
# Thin black is where the cheapest policy changes, grey are today's rents. The distance between
# the two is how far rents may move before the answer does. Then find the ratio of *owning* from
# step 2 on the axis: it need not be on the same side.
#
# ## 5. One trace is one sample
#
# Next month will not be this trace. We draw others like it: days of arrivals with replacement, each
# replayed and sized with its future *known*. (A bootstrap sees no trend and no customer who is not
# in the trace.)

# %%
futures = fleet_uncertainty(trace.jobs, costs=costs, growths=(1.0, 1.5), replications=24, seed=0)
now, grown = futures.at(1.0), futures.at(1.5)
pd.DataFrame(
    {
        (f"arrivals x {item.growth:g}", gpu): {
            "mean": item.pool(pool).owned.mean,
            "p5": item.pool(pool).owned.p5,
            "p95": item.pool(pool).owned.p95,
            "own for all futures": item.value.owned[i],
        }
        for item in (now, grown)
        for i, (pool, gpu) in enumerate(POOLS.items())
    }
).T.rename_axis(["nodes to own, future known", ""], axis=0)

# %%
fig, panels = plt.subplots(1, 2)
for i, (axes, (pool, gpu)) in enumerate(zip(panels, POOLS.items(), strict=True)):
    values = [item.pool(pool).owned.values for item in (now, grown)]
    axes.boxplot(values, whis=(5, 95), widths=0.5, medianprops={"color": "C0"})
    chosen = [item.value.owned[i] for item in (now, grown)]
    axes.plot((1, 2), chosen, "D", color="C1", label="own, future unknown")
    axes.axhline(splits["weave"].owned[i], color="black", linestyle=":", label="by the trace")
    axes.set_xticks((1, 2), ("x 1", "x 1.5"))
    axes.set(xlabel="arrivals", ylabel=f"{gpu} nodes to own", ylim=(0, None))
    axes.yaxis.get_major_locator().set_params(integer=True)
panels[1].legend(loc="lower right")
plt.show()

# %% [markdown]
# A box holds the middle half of the futures, whiskers reach from 5 % to 95 %, circles are the
# futures beyond. But nodes are not what we pay: money is. *Regret* is what a choice costs above
# the best one could have done knowing the future.

# %%
value = now.value
foresight = np.mean(value.foresight_usd_per_hour)
regrets = pd.Series(
    {
        "best purchase for all futures": value.usd_per_hour - foresight,
        "what the trace says": futures.trusting_trace.usd_per_hour - foresight,
        "mean number of nodes": value.mean_nodes.usd_per_hour - foresight,
    },
    name="regret, $/h",
)
assert regrets.iloc[0] == regrets.min()
pd.DataFrame({"regret, $/h": regrets, "% of the cost": 100 * regrets / foresight})

# %% [markdown]
# That is the mean. Some futures regret more; again from their demand and nothing else:


# %%
def paid(demand, owned):
    """Return what a demand costs with so many nodes owned and the rest rented, $/h."""
    return sum(
        costs.pool(pool).own_usd_per_node_hour * n
        + costs.pool(pool).rent_usd_per_node_hour
        * demand.node_hours_above(pool, n)
        / demand.horizon_h
        for n, pool in zip(owned, POOLS, strict=True)
    )


drawn = futures.sample.by_growth[futures.sample.growths.index(1.0)]
spent = np.array([paid(future.demand, value.owned) for future in drawn])
assert np.isclose(spent.mean(), value.usd_per_hour)
fig, axes = plt.subplots()
ordered = np.sort(spent - value.foresight_usd_per_hour)
axes.step(ordered, 100 * np.arange(1, len(ordered) + 1) / len(ordered), where="post")
axes.axvline(ordered.mean(), color="black", linestyle=":", label="mean")
axes.set(xlabel="regret of the best purchase, $/h", ylabel="% of the futures up to that regret")
axes.legend()
plt.show()

# %% [markdown]
# ## The decision
#
# Nothing below is typed: every number is from a cell above.

# %%
own, traced = value.owned, splits["weave"].owned
renting = report.result("weave").usd_total
saved = 1 - splits["weave"].usd_total / renting
change = abs(owned_gap - 1), "more" if owned_gap > 1 else "less"
buying = sum(n * costs.pool(pool).usd_per_node for n, pool in zip(own, POOLS, strict=True))
span = next(span for span in prices.spans if span[1] <= prices.base_ratio <= span[2])
assert value.usd_per_hour <= futures.trusting_trace.usd_per_hour + 1e-9
print(f"""\
Own {own[0]} H20 and {own[1]} H800 nodes and rent what is missing
(the trace alone says {traced[0]} + {traced[1]}).

Price      ${buying / 1e6:.2f} M to buy, at the default prices: dealers' quotes, see step 2.
Why        On this trace, owning and renting costs {saved:.0%} less than renting all.
How sure   Over {futures.replications} drawn futures ${value.usd_per_hour:,.0f}/h on average, \
{regrets.iloc[0] / foresight:.1%} above knowing the future;
           trusting the trace would cost ${futures.regret_of_trace:,.2f}/h more.
Unless     rents change: {span[0]} is the cheapest to rent while an H800 costs {span[1]:.2f} to \
{span[2]:.2f} x an H20
           (looked at up to {ratios[-1]:g} x); now it is {prices.base_ratio:.2f} x.
Beware     Owned, that ratio is {ratio_own:.2f} x: colocated, owned and rented the same way, would
           cost {change[0]:.1%} {change[1]}, if its iterations were really no longer than on both
           kinds of GPU. Measure that first.
If nothing can be rented: {fixed.fleet}, ${fixed.usd_per_hour:,.0f}/h owned,
           for {target.share:.0%} of the jobs to start within {target.wait_s / 60:.0f} min.
           That fleet is for this trace; another one may need more.""")
