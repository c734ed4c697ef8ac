"""The sentences of ``planner size``: what to own, what it costs, and what the answer rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from instances.hardware import Cluster
from planner.replay.demand import POOLS, Pool
from planner.size.drain import LONG_DRAIN
from planner.size.plan_at import PlanAtRow
from planner.size.what_changes import ChangeRow

if TYPE_CHECKING:
    from instances.plan import Fleet
    from planner.size.economics import OwnRent
    from planner.size.report import DemandRow, SizeReport

__all__ = [
    "assumption_lines",
    "change_words",
    "drain_lines",
    "duration",
    "fleet_lines",
    "gpu_names",
    "loss_line",
    "nodes_words",
    "price_lines",
    "proven_lines",
    "recommendation",
    "signed_percent",
    "usd_per_hour",
    "worth_lines",
]

_HOUR_S: Final = 3600.0
_MINUTE_S: Final = 60.0
#: Changes of less than this share are no change in print.
_FLAT: Final = 5e-4
_FACTORS: Final = {
    "host_dram_tb": "host DRAM per node",
    "slo_scale": "tolerated slack (slo - 1)",
    "max_group_size": "largest group",
    "max_rollout_nodes": "rollout nodes of a group",
    "link_gbps": "link between the clusters",
    "links": "links between the clusters",
    "sync_kind": "weight sync",
    "switch_times": "start of a phase on a shared node",
}


def usd_per_hour(usd: float) -> str:
    """Return a price with its unit, ``$583.04/h``."""
    return f"${usd:,.2f}/h"


def duration(seconds: float) -> str:
    """Return seconds as ``0``, ``45 s``, ``30 min`` or ``2.5 h``."""
    if seconds == 0:
        return "0"
    if seconds < _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.3g} h"


def signed_percent(share: float | None) -> str:
    """Return a change as ``+4.7%``; ``0%`` where it would round to nothing."""
    if share is None:
        return "-"
    return "0%" if abs(share) < _FLAT else f"{100 * share:+.1f}%"


def gpu_names(cluster: Cluster) -> dict[Pool, str]:
    """Return what the nodes of each pool are called: by their GPU, and by pool where it is one."""
    gpus: dict[Pool, str] = {pool: getattr(cluster, pool).gpu.name for pool in POOLS}
    if len(set(gpus.values())) == 1:
        return {pool: f"{gpu} {pool}" for pool, gpu in gpus.items()}
    return gpus


def nodes_words(nodes: tuple[int, int], cluster: Cluster) -> str:
    """Return ``15 H20 nodes (120 GPUs) and 10 H800 nodes (80 GPUs)``; none are not told."""
    parts = []
    for count, (pool, name) in zip(nodes, gpu_names(cluster).items(), strict=True):
        if count == 0 and any(nodes):
            continue
        gpus = count * getattr(cluster, pool).gpus_per_node
        parts.append(f"{count:,} {name} node{'s' * (count != 1)} ({gpus:,} GPUs)")
    return " and ".join(parts)


def _pair(fleet: Fleet) -> tuple[int, int]:
    return fleet.rollout_nodes, fleet.train_nodes


# --- the recommendation -------------------------------------------------------------------------


def recommendation(report: SizeReport) -> Iterator[str]:
    """Yield the answer in a few sentences with their numbers."""
    split, cluster = report.split, report.options.cluster
    yield _own_sentence(split, cluster, report.main.demand.horizon_h)
    yield from drain_lines(report)
    yield from _cheaper(report)
    yield from _bound_by(report)
    yield from _compared(report)
    yield from proven_lines(report)


def drain_lines(report: SizeReport) -> Iterator[str]:
    """Yield a warning where much of the horizon is after the last arrival."""
    drain = report.drain
    if drain is None or drain.share <= LONG_DRAIN:
        return
    before, after = drain.mean_before, drain.mean_after
    text = (
        f"Mind: {drain.hours:,.1f} of the {report.main.demand.horizon_h:,.1f} h "
        f"({100 * drain.share:.0f}%) are after the last arrival, when jobs only leave: "
        f"{after[0]:.1f} + {after[1]:.1f} nodes on average, against {before[0]:.1f} + "
        f"{before[1]:.1f} before."
    )
    if drain.owned is not None:
        text += f" Counted until the last arrival, own {drain.owned[0]} + {drain.owned[1]}."
    yield f"{text} A load that goes on needs a trace whose arrivals go on."


def _others(report: SizeReport, *, cheaper: bool) -> Iterator[DemandRow]:
    """Yield the other policies, those cheaper in all than the main one or the rest."""
    for row in report.demand:
        if row.kind == "policy" and row.convention == report.convention and row is not report.main:
            less = row.split is not None and row.split.usd_total < report.split.usd_total
            if less == cheaper:
                yield row


def _cheaper(report: SizeReport) -> Iterator[str]:
    """Yield who of the other policies would cost less."""
    for row in _others(report, cheaper=True):
        assert row.split is not None  # or it would not be cheaper
        share = 1 - row.split.usd_total / report.split.usd_total
        yield (
            f"Cheaper still, by {100 * share:.1f}% in all: policy {row.name}"
            f"{_outside(report, row)}, {_owned_words(row)}."
        )


def _outside(report: SizeReport, row: DemandRow) -> str:
    """Return in brackets why a policy's plan is not one that was checked."""
    if row.checked:
        return ""
    if row.name != "colocated":
        return " (outside the rules of a valid plan)"
    gpu, factor = report.options.cluster.train.gpu.name, report.options.colocated_factor
    return f" (both phases on {gpu} nodes, iterations taken as {factor:g} x as long as alone)"


def _owned_words(row: DemandRow) -> str:
    assert row.split is not None
    own = row.split.owned
    return (
        f"{own[0]} + {own[1]} nodes owned, {usd_per_hour(row.split.usd_per_hour)} over "
        f"{row.demand.horizon_h:,.1f} h"
    )


def _own_sentence(split: OwnRent, cluster: Cluster, horizon_h: float) -> str:
    rented = (split.rollout.rented_peak, split.train.rented_peak)
    total = usd_per_hour(split.usd_per_hour)
    if not any(split.owned):
        return (
            f"Own nothing: rent {nodes_words(rented, cluster)} at most at once, {total} on average "
            f"over {horizon_h:,.1f} h."
        )
    own = f"Own {nodes_words(split.owned, cluster)}"
    if not any(rented):
        return f"{own} and rent none: {total}."
    return (
        f"{own}, and rent what is missing, at most {rented[0]} + {rented[1]} nodes at once: "
        f"{usd_per_hour(split.own_usd_per_hour)} owned + {usd_per_hour(split.rent_usd_per_hour)} "
        f"rented on average = {total}."
    )


def _bound_by(report: SizeReport) -> Iterator[str]:
    """Yield which limits keep the owned counts from where they would cost least."""
    costs, split = report.costs, report.split
    if split.method == "milp" and costs.capex_budget_usd is not None:
        yield f"The purchase budget of ${costs.capex_budget_usd:,.0f} allows no cheaper choice."
    if len(costs.periods) > 1:
        yield (
            f"That is for today's demand and prices; the {len(costs.periods)} purchase periods of "
            "the cost file are planned in the table of fleets nearly as cheap (part alternatives)."
        )


def _less(usd: float, other: float) -> str:
    """Return ``48.8% less than`` or ``0.1% more than``."""
    if other <= 0 or abs(usd / other - 1) < _FLAT:
        return "as much as"
    share = 1 - usd / other
    return f"{100 * abs(share):.1f}% {'less' if share > 0 else 'more'} than"


def _compared(report: SizeReport) -> Iterator[str]:
    """Yield how that compares: with renting all, owning the peak, and the other policies."""
    main, usd = report.main, report.split.usd_per_hour
    peak = _peak_usd(report, main)
    others = []
    if main.usd_per_hour_mean > 0 and any(report.split.owned):
        rented = usd_per_hour(main.usd_per_hour_mean)
        others.append(
            f"{_less(usd, main.usd_per_hour_mean)} renting every node while it is held ({rented})"
        )
    if peak:
        others.append(f"{_less(usd, peak)} owning the peak ({usd_per_hour(peak)})")
    if others:
        yield f"That is {', and '.join(others)}."
    for row in _others(report, cheaper=False):
        yield _other(report, row)


def _peak_usd(report: SizeReport, row: DemandRow) -> float | None:
    costs = report.costs
    peak = [row.demand.peak(pool) for pool in POOLS]
    if any(n and not costs.pool(pool).can_own for n, pool in zip(peak, POOLS, strict=True)):
        return None
    return costs.fleet_usd_per_hour(peak[0], peak[1])


def _other(report: SizeReport, row: DemandRow) -> str:
    """Return the comparison with another policy: in all, since horizons differ."""
    if row.split is None:
        return f"Policy {row.name}: {row.why_not}"
    words = _less(report.split.usd_total, row.split.usd_total)
    return (
        f"In all it costs {words} policy {row.name}{_outside(report, row)} owned and rented the "
        f"same way: {_owned_words(row)}."
    )


def proven_lines(report: SizeReport) -> Iterator[str]:
    """Yield how far a perfect system could go: by moments where stays are given, else by work."""
    if not report.main.checked:
        return
    if report.convention == "work":
        least = report.work_bound_usd_total
        if least > 0:
            yield (
                f"Proven: no valid plans do the same work for less than ${least:,.0f} in all, "
                f"owned or rented, so this is at most {report.split.usd_total / least:.2f} times "
                "the least."
            )
        return
    for row in report.demand:
        if row.kind == "bound" and row.convention == report.convention and row.split is not None:
            least = row.split.usd_per_hour
            if least > 0:
                yield (
                    "Proven: no policy with valid plans that starts every job on arrival can need "
                    f"less than {usd_per_hour(least)} (volume bound), so this is at most "
                    f"{report.split.usd_per_hour / least:.2f} times the least."
                )


# --- a fixed fleet ------------------------------------------------------------------------------


def fleet_lines(report: SizeReport) -> Iterator[str]:
    """Yield the cheapest fleet for the waiting target, with its evidence."""
    fixed = report.fleet
    if fixed is None:
        return
    answer, cluster = fixed.answer, report.options.cluster
    target = answer.target
    priced = "owned" if fixed.priced_by == "own" else "at rental prices"
    yield (
        f"With nothing to rent, {nodes_words(_pair(answer.fleet), cluster)} let "
        f"{100 * target.share:g}% of the jobs start within {duration(target.wait_s)}: "
        f"{usd_per_hour(answer.usd_per_hour)} {priced}, used or not."
    )
    if fixed.priced_by == "own":
        yield from _beyond_budget(report, answer.fleet)
    box = answer.box
    most = f"{box.most.rollout_nodes} + {box.most.train_nodes}"
    if answer.proved:
        done = box.given_up + box.replayed
        was = "was" if done == 1 else "were"
        dearer = box.points - box.excluded - done
        rest = f", and {dearer:,} cost more" if dearer else ""
        yield (
            f"No cheaper fleet of up to {most} nodes does: of {box.points:,} fleets "
            f"{box.excluded:,} are excluded by a bound, {done:,} {was} replayed{rest}."
        )
    else:
        yield (
            f"Not proved: {box.cheaper_unexamined:,} of {box.cheaper:,} cheaper fleets of up to "
            f"{most} nodes were not looked at."
        )
    if answer.pairs_out_of_order:
        first = answer.first_pairs[0]
        yield (
            f"Waits do not only fall with more nodes: {answer.pairs_out_of_order:,} times a larger "
            f"fleet missed the target where a smaller one met it ({_plus(first.meets)} against "
            f"{_plus(first.misses)})."
        )
    for worth in answer.worth:
        gpu = gpu_names(cluster)[worth.pool]
        other = gpu_names(cluster)["train" if worth.pool == "rollout" else "rollout"]
        if worth.fleet is None:
            yield f"One {gpu} node more: no fewer {other} nodes meet the target with it."
        else:
            yield (
                f"One {gpu} node more saves {worth.saved or 'no'} {other} node"
                f"{'s' * (worth.saved > 1)}: worth {usd_per_hour(worth.worth_usd_per_hour)}, "
                f"costs {usd_per_hour(worth.node_usd_per_hour)}."
            )


def _beyond_budget(report: SizeReport, fleet: Fleet) -> Iterator[str]:
    """Yield by how much a fleet that is owned exceeds the purchase budget."""
    costs = report.costs
    rollout, train, budget = costs.rollout, costs.train, costs.capex_budget_usd
    if budget is None:
        return
    usd = fleet.rollout_nodes * (rollout.capex_usd or 0.0)
    usd += fleet.train_nodes * (train.capex_usd or 0.0)
    if usd > budget:
        yield f"Buying it takes ${usd:,.0f}, more than the purchase budget of ${budget:,.0f}."


def _plus(fleet: Fleet) -> str:
    return f"{fleet.rollout_nodes} + {fleet.train_nodes}"


def loss_line(report: SizeReport) -> Iterator[str]:
    """Yield what it takes to survive the loss of any one node."""
    loss = report.loss
    if loss is None:
        return
    spare, cluster = loss.spare, report.options.cluster
    states = len(loss.report.losses)
    if not any(_pair(spare)):
        text = "That fleet survives the loss of any one node at any moment without a spare one"
    else:
        text = (
            f"To survive the loss of any one node at any moment, own "
            f"{nodes_words(_pair(spare), cluster)} more, {usd_per_hour(loss.spare_usd_per_hour)}"
        )
    counts = {
        how: sum(loss.report.counts(pool)[how] for pool in POOLS)
        for how in ("spare", "few", "group", "all", "search")
    }
    ways = {
        "spare": "by a free node",
        "few": "by re-placing its jobs",
        "group": "its group",
        "all": "all jobs",
        "search": "by search",
    }
    parts = ", ".join(f"{n:,} {ways[how]}" for how, n in counts.items() if n)
    most = loss.report.most_moved
    moved = ""
    if most is not None:
        restart = "restarts" if most.jobs_moved == 1 else "restart"
        moved = f"; at most {most.jobs_moved} of {len(report.trace.jobs):,} jobs {restart} at once"
    yield f"{text} ({states:,} losses, each with a checked plan: {parts}{moved})."
    if any(_pair(spare)) and not loss.proved:
        yield "Fewer spare nodes may do: no plan was found, and that there is none is not proved."


# --- what changes the answer --------------------------------------------------------------------


def change_words(row: ChangeRow | PlanAtRow) -> str:
    """Return one level of one factor in words."""
    if isinstance(row, PlanAtRow):
        return f"planning for rollouts at {row.label} tokens"
    return f"{_FACTORS.get(row.factor, row.factor)}: {row.label}"


def price_lines(report: SizeReport) -> Iterator[str]:
    """Yield who is cheapest at which price ratio, everything rented."""
    found = report.prices
    if found is None:
        return
    cluster = report.options.cluster
    dear, cheap = cluster.train.gpu.name, cluster.rollout.gpu.name
    spans = "; ".join(
        f"{name} at {low:.2f} x"
        if f"{low:.2f}" == f"{high:.2f}"
        else f"{name} from {low:.2f} to {high:.2f} x"
        for name, low, high in found.spans
    )
    yield (
        f"Cheapest of {', '.join(found.policies)} when everything is rented while held, by the "
        f"price of an {dear} over an {cheap} (now {found.base_ratio:.2f} x; at the ratios looked "
        f"at): {spans}."
    )
    for item in found.fixed:
        if item.differs:
            replayed = ", ".join(f"{ratio:.2f}" for ratio in item.replayed) or "nowhere"
            on_paper = "nowhere" if item.ratio is None else f"{item.ratio:.2f}"
            yield (
                f"{item.first} and {item.second} cost the same at {replayed} x when jobs are "
                f"placed for each price, at {on_paper} x with the nodes they hold now."
            )


def worth_lines(report: SizeReport) -> Iterator[str]:
    """Yield shadow prices, from exact re-solves."""
    if report.worth is None:
        return
    moments = [m for m in report.worth.moments if m.chosen.weight > 0]
    yield (
        f"Worth of relaxing a limit, from proven optima of {len(moments)} "
        f"{'moment that stands' if len(moments) == 1 else 'moments that stand'} for all (and of "
        "the dearest one):"
    )
    for price in report.worth.prices:
        without = "" if price.weight >= 1 else f", {100 * (1 - price.weight):.0f}% of the time "
        without += "nothing to compare" if without else ""
        if price.low_usd_per_hour is None or price.high_usd_per_hour is None:
            yield f"  {price.label}: there is no plan with one fewer."
            continue
        peak = ""
        if price.peak_low_usd_per_hour is not None and price.peak_high_usd_per_hour is not None:
            peak = f" ({_range(price.peak_low_usd_per_hour, price.peak_high_usd_per_hour)})"
        worth = _range(price.low_usd_per_hour, price.high_usd_per_hour)
        open_ = "" if price.proved == price.moments else ", not all proved"
        yield f"  {price.label}: {worth}{peak}{open_}{without}."


def _range(low: float, high: float) -> str:
    if high - low < 0.005:
        return usd_per_hour(low)
    return f"{usd_per_hour(low)} to {usd_per_hour(high)}"


# --- what it rests on ---------------------------------------------------------------------------


def assumption_lines(report: SizeReport) -> Iterator[str]:
    """Yield where prices come from, and which numbers are guesses."""
    cluster = report.options.cluster
    for pool in POOLS:
        costs, gpu = report.costs.pool(pool), gpu_names(cluster)[pool]
        rent = f"rent ${costs.rent_usd_per_gpu_hour:g}/GPU-h ({_source(report, pool, 'rent')})"
        own = costs.own_usd_per_node_hour
        if own is None:
            yield f"{gpu}: {rent}; cannot be owned: {_source(report, pool, 'buy')}."
            continue
        bought = ""
        if costs.own_usd_per_gpu_hour is None and costs.usd_per_node is not None:
            bought = f": ${costs.usd_per_node:,.0f} a node ({_source(report, pool, 'buy')})"
        per_gpu = own / costs.gpus_per_node
        yield f"{gpu}: {rent}; own ${per_gpu:.2f}/GPU-h, used or not{bought}."
    guesses = sorted(
        {
            text.removeprefix("guess: ")
            for text in report.costs.guesses().values()
            if text.startswith("guess: ")
        }
    )
    if guesses:
        yield f"Guessed: {'; '.join(guesses)}. Put your own in --costs."
    yield from _colocated_line(report)


def _colocated_line(report: SizeReport) -> Iterator[str]:
    """Yield what the figures of colocated assume, where there are any."""
    shown = {row.name for row in report.demand}
    if report.prices is not None:
        shown |= {name for name, _, _ in report.prices.spans}
    if "colocated" in shown:
        factor, gpu = report.options.colocated_factor, report.options.cluster.train.gpu.name
        yield (
            f"Colocated runs both phases of sync jobs on {gpu} nodes. Assumed: "
            f"iterations take {factor:g} x as long as alone (--colocated-factor), not measured."
        )


def _source(report: SizeReport, pool: Pool, which: str) -> str:
    key = {"rent": "rent_usd_per_gpu_hour", "buy": "usd_per_node"}[which]
    return report.costs.pool(pool).sources.get(key, "given")
