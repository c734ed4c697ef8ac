"""The sections of a report about a planned trace, each an answer and the charts that show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from instances.plan import DURATION_CONVENTIONS
from planner.plan.planning import PlanReport
from planner.plan.tables import (
    answer_sentences,
    convention_title,
    cost_over_bound,
    groups_of,
    moves_sentence,
    plan_notes,
    policy_cells,
    policy_columns,
)
from planner.plan.waiting_tables import (
    fleet_usd_per_hour,
    shown_wait,
    waiting_cells,
    waiting_columns,
    waiting_sentences,
    waiting_title,
)
from planner.policies.replay_result import JobRecord, ReplayResult
from planner.replay.replaying import Convention
from planner.report.group_figures import (
    MOST_LIVES,
    chosen_lives,
    gantt_picker,
    lives_chart,
    lives_of,
)
from planner.report.parts import Block, Chart, Folded, Rows, Section, Words
from planner.report.plan_figures import (
    NEAR_LIMIT,
    admission_chart,
    admission_counts,
    cost_chart,
    demand_chart,
    gpu_chart,
    is_near,
    ratio_chart,
    ratio_over_time,
    slowdown_chart,
)
from planner.size.words import duration

__all__ = ["plan_answer", "plan_sections"]

_HOUR_S: Final = 3600.0
_WORST: Final = 10


def plan_answer(report: PlanReport) -> tuple[str, ...]:
    """Return the answer in sentences, those that ``plan`` prints; the first is the answer."""
    return tuple(answer_sentences(report))


def plan_sections(report: PlanReport) -> tuple[Section, ...]:
    """Return the sections about a planned trace; what says nothing is left out.

    Parameters
    ----------
    report : PlanReport
        With the main policy's plan.

    Returns
    -------
    tuple of Section
        Cost and GPUs over time, demand, waiting for a fixed fleet, admission, what each job got,
        groups, and cost over bound.
    """
    made = (
        _cost_section(report),
        _gpu_section(report),
        _demand_section(report),
        _waiting_section(report),
        _admission_section(report),
        _job_section(report),
        _group_section(report),
        _ratio_section(report),
    )
    return tuple(section for section in made if section is not None)


def _conventions(report: PlanReport) -> Iterator[tuple[Convention, bool]]:
    """Yield the conventions, the primary one first, and whether it is that one."""
    yield report.primary, True
    for convention in DURATION_CONVENTIONS:
        if convention != report.primary:
            yield convention, False


def _other(report: PlanReport) -> Convention:
    return next(convention for convention, first in _conventions(report) if not first)


def _folded(report: PlanReport, *blocks: Block) -> Folded:
    return Folded(f"The same by the other convention: {_other(report)}", blocks)


def _seed_words(report: PlanReport) -> tuple[Words, ...]:
    """Say which replay is drawn of the policies that draw, where there are several."""
    drawn = sorted(report.replicas[report.primary])
    if not drawn or len(report.seeds) == 1:
        return ()
    return (
        Words(
            (
                f"{', '.join(drawn)}: the tables of policies and of admission hold means over "
                f"{len(report.seeds)} seeds (largest peak); all else is the replay with the first "
                f"seed, {report.seeds[0]}.",
            )
        ),
    )


def _first_seed_words(report: PlanReport) -> tuple[Words, ...]:
    """The same where the main policy alone is shown."""
    return _seed_words(report) if report.policy in report.replicas[report.primary] else ()


# --- cost, GPUs, demand ---------------------------------------------------------------------------


def _policy_rows(report: PlanReport, convention: Convention) -> Rows:
    """Return the table that ``plan`` prints, with one more column: nodes."""
    header = tuple(full for _, full in policy_columns(report))
    rows = []
    for name in report.results[convention]:
        peak = report.most_nodes(name, convention)
        nodes = f"{peak['rollout']}+{peak['train']}"
        rows.append((*policy_cells(report, name, convention), nodes))
    return Rows(
        title=convention_title(report, convention),
        header=(*header, "peak nodes, rollout+train"),
        rows=tuple(rows),
        caption="Each pool at its own peak.",
        numeric=(False, *(True for _ in header)),
    )


def _cost_section(report: PlanReport) -> Section:
    result = report.result(report.policy)
    mean = report.mean(report.policy, report.primary, lambda r: r.usd_per_hour_mean).mean
    total = report.mean(report.policy, report.primary, lambda r: r.usd_total).mean
    drawn = report.policy in report.replicas[report.primary] and len(report.seeds) > 1
    over = f"over {_span(result.horizon_h)}"
    if drawn:  # whose hours differ
        over = f"in all, means over {len(report.seeds)} seeds"
    answer = (
        f"{report.policy} costs ${mean:,.2f}/h on average, ${total:,.{0 if total >= 100 else 2}f} "
        f"{over} ({report.primary} convention)"
    )
    parts = []
    for name in report.baselines:
        ratio = report.saving(name, report.primary)
        if ratio is not None:
            parts.append(f"{name} {ratio:.2f} x that")
    answer += f"; in all, {', '.join(parts)}." if parts else "."
    other = _other(report)
    return Section(
        "cost",
        "Cost over time",
        answer,
        (
            _policy_rows(report, report.primary),
            cost_chart(report, report.primary),
            *_seed_words(report),
            Folded("Notes on the table", (Words(tuple(plan_notes(report))),)),
            _folded(report, _policy_rows(report, other), cost_chart(report, other)),
        ),
    )


def _span(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1 else duration(hours * _HOUR_S)


def _peak_words(report: PlanReport, convention: Convention) -> str:
    cluster, peak = report.options.cluster, report.most_nodes(report.policy, convention)
    return " and ".join(
        f"{peak[pool] * node.gpus_per_node} {node.gpu.name} GPUs ({peak[pool]} nodes)"
        for pool, node in (("rollout", cluster.rollout), ("train", cluster.train))
    )


def _gpu_section(report: PlanReport) -> Section:
    answer = f"{report.policy} holds at most {_peak_words(report, report.primary)} at once."
    return Section(
        "gpus",
        "GPUs over time",
        answer,
        (
            gpu_chart(report, report.primary),
            *_seed_words(report),
            _folded(report, gpu_chart(report, _other(report))),
        ),
    )


def _demand_section(report: PlanReport) -> Section:
    result = report.result(report.policy)
    p95, peak = result.p95_nodes, result.peak_nodes
    cluster = report.options.cluster
    answer = (
        f"For 95 % of the time {p95['rollout']} {cluster.rollout.gpu.name} and {p95['train']} "
        f"{cluster.train.gpu.name} nodes are enough for {report.policy}, each pool by itself; the "
        f"peaks are {peak['rollout']} and {peak['train']}."
    )
    return Section(
        "demand",
        "Demand duration curve",
        answer,
        (
            demand_chart(report, report.primary),
            _demand_rows(report, report.primary),
            *_seed_words(report),
            _folded(
                report, demand_chart(report, _other(report)), _demand_rows(report, _other(report))
            ),
        ),
    )


def _demand_rows(report: PlanReport, convention: Convention) -> Rows:
    rows = []
    for name, result in report.results[convention].items():
        p95, peak, hours = result.p95_nodes, result.peak_nodes, result.node_hours
        for pool in ("rollout", "train"):
            mean = hours[pool] / result.horizon_h
            rows.append((name, pool, f"{mean:,.1f}", f"{p95[pool]:,}", f"{peak[pool]:,}"))
    return Rows(
        title=f"Nodes needed ({convention} convention)",
        header=("policy", "pool", "mean, nodes", "p95, nodes", "peak, nodes"),
        rows=tuple(rows),
        caption="p95: enough for 95 % of the time.",
    )


# --- waiting --------------------------------------------------------------------------------------


def _waiting_section(report: PlanReport) -> Section | None:
    if report.options.fleet is None:
        return None
    result = report.result(report.policy)
    wait_s = result.wait_quantile(0.95)
    waiting = f"wait {shown_wait(wait_s)} or less" if wait_s > 0 else "do not wait"
    rows = [
        Rows(
            title=waiting_title(report, convention),
            header=tuple(full for _, full in waiting_columns()),
            rows=tuple(
                waiting_cells(report, name, convention) for name in report.results[convention]
            ),
        )
        for convention, _ in _conventions(report)
    ]
    return Section(
        "waiting",
        "Waiting for the fleet",
        f"Under {report.policy} 95 % of the jobs {waiting} for a fleet of "
        f"{result.fleet}, which costs ${fleet_usd_per_hour(result):,.2f}/h to own.",
        (Words(tuple(waiting_sentences(result))), rows[0], _folded(report, rows[1])),
    )


# --- jobs -----------------------------------------------------------------------------------------


def _admission_section(report: PlanReport) -> Section | None:
    counts = admission_counts(report, report.primary)
    if not counts:
        return None
    first = report.policy if report.policy in counts else next(iter(counts))
    by_kind = counts[first]
    total = sum(by_kind.values())
    parts = [f"{_number(n)} {kind} ({100 * n / total:.1f} %)" for kind, n in by_kind.items()]
    rows = [
        (name, kind, _number(jobs), f"{100 * jobs / sum(some.values()):.1f}")
        for name, some in counts.items()
        for kind, jobs in some.items()
    ]
    moves = [
        moves_sentence(result)
        for result in report.results[report.primary].values()
        if not result.pins_fixed
    ]
    return Section(
        "admission",
        "How jobs were admitted",
        f"Of {_number(total)} job{'s' * (total != 1)} under {first}: {', '.join(parts)}.",
        (
            admission_chart(report, report.primary),
            Rows(
                title=f"Jobs by kind of admission ({report.primary} convention)",
                header=("policy", "kind", "jobs", "share, % of jobs"),
                rows=tuple(rows),
                caption=(
                    "direct: into a group, no new node. rollout scaled, train scaled: into a "
                    "group that takes more nodes of that pool. isolated: a new group. repacked: "
                    "running jobs were moved for it."
                ),
            ),
            *((Words(tuple(moves)),) if moves else ()),
            *_seed_words(report),
        ),
    )


def _number(count: float) -> str:
    return f"{count:,.0f}" if float(count).is_integer() else f"{count:,.1f}"


def _job_section(report: PlanReport) -> Section | None:
    result = report.result(report.policy)
    records = [record for record in result.records if record.job.mode != "async"]
    if not records:
        return None
    broken, near = sum(not r.slo_met for r in records), sum(is_near(r) for r in records)
    kept = f"{len(records) - broken:,} of {len(records):,} jobs keep their SLO"
    if len(records) == 1:
        kept = f"The one job {'breaks' if broken else 'keeps'} its SLO"
    kept += f" under {report.policy}"
    if len(records) < len(result.records):
        kept += " (async jobs, on nodes of their own, apart)"
    if near or len(records) > 1:
        kept += (
            f"; {near:,} of these {'is' if near == 1 else 'are'} at {100 * NEAR_LIMIT:.0f} % of "
            "the slowdown they allow, or more"
        )
    worst = sorted(records, key=lambda r: (-r.slowdown / r.job.slo, r.job.job_id))[:_WORST]
    return Section(
        "jobs",
        "What each job got",
        f"{kept}.",
        (
            slowdown_chart(report, records),
            Rows(
                title=f"The {_jobs(len(worst))} nearest to their limit, or above it",
                header=tuple(_job_cells(worst[0], result)),
                rows=tuple(tuple(_job_cells(record, result).values()) for record in worst),
                caption="Slowdown counts from the start of a job.",
            ),
            *_first_seed_words(report),
        ),
    )


def _jobs(count: int) -> str:
    return "job" if count == 1 else f"{count:,} jobs"


def _job_cells(record: JobRecord, result: ReplayResult) -> dict[str, str]:
    """Return the cells of a job by their headings."""
    cells = {
        "job": record.job.job_id,
        "slowdown attained, x alone": f"{record.slowdown:.3f}",
        "slowdown allowed, x alone": f"{record.job.slo:.3f}",
        "share of the limit, %": f"{100 * record.slowdown / record.job.slo:.1f}",
        "stay, h": f"{record.elapsed_s / _HOUR_S:,.1f}",
    }
    if result.fleet is not None:
        cells["wait, h"] = f"{record.wait_s / _HOUR_S:,.1f}"
    if not result.pins_fixed:
        cells["moves"] = f"{record.moves:,}"
    return {
        **cells,
        "group": record.group_id,
        "admission": (record.admission or "-").replace("_", " "),
    }


# --- groups and bound -----------------------------------------------------------------------------


def _group_section(report: PlanReport) -> Section | None:
    result = report.result(report.policy)
    plan = result.plan
    if plan is None or not plan.groups:
        return None
    lives = lives_of(plan)
    start_s = float(result.timeline.time_s[0])
    blocks: list[Block] = []
    answer = (
        f"The plan has {len(plan.groups):,} version{'s' * (len(plan.groups) != 1)} of "
        f"{len(lives):,} group{'s' * (len(lives) != 1)}; "
    )
    if result.promises_valid:
        chosen = chosen_lives(plan, lives)
        share = _share(sum(life.usd for life in chosen), sum(life.usd for life in lives))
        whose = f"the {len(chosen):,} dearest{share}" if len(chosen) > 1 else f"the dearest{share}"
        if len(chosen) == len(lives):
            whose = "each" if len(lives) > 1 else "it"
        answer += f"of {whose} the schedule is drawn below, in the version held longest."
        blocks.append(gantt_picker(plan, chosen, start_s))
    else:
        answer += f"{report.policy} keeps outside the rules of a valid plan: no schedule is drawn."
    blocks.append(lives_chart(lives, start_s))
    blocks += _first_seed_words(report)
    left = len(lives) - MOST_LIVES
    if left > 0:
        blocks.append(
            Words((f"{left:,} cheaper groups are left out of the lives; plan.json has all.",))
        )
    return Section("groups", "Groups", answer, tuple(blocks))


def _share(part_usd: float, whole_usd: float) -> str:
    """Return a share of a price in words; nothing where nothing costs anything."""
    return f" ({100 * part_usd / whole_usd:.0f} % of the price of all groups)" if whole_usd else ""


def _ratio_section(report: PlanReport) -> Section | None:
    result = report.result(report.policy)
    if result.ratio is None:
        return None
    ratio = ratio_over_time(result)
    proven = cost_over_bound(result)
    words = [
        f"Over the whole time the ratio is cost over the sum of these bounds, {groups_of(result)}."
    ]
    if report.primary == "work" and proven is not None:
        words.append(
            "By work it is a ratio along the policy's own course, not a proof about the total: "
            "sharing stretches stays, and other stays have other bounds. Proven over all valid "
            f"plans for the same iterations: at most {proven:.2f} x the least."
        )
    words.append("The optimality gap (planner gap) proves more, by better bounds.")
    chart: Chart = ratio_chart(report)
    return Section(
        "ratio",
        "Cost over the volume bound",
        f"{report.policy} costs {result.ratio:.2f} x the {result.bound_method} bound of the jobs "
        f"present, between {np.nanmin(ratio):.2f} and {np.nanmax(ratio):.2f} x at single moments.",
        (chart, Words(tuple(words))),
    )
