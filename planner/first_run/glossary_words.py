"""Words for rules, methods, policies, conventions and terms; symbols: FORMULATION section 1."""

from __future__ import annotations

from typing import Final

from planner.first_run.entry import entries

__all__ = ["WORDS"]

#: Each rule of a valid plan (FORMULATION section 2), as the checker's functions state it.
_RULES: Final = {
    "coverage": "Every job of the table is planned from its start on, exactly once: no unknown, "
    "missing or repeated job.",
    "gang": "P_j has exactly a^R_j rollout nodes and a^T_j train nodes of its group: a phase "
    "occupies them all at once.",
    "residency": "On each node the states of all jobs pinned to it sum to at most M, the host "
    "DRAM.",
    "precedence": "Around the circle of C_g: training starts at or after the rollout's end, the "
    "next rollout at or after the end of training + s_j. one-step jobs: the next but one.",
    "overlap": "On each node the phases pinned to it, switches included, are disjoint arcs of the "
    "circle of length C_g.",
    "slo": "C_g / k_j <= D_j for every job of a group. With pauses also over the whole stay: "
    "seconds <= slo x iterations x T_j.",
    "nodes": "Pins are nodes of the group, nodes and pins are distinct, every node has a pin.",
    "rate": "1 <= k_j <= max_rate, and one pair of starts an iteration.",
    "format": "Finite numbers, C_g > 0, from_s < to_s, at least one job, and the first rollout "
    "starts in [0, C_g).",
    "limits": "No group exceeds max_group_size, max_rollout_nodes or max_train_nodes.",
    "stay": "work: iterations outside pauses, less those lost, are the job's own. wallclock: the "
    "stay is duration_s and the pauses.",
    "pins": "One version of a group at a time; with pins_fixed no running job changes its group "
    "or its pins.",
    "pause": "Pauses are within the job's stay, one at a time, and every move starts one of at "
    "least restart_s.",
    "loss": "A failure loses no more than was done, at the end of a version, and a restart "
    "follows; with losses, moves happen nowhere else.",
    "held": "Old nodes that are paid for on are nodes of a group's version, from its end on.",
    "start": "A job that waited starts once, and not before its arrival; one without a start "
    "starts on arrival.",
    "fleet": "No more nodes of a pool at once than the fixed fleet has, failed ones left out.",
    "mode": "sync and one-step jobs are in groups; async jobs on dedicated nodes of their own.",
    "cost": "usd_total is the price of all nodes over all intervals: sum over groups of hours x "
    "gpus_per_node x (p^R |R_g| + p^T |T_g|).",
}
_METHODS: Final = {
    "auto": "Chooses by size: exhaustive up to 16 jobs (8 with rates), set-partition up to 41 (20 "
    "with rates), local-search and then set-partition up to 100, local-search beyond.",
    "exhaustive": "Prices every set of jobs that can be one group, then combines them by dynamic "
    "programming over subsets (3^n steps). Exact, up to about 16 jobs.",
    "milp": "States the whole problem as one mixed-integer program (assignment, pins, residency, "
    "cyclic precedence) for HiGHS. Exact, up to about 10 jobs.",
    "cpsat": "States it with intervals on the circle for OR-Tools CP-SAT. Exact, up to about 15 "
    "jobs; gangs add to its time.",
    "set-partition": "Lists the feasible groups and lets HiGHS choose a cheapest cover. Exact, 15 "
    "to 60 jobs.",
    "column-generation": "Bounds at any size: volume, pool decomposition, then the group LP or "
    "the coupled LP. Its plan is a cover by the columns found.",
    "local-search": "A plan and a bound at any size: millions of moves under a falling "
    "temperature, every plan held being checked; the bounds are those of column-generation.",
    "volume": "The quickest bound: per pool, nodes >= ceil(max(sum a phase / D, sum a m / M, sum "
    "a / max_group_size)). It holds for every rate.",
    "pool-decomposition": "A bound that drops the coupling of the pools: each node is a bin of "
    "time and DRAM, packed by column generation.",
    "group-lp": "A bound with a limit on groups: the LP over all feasible groups, priced exactly "
    "or by Farley.",
    "coupled": "A bound, the coupled LP, without a limit on groups: each job has one period in "
    "[T_j, D_j], and both pools are packed within it.",
}
_POLICIES: Final = {
    "weave": "The placer: an arriving job goes where it costs least (direct, rollout scaled, else "
    "isolated); running jobs never move. Plans are valid and checked.",
    "repack": "weave that also moves running jobs, after every arrival and departure, where the "
    "saving pays for their restarts. No SLO is broken for money.",
    "regroup": "Regroups everybody every hour for the least price: the published yardstick of "
    "drift, with moves paid.",
    "solo": "Every job alone on nodes of both kinds.",
    "colocated": "Every job alone on its train nodes for both phases; iterations take "
    "colocated_factor x as long as alone. Outside the rules, so no bound.",
    "random": "A group drawn among those with room for DRAM and size, or a new one. It checks no "
    "SLO; breaches are counted.",
    "most-idle": "Of the groups with room the one with the largest idle share. It checks no SLO; "
    "breaches are counted.",
    "gavel": "Jobs share nodes by time, one after the other, in shares from a linear program; "
    "phases do not interleave. Outside the rules.",
    "swapping": "As gavel, on train nodes alone: both phases of a job run there.",
}
_CONVENTIONS: Final = {
    "work": "Each job does its iterations, so sharing stretches its stay by C_g / T_j. The "
    "default.",
    "wallclock": "Each job stays as long as alone, whatever it has done by then; a pause "
    "lengthens the stay by its own length. The published replay appears to do so.",
}
_TERMS: Final = {
    "bubble": "Time in which a pool is paid for and idle, because its job is in the other phase. "
    "Co-execution fills it with other jobs' phases.",
    "group": "g: jobs that share nodes, with their pins, a period C_g and start offsets. The jobs "
    "of a group take turns; jobs of different groups never meet.",
    "pin": "A node of the group that a job uses (P_j): its state is resident there and nowhere "
    "else.",
    "period": "C_g: after so many seconds the group's schedule repeats. Job j does k_j iterations "
    "in it.",
    "rate": "k_j: iterations of a job per period. 1 unless --max-rate allows more; then the SLO "
    "holds for the mean iteration.",
    "cost/bound": "Cost over bound, as the tables head it: see ratio.",
    "valid plan": "A plan that keeps every rule of planner check (SLO, residency, overlap, gang "
    "and the rest). Costs and bounds are compared among valid plans; colocated, gavel and swapping "
    "are outside the rules.",
    "valid": "The checker found no rule broken: see valid plan.",
    "idle": "Share of the paid node time of a pool in which no phase runs; switches and sync count "
    "as idle. idle R/T: of the rollout pool, of the train pool.",
    "H20": "The GPU of the rollout pool unless cluster.toml names another: memory bandwidth for "
    "its price. A node has gpus_per_node of them.",
    "H800": "The GPU of the train pool unless cluster.toml names another: arithmetic for "
    "its price. A node has gpus_per_node of them.",
    "own": "Pay for a node all the time, used or idle: purchase, power, hosting and staff as in "
    "costs.toml. planner size says how many; newsvendor is the rule.",
    "owned": "Of nodes or costs: see own.",
    "rented": "Nodes beyond those owned, paid by the hour only while they are needed.",
    "async": "Mode of a job whose rollout and training never wait for each other: no bubble, so it "
    "has dedicated nodes and shares none.",
    "p95": "What 95 % of values do not exceed: of the time for nodes, of jobs for waits, of steps "
    "for phases.",
    "colocated-factor": "Option --colocated-factor: iteration time of colocated over that alone. 1 "
    "unless given, an assumption: with it colocated is as fast as separate pools.",
    "loss of a node": "Part loss of planner size: nodes to own besides, so that after the loss of "
    "any one node every job has a place again. Jobs that move restart.",
    "ratio": "Cost over bound: how far at most from the least. 1.06 is at most 6 % above. Under "
    "work it is along the policy's own trajectory, and no bound for others.",
    "bound": "A price that no valid plan under the same limits can go below, proved. Volume "
    "bounds are quick and loose, exact methods reach the optimum.",
    "farley": "Farley's bound: objective of the master LP / max(1, best column value). It is "
    "valid before column generation has converged, if pricing was exact.",
    "newsvendor": "The rule for how many nodes to own under varying demand: own another as long "
    "as it is needed for a larger share of the time than own / rent price.",
    "open-shop": "One node of each kind and no sync: the least period is max(sum r, sum t, max(r "
    "+ t)), reached by the construction of Gonzalez and Sahni (1976).",
    "phase": "Rollout (generate responses) or train (update weights); sync sends the new weights.",
    "iteration": "Rollout, train, sync: T_j = r_j + t_j + s_j seconds alone.",
    "deadline": "D_j = slo x T_j: the largest mean iteration time allowed.",
    "saturated": "A group whose heaviest load is at least max T_j: no bubble is left, so the "
    "placer passes it over.",
    "switch": "Warm start of a phase on a shared node, paid in every iteration; the gang is "
    "occupied for switch and run.",
    "restart": "Seconds without progress after a move or a failure, 197 to 419 s (paper).",
    "gap": "Cost over bound, integrated over a replay: online regret x heuristic loss x unproved "
    "rest.",
    "snapshot": "The jobs present at one moment, and their least-cost plan.",
    "trajectory": "The moments that a policy itself meets: sets of jobs, and for how long.",
    "synthetic": "Drawn by a generator, not measured.",
    "fifo": "Jobs wait first in, first out; in simulate, whoever is ready runs first.",
    "backfill": "Later jobs start before the first in the queue where that never delays it.",
    "residual": "repack-rule: a saving lasts until the first of the jobs planned together leaves, "
    "by the mean residual life fitted from departures so far.",
    "break-even": "repack-rule: a change is made once it would have paid had it been made when it "
    "became possible (ski rental).",
    "tightest": "tie-rule: of equally dear groups, the one whose nodes the job fills most.",
    "least-shrink": "tie-rule: the group whose room shrinks least.",
    "most-room": "tie-rule: the group with the most room left.",
    "nearest-deadline": "tie-rule: the group whose least deadline is nearest the job's.",
    "nearest-departure": "tie-rule: the group whose jobs leave nearest to the job.",
    "oldest": "tie-rule: the group that was opened first.",
}
WORDS: Final = (
    *entries("rule", "planner check, breaches", _RULES),
    *entries("method", "planner snapshot --method, bound_method", _METHODS),
    *entries("policy", "plan --policy, --baselines", _POLICIES),
    *entries("convention", "plan --durations", _CONVENTIONS),
    *entries("term", "", _TERMS),
)
