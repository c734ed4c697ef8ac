"""Words for every column of a trace, by name; symbols are those of FORMULATION section 1."""

from __future__ import annotations

from typing import Final

from planner.first_run.entry import Entry, unit_of

__all__ = ["INPUTS"]

_MODEL: Final = "from model_b, by the [[model]] table of cluster.toml; labelled estimated"
_NONE: Final = "left out: unknown; carried to the outputs"
_PHASE: Final = (
    "from model_b, max_tokens, prompts_per_step and samples_per_prompt; labelled estimated"
)
#: Column: meaning, default, source of the default.
_COLUMNS: Final[dict[str, tuple[str, str, str]]] = {
    "job_id": ("Name of the job: any distinct text of at most 200 letters.", "needed", ""),
    "mode": (
        "sync: rollout, train, sync, then the next rollout. one-step: one step off policy, the "
        "next rollout may overlap with training. async: no bubble, so dedicated nodes.",
        "sync",
        "",
    ),
    "arrival_s": (
        "When the job arrives, from any common start. Rows need not be sorted.",
        "needed",
        "",
    ),
    "duration_s": (
        "How long the job would run alone. Divided by T_j it is the number of iterations.",
        "needed, or iterations",
        "",
    ),
    "iterations": ("Iterations that the job does, in place of duration_s.", "duration_s / T_j", ""),
    "slo": (
        "sigma_j, tolerated slowdown, at least 1: the mean iteration may take D_j = slo x T_j.",
        "needed",
        "",
    ),
    "rollout_s": (
        "r_j, worst-case seconds of the rollout of one iteration (every response reaches the token "
        "limit), on the job's own nodes.",
        _PHASE,
        "roofline estimate, instances/estimate.py",
    ),
    "train_s": (
        "t_j, worst-case seconds of the training of one iteration, on the job's own nodes.",
        _PHASE,
        "6 x parameters x tokens over the reachable peak, instances/estimate.py",
    ),
    "sync_s": (
        "s_j, seconds from the end of training until the next rollout may start. Measured, it "
        "stands before sync_gb.",
        "from sync_gb by the links: one copy between the clusters, then a local broadcast",
        "instances/network.py; assumes that the link is free",
    ),
    "sync_gb": ("Bytes of new weights to send.", "2 bytes x model_b; labelled estimated", "bf16"),
    "rollout_nodes": ("a^R_j, whole nodes that a rollout occupies at once (a gang).", "1", ""),
    "train_nodes": ("a^T_j, whole nodes that training occupies at once (a gang).", "1", ""),
    "rollout_state_gb": (
        "m^R_j, host DRAM kept on each of its rollout nodes while the job is resident.",
        _MODEL,
        "paper at 7B and 32B; 3B and 14B are guesses",
    ),
    "train_state_gb": (
        "m^T_j, host DRAM kept on each of its train nodes while the job is resident.",
        _MODEL,
        "paper at 7B and 32B",
    ),
    "rollout_switch_s": (
        "w^R_j, warm start of a rollout, paid in every iteration in which one of its nodes has two "
        "or more jobs pinned.",
        _MODEL,
        "paper at 7B and 70B",
    ),
    "train_switch_s": (
        "w^T_j, warm start of a training phase, likewise.",
        _MODEL,
        "paper at 7B and 70B",
    ),
    "model_b": (
        "Size of the model. Fills in state, switches, sync and restart where their columns are "
        "empty, labelled estimated.",
        "needed where those are empty",
        "",
    ),
    "max_tokens": ("Longest response, the token limit.", _NONE, ""),
    "prompts_per_step": ("Prompts of one iteration.", _NONE, ""),
    "samples_per_prompt": ("Responses drawn for each prompt.", _NONE, ""),
    "rollout_p50_s": ("Median seconds of a rollout, measured.", _NONE, ""),
    "rollout_p95_s": ("Seconds that 95 % of rollouts do not exceed, measured.", _NONE, ""),
    "train_p50_s": ("Median seconds of a training phase, measured.", _NONE, ""),
    "train_p95_s": ("Seconds that 95 % of training phases do not exceed, measured.", _NONE, ""),
    "response_p50_tokens": ("Median length of a response, measured.", _NONE, ""),
    "response_p95_tokens": ("Length that 95 % of responses do not exceed, measured.", _NONE, ""),
    "response_p99_tokens": ("Length that 99 % of responses do not exceed, measured.", _NONE, ""),
    "restart_s": (
        "Seconds without progress after a move or a failure. Only repack, regroup and failures "
        "restart jobs.",
        "from model_b, 197 s at 7B to 419 s at 32B; without it 419 s",
        "paper",
    ),
}
INPUTS: Final = tuple(
    Entry(
        name=name,
        kind="input",
        text=text,
        unit={"samples_per_prompt": "", "prompts_per_step": ""}.get(name, unit_of(name)),
        default=default,
        source=source,
        where="the trace",
    )
    for name, (text, default, source) in _COLUMNS.items()
)
