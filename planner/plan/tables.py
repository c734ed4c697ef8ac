"""Tables for people: what ``plan`` and ``check`` print on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from instances.restarts import restart_sources
from models.bounds.volume import VOLUME
from planner.output.fitting_tables import bare_table
from planner.plan.planning import PlanReport
from planner.plan.waiting_tables import waiting_sentences, waiting_table
from planner.replay.replaying import Convention, ReplayResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from instances.checker import CheckReport
    from instances.estimate import Estimate
    from instances.jobs import JobTable
    from instances.plan import Plan

__all__ = [
    "answer_sentences",
    "convention_title",
    "cost_over_bound",
    "data_notes",
    "groups_of",
    "moves_sentence",
    "percent",
    "plan_notes",
    "policy_cells",
    "policy_columns",
    "print_check",
    "print_plan",
    "print_profile",
    "share_met",
    "short_jobs",
]

#: GPU names head a column of figures, which must not be cut at 80 columns.
_WIDEST_NAMES: Final = 11
#: The same, beside a column of moves.
_WIDEST_NAMES_MOVING: Final = 8

#: What iterations times seconds, divided by these seconds, may lose.
_ROUNDING: Final = 1e-9
_TITLES: dict[Convention, str] = {
    "work": "Each job does its iterations; sharing stretches its stay (convention: work)",
    "wallclock": "Each job stays as long as alone (convention: wallclock)",
}
_TITLE_PAUSES: Final = "Each job stays as long as alone, and its pauses (convention: wallclock)"


def percent(share: float | None) -> str:
    """Return a share as whole percents, a dash where there is none."""
    return "-" if share is None else f"{100 * share:.0f}%"


def share_met(share: float) -> str:
    """Return a share of jobs without rounding a miss up to 100 %."""
    return "100%" if share == 1 else f"{min(100 * share, 99.9):.1f}%"


def _ratio(ratio: float | None, unit: str = "") -> str:
    return "-" if ratio is None else f"{ratio:.2f}{unit}"


def _many(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _money(usd: float) -> str:
    """Return an amount with one decimal below 1,000, none above."""
    return f"{usd:,.1f}" if abs(usd) < 1000 else f"{usd:,.0f}"


def _compared(report: PlanReport) -> tuple[str, ...]:
    """Return the baselines that get a ratio column: solo and colocated, else the first two."""
    usual = tuple(name for name in ("solo", "colocated") if name in report.baselines)
    return usual or report.baselines[:2]


def convention_title(report: PlanReport, convention: Convention) -> str:
    """Return what a convention means, in one line."""
    pauses = convention == "wallclock" and bool(_moving(report))
    return _TITLE_PAUSES if pauses else _TITLES[convention]


def policy_columns(report: PlanReport) -> tuple[tuple[str, str], ...]:
    """Return the headings of :func:`policy_cells`: one for narrow tables, one in full."""
    cluster, moving = report.options.cluster, bool(_moving(report))
    full = f"{cluster.rollout.gpu.name}+{cluster.train.gpu.name}"
    names = full
    if len(names) > (_WIDEST_NAMES_MOVING if moving else _WIDEST_NAMES):
        names = "R+T" if moving else "roll.+train"
    money = "k$" if _in_thousands(report) else "$"
    return (
        ("policy", "policy"),
        ("$/h\nmean", "mean price, $/h"),
        (f"{money}\ntotal", f"total, {money}"),
        *(
            (_versus(baseline, short=moving), f"vs {baseline}: its total over this one, ratio")
            for baseline in _compared(report)
        ),
        (f"peak{'' if moving else ' GPUs'}\n{names}", f"peak GPUs, {full}"),
        ("SLO\nmet", "SLO met, % of jobs"),
        ("idle\nR/T", "idle R/T, % of node time"),
        ("cost/\nbound", "cost/bound, ratio"),
        *((("moves\na job", "moves a job"),) if moving else ()),
    )


def _policy_table(report: PlanReport, convention: Convention) -> Table:

    table = bare_table(convention_title(report, convention))
    table.add_column("policy", no_wrap=True)
    from rich.markup import escape

    for heading, _ in policy_columns(report)[1:]:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    for name in report.results[convention]:
        table.add_row(
            *policy_cells(report, name, convention), style="bold" if name == report.policy else ""
        )
    return table


def _versus(baseline: str, *, short: bool) -> str:
    """Return the heading of a ratio; a short one leaves room for one more column."""
    if short and baseline == "colocated":
        return "vs co-\nlocated"
    return f"vs\n{baseline}"


def _in_thousands(report: PlanReport) -> bool:
    """Return whether totals are shown in k$: when the largest has five digits or more."""
    return max(result.usd_total for _, _, result in report) >= 10_000


def policy_cells(report: PlanReport, name: str, convention: Convention) -> list[str]:
    """Return one row; means over seeds where the policy draws, but the largest peak."""
    cluster, runs = report.options.cluster, report.runs(name, convention)
    thousands = _in_thousands(report)

    def mean(value: Callable[[ReplayResult], float]) -> float:
        return report.mean(name, convention, value).mean

    def idle(pool: str) -> str:
        shares = [result.idle_fraction[pool] for result in runs]
        known = [share for share in shares if share is not None]
        return percent(sum(known) / len(known) if known else None)

    peak = report.most_nodes(name, convention)
    gpus_r = peak["rollout"] * cluster.rollout.gpus_per_node
    gpus_t = peak["train"] * cluster.train.gpus_per_node
    return [
        name,
        _money(mean(lambda r: r.usd_per_hour_mean)),
        _money(mean(lambda r: r.usd_total) / (1000 if thousands else 1)),
        *(_ratio(report.saving(b, convention, name), "x") for b in _compared(report)),
        f"{gpus_r}+{gpus_t}",
        share_met(mean(lambda r: r.slo_attainment)),
        f"{idle('rollout')}/{idle('train')}",
        _ratio(cost_over_bound(runs[0])),
        *((_moves_cell(runs[0]),) if _moving(report) else ()),
    ]


def _moving(report: PlanReport) -> tuple[str, ...]:
    """Return the policies that move running jobs."""
    results = report.results[report.primary].items()
    return tuple(name for name, result in results if not result.pins_fixed)


def _moves_cell(result: ReplayResult) -> str:
    return "-" if result.pins_fixed else f"{result.moves_per_job:.2f}"


def moves_sentence(result: ReplayResult) -> str:
    """Return how often a policy moves jobs, and what it takes of their time."""
    jobs = sum(record.job.mode != "async" for record in result.records)
    if not jobs:
        return f"{result.policy} moves nobody: async jobs stay where they are."
    if not result.moves:
        return f"{result.policy} moves none of {_many(jobs, 'job')}."
    share = 100 * result.paused_h / result.job_hours
    most = result.max_moves_per_job
    return (
        f"{result.policy} makes {result.moves:,} move{'s' * (result.moves != 1)}, "
        f"{result.moves_per_job:.2f} a job: {result.jobs_moved:,} of {jobs:,} jobs moved, none "
        f"more than {most} time{'s' * (most != 1)}. Jobs are paused for {result.paused_h:,.1f} of "
        f"{result.job_hours:,.1f} job-hours ({share:.2f}%)."
    )


def _drawn(report: PlanReport) -> list[str]:
    """Return a sentence per policy that draws: its intervals over seeds."""
    lines = []
    for name in sorted({name for by in report.replicas.values() for name in by}):
        parts = []
        for convention in report.results:
            usd = report.mean(name, convention, lambda r: r.usd_per_hour_mean)
            slo = report.mean(name, convention, lambda r: 100 * r.slo_attainment)
            if usd.low is None or usd.high is None or slo.low is None or slo.high is None:
                continue
            parts.append(
                f"{convention} ${usd.low:,.0f}-{usd.high:,.0f}/h, SLO {max(slo.low, 0):.0f}-"
                f"{min(slo.high, 100):.0f}%"
            )
        if parts:
            lines.append(
                f"{name}: mean over {len(report.seeds)} seeds (largest peak); 95% intervals: "
                f"{'; '.join(parts)}."
            )
    return lines


def groups_of(result: ReplayResult) -> str:
    """Return what a bound holds for, in words: it never beats plans under looser limits."""
    size = result.limits.max_group_size
    return f"with groups of at most {size} jobs" if size else "with groups of any size"


def _fleet_sentence(report: PlanReport, result: ReplayResult) -> str:
    """Return how many nodes are needed, what holding them costs, and what the total assumes."""
    cluster, p95 = result.cluster, result.p95_nodes
    peak = report.most_nodes(report.policy, result.convention)
    parts = []
    for pool, node in (("rollout", cluster.rollout), ("train", cluster.train)):
        nodes, gpus = peak[pool], peak[pool] * node.gpus_per_node
        parts.append(f"{nodes} {node.gpu.name} node{'s' * (nodes != 1)} ({gpus} GPUs)")
    needs = (
        f"{report.policy} needs at most {parts[0]} and {parts[1]} at once; for 95% of the time "
        f"{p95['rollout']} + {p95['train']} nodes are enough. It costs ${result.usd_total:,.0f} "
        f"with nodes paid only while held"
    )
    if result.fleet is not None:  # whose price all along is told next
        return f"{needs}."
    hold = cluster.usd_per_hour(peak["rollout"], peak["train"])
    return (
        f"{needs}; holding the peak all along costs ${hold:,.2f}/h, "
        f"${hold * result.horizon_h:,.0f} in all."
    )


def _bound_sentence(result: ReplayResult) -> str:
    """Return what is proven about the least cost, by the convention of the result."""
    if cost_over_bound(result) is None:
        if any(record.job.mode != "async" for record in result.records):
            return "No valid plan costs less: at these prices none costs anything."
        return "No valid plan costs less: nothing runs but on dedicated nodes."
    if result.convention == "work":
        return (
            f"Proven: no valid plan does the same work for less than "
            f"${result.work_bound_usd_total:,.0f}, so this one costs at most "
            f"{_ratio(cost_over_bound(result))} x the least."
        )
    stays = "these stays" if result.pins_fixed else "these stays without pauses"
    return (
        f"Proven: no valid plan {groups_of(result)} costs less than "
        f"${result.bound_usd_total:,.0f} for {stays} ({result.bound_method} bound), so this "
        f"one costs at most {_ratio(cost_over_bound(result))} x the least."
    )


def cost_over_bound(result: ReplayResult) -> float | None:
    """Return cost over the true bound of the convention."""
    if result.convention == "wallclock" or not result.promises_valid:
        return result.ratio
    shared = result.work_bound_usd_total - result.dedicated_usd_total
    return (result.usd_total - result.dedicated_usd_total) / shared if shared > 0 else None


def _against(report: PlanReport, convention: Convention) -> str:
    """Return whether the policy is cheaper or dearer than its baselines."""
    parts = []
    for baseline in report.baselines:
        ratio = report.saving(baseline, convention)
        if ratio is None or not ratio:
            continue
        change = 100 * (1 / ratio - 1)
        word = "cheaper" if change < 0 else "DEARER"
        part = f"{abs(change):.0f}% {word} than {baseline}"
        kept = report.mean(baseline, convention, lambda r: r.slo_attainment).mean
        if kept < 1:  # cheap for breaking its promises: no rival
            part += f" (SLO met: {share_met(kept)})"
        parts.append(part)
    return f"By {convention} {report.policy} is {', '.join(parts)}." if parts else ""


def answer_sentences(report: PlanReport) -> list[str]:
    """Return the answer in sentences: fleet, price, gap, savings, admission, links."""
    result = report.result(report.policy)
    cluster = result.cluster
    lines = [_fleet_sentence(report, result), *waiting_sentences(result)]
    if result.promises_valid:
        lines.append(_bound_sentence(result))
    against = _against(report, result.convention)
    if against:
        lines.append(against)
    if result.slo_attainment < 1:
        lines.append(
            f"It breaks {share_met(1 - result.slo_attainment)} of the SLOs: not an option."
        )
    if result.limits.max_rate > 1 and report.policy in ("weave", "repack"):
        lines.append(_singles_sentence(result))
    lines += [moves_sentence(report.result(name)) for name in _moving(report)]
    placed = sum((result.admission or {}).values())
    if result.admission and placed:
        mix = ", ".join(
            f"{percent(n / placed)} {kind.replace('_', ' ')}"
            for kind, n in result.admission.items()
        )
        lines.append(f"Admission: {mix}.")
    link = result.link_utilisation
    guess = "" if cluster.links.links is not None else " (one per 16 nodes, a guess)"
    lines.append(
        f"Assumed {result.links} link{'s' * (result.links != 1)} of {cluster.links.inter_gbps:g} "
        f"Gb/s between the clusters{guess}: used at {percent(link['mean'])} on average, "
        f"{percent(link['peak'])} at most."
    )
    if result.dedicated_usd_total:
        jobs = sum(r.job.mode == "async" for r in result.records)
        lines.append(
            f"{jobs} async job{'s' * (jobs != 1)} hold dedicated nodes for "
            f"${result.dedicated_usd_total:,.0f}: in cost, nodes and links above, not in idle "
            f"time, SLOs and cost over bound."
        )
    return lines


def _singles_sentence(result: ReplayResult) -> str:
    """Return how long single iterations are where a job may run several per period."""
    jobs = sum(record.job.mode != "async" for record in result.records)
    late = result.jobs_with_late_iterations
    return (
        f"Up to {result.limits.max_rate} iterations a period: the SLO is about their mean. The "
        f"longest single iteration takes {result.worst_single_iteration:.2f} x its deadline; "
        f"{late} of {jobs} jobs have one longer than their deadline."
    )


def print_plan(report: PlanReport, console: Console) -> None:
    """Print the answer and one table per convention."""
    result = report.result(report.policy)
    jobs = report.trace.jobs
    console.print(
        f"{report.trace.name}: {_many(len(jobs), 'job')} over {result.horizon_h:,.1f} h, policy "
        f"{report.policy} ({report.primary} convention)",
        style="bold",
        markup=False,
    )
    for line in answer_sentences(report):
        console.print(line, markup=False)
    for convention in report.results:
        console.print()
        console.print(_policy_table(report, convention))
        if report.options.fleet is not None:
            console.print(waiting_table(report, convention))
    for note in plan_notes(report):
        console.print(note, style="dim", markup=False)


def plan_notes(report: PlanReport) -> list[str]:
    """Return what a reader of the tables must know, one fact a line."""
    notes = ["$/h is the mean over the row's own horizon; totals compare better."]
    if report.options.fleet is not None:
        notes.append(
            "$/h and totals above price nodes while held; $ to own prices the fleet over the row's "
            "horizon. SLO met leaves waiting out; waits in: counted from the arrival."
        )
    if report.baselines:
        notes.append("vs: total cost of that baseline over the row's.")
    notes.append(
        "cost/bound: over the least any valid plan could cost (work: for the same iterations; "
        f"wallclock: for the jobs present, {VOLUME} bound; planner gap proves more). R/T: rollout "
        "and train nodes."
    )
    on_train = [n for n in ("colocated", "swapping") if n in report.results[report.primary]]
    if on_train:
        assume = "assumes" if len(on_train) == 1 else "assume"
        notes.append(
            f"{' and '.join(on_train)} {assume} iterations {report.options.colocated_factor:g} x "
            "as long as alone (--colocated-factor)."
        )
    outside = {
        name: result.breaches
        for name, result in report.results[report.primary].items()
        if not result.promises_valid
    }
    if outside:
        broken = "; ".join(
            f"{name} {', '.join(f'{rule} {n}' for rule, n in breaches.items()) or 'none'}"
            for name, breaches in outside.items()
        )
        notes.append(f"Outside the rules of a valid plan, so no bound; breaches: {broken}.")
    if _moving(report):
        notes.append(_restarts_note(report.trace.jobs))
    return notes + data_notes(report.trace.jobs) + _drawn(report)


def _restarts_note(jobs: JobTable) -> str:
    """Return where the seconds of restarts come from, and what pauses do to figures."""
    named = {"measured": "column restart_s", "model_b": "model_b", "guessed": "no size, a guess"}
    parts = [f"{named[kind]} {n:,}" for kind, n in restart_sources(jobs).items() if n]
    least, most = float(jobs.restart_s.min()), float(jobs.restart_s.max())
    seconds = f"{least:,.0f}" if least == most else f"{least:,.0f}-{most:,.0f}"
    return (
        f"A moved job restarts for {seconds} s (jobs by source: {', '.join(parts)}): no progress, "
        "nodes paid, counted in its slowdown. wallclock: its stay grows by it; the bound does not."
    )


def short_jobs(jobs: JobTable) -> list[str]:
    """Return a warning where jobs end before their first iteration does."""
    short = (jobs.iterations < 1 - _ROUNDING).nonzero()[0]
    if not len(short):
        return []
    i = int(short[0])
    given, one = float(jobs.duration_s[i]), float(jobs.solo_s[i])
    verb = "is" if len(short) == 1 else "are"
    return [
        f"{len(short)} of {len(jobs)} jobs {verb} shorter than one iteration ({jobs.job_id[i]}: "
        f"duration_s {given:.4g}, one iteration {one:.4g} s, {given / one:.2g} iterations): is "
        "duration_s in seconds?"
    ]


def data_notes(jobs: JobTable) -> list[str]:
    """Return which columns were drawn or estimated rather than measured."""
    notes = []
    if "profile_source" in jobs.extra:
        notes.append(
            "Synthetic, drawn and not measured: slo, rollout_s, train_s, model_b (profile_source)."
        )
    estimated = jobs.estimated_columns()
    if estimated:
        notes.append(f"Estimated, not measured: {', '.join(estimated)}.")
    return notes


def print_check(name: str, plan: Plan, report: CheckReport, console: Console, most: int) -> None:
    """Print the outcome of ``planner check``: a verdict, then violations, the first ``most``."""
    broken = _many(len(report.violations), "violation")
    verdict = "valid" if report.ok else f"NOT valid: {broken}"
    pauses = ""
    if plan.pauses:
        hours = sum(pause.to_s - pause.from_s for pause in plan.pauses) / 3600.0
        pauses = f", {_many(len(plan.pauses), 'pause')} of {hours:,.1f} h in all"
    if plan.fleet is not None:
        pauses += f", fleet of {plan.fleet}, {_many(len(plan.starts), 'job')} waited for it"
    unit = "/h" if plan.durations == "snapshot" else ""
    console.print(f"{name}: {verdict}", style="bold", markup=False)
    console.print(
        f"{_many(report.n_jobs, 'job')}, {_many(report.n_groups, 'group version')}{pauses}, policy "
        f"{plan.policy}, {plan.durations} convention; price re-derived: "
        f"${report.usd_total_recomputed:,.2f}{unit} "
        f"(claimed ${plan.usd_total:,.2f}{unit}); peak {report.peak_nodes['rollout']} rollout + "
        f"{report.peak_nodes['train']} train nodes.",
        markup=False,
    )
    for rule, count in report.counts.items():
        console.print(f"  {rule}: {count}", markup=False)
    for violation in report.violations[:most]:
        when = "" if violation.from_s is None else f" (version from {violation.from_s:,.0f} s)"
        console.print(f"- [{violation.rule}] {violation.message}{when}", markup=False)
    if len(report.violations) > most:
        console.print(f"... and {len(report.violations) - most} more.", markup=False)


def print_profile(found: Estimate, console: Console) -> None:
    """Print the estimate of ``planner profile`` with units, labelled."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"{found.model_b:g}B, {found.max_tokens:g} tokens, {found.prompts_per_step:g} x "
        f"{found.samples_per_prompt:g} responses a step (all figures estimated)",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("pool", no_wrap=True)
    for header in ("nodes", "worst case\ns", "expected\ns", "state\nGB/node", "bound by"):
        table.add_column(header, justify="right", no_wrap=True)
    for pool, nodes, worst, expected, state, roof in (
        (
            "rollout",
            found.rollout_nodes,
            found.rollout_s,
            found.rollout_expected_s,
            found.rollout_state_gb,
            found.rollout_roof,
        ),
        (
            "train",
            found.train_nodes,
            found.train_s,
            found.train_expected_s,
            found.train_state_gb,
            found.train_roof,
        ),
    ):
        table.add_row(pool, str(nodes), f"{worst:,.0f}", f"{expected:,.0f}", f"{state:,.0f}", roof)
    console.print(table)
    console.print(
        f"Sync: {found.sync_gb:g} GB, {found.sync_s:.1f} s. Replicas of {found.tensor_parallel} "
        f"GPUs with room for {found.decode_slots:,.0f} responses at once. In a trace, give the "
        f"columns model_b, max_tokens, prompts_per_step and samples_per_prompt and leave "
        f"rollout_s and train_s out.",
        markup=False,
    )
