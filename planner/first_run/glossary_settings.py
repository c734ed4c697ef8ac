"""Words for every key of ``cluster.toml``, ``costs.toml`` and a study.

``planner init`` writes them as comments and ``planner explain`` prints them. Which keys there are,
and their defaults, is not said here: that is the schema's, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["CLUSTER", "COSTS", "STUDY", "Words"]


class Words(NamedTuple):
    """What a key means, and where its default is from ("guess" where nobody published it)."""

    text: str
    source: str = ""


_PRICE: Final = (
    "Price of renting one GPU for an hour; a node costs gpus_per_node times that. Put in your own "
    "first."
)
_POOL: Final[Mapping[str, Words]] = {
    "gpu": Words("Name of the GPU, as answers print it."),
    "hbm_gb": Words(
        "Memory of one GPU. Only the estimator of phase seconds reads it.", "specification pages"
    ),
    "hbm_tb_per_s": Words(
        "Memory bandwidth of one GPU. Only the estimator reads it.", "specification pages"
    ),
    "bf16_tflops": Words(
        "Peak of one GPU in bf16, dense. Only the estimator reads it.", "specification pages"
    ),
    "usd_per_gpu_hour": Words(
        _PRICE, "secondary report of the paper; no public hourly price of an H20 was found"
    ),
    "gpus_per_node": Words("GPUs of one node. A phase occupies whole nodes.", "paper"),
    "host_dram_gb": Words(
        "M, host DRAM of one node: the states of all jobs pinned to it must fit.",
        "paper, 1 to 2 TB: its upper end",
    ),
}
#: By table of cluster.toml.
CLUSTER: Final[Mapping[str, Mapping[str, Words]]] = {
    "rollout": _POOL,
    "train": {
        **_POOL,
        "usd_per_gpu_hour": Words(
            _PRICE, "secondary report of the paper: 2.85 x the H20, a ratio in the paper"
        ),
    },
    "links": {
        "intra_gbps": Words("Bandwidth of a link inside a cluster.", "paper"),
        "inter_gbps": Words("Bandwidth of a link between the two clusters.", "paper"),
        "links": Words(
            "Number of links between the two clusters. Left out: one per 16 nodes of the larger "
            "pool. Plans warn where sync traffic exceeds them.",
            "guess",
        ),
        "flat_over_hierarchical": Words(
            "Seconds of a flat collective over those of one copy and a local broadcast, measured. "
            "Left out: the simple model. Only the sync kinds of planner size read it."
        ),
    },
    "model": {
        "model_b": Words("Size of the model. Between two sizes, numbers follow a straight line."),
        "rollout_state_gb": Words(
            "Host DRAM that a job keeps on each of its rollout nodes.",
            "paper at 7 and 32; 3 and 14 are guesses, 70 is as 32",
        ),
        "train_state_gb": Words(
            "Host DRAM that a job keeps on each of its train nodes.",
            "paper at 7 and 32; between them a line, outside as the nearest",
        ),
        "rollout_switch_s": Words(
            "Warm start of a rollout on a node that several jobs share, paid in every iteration.",
            "paper at 7 and 70; a line between",
        ),
        "train_switch_s": Words(
            "Warm start of a training phase, likewise.", "paper at 7 and 70; a line between"
        ),
    },
}

_COST_POOL: Final[Mapping[str, Words]] = {
    "rent_usd_per_gpu_hour": Words(
        "Price of renting one GPU for an hour. Left out: usd_per_gpu_hour of the cluster."
    ),
    "own_usd_per_gpu_hour": Words(
        "What owning one GPU costs an hour in all, used or idle. Given, it takes the place of "
        "purchase, power, hosting and staff; left out, they are added up."
    ),
    "usd_per_node": Words("Purchase price of one node."),
    "depreciation_years": Words("Years in service."),
    "interest": Words("Interest a year, 0.08 is 8 %."),
    "residual_share": Words("Share of the purchase price that a node is sold for afterwards."),
    "watts_per_gpu": Words("Power of one GPU at full load, which is assumed at all times."),
    "watts_per_node": Words("Power of one node, all but its GPUs."),
    "pue": Words("Power of the site over that of its nodes, at least 1."),
    "usd_per_kwh": Words("Price of power."),
    "hosting_usd_per_node_month": Words("Space, cooling and network of one node, a month."),
    "staff_usd_per_node_year": Words("Staff and spare parts of one node, a year."),
    "max_rented_nodes": Words("Most nodes that can be rented at once. Left out: any number."),
    "max_owned_nodes": Words("Most nodes that can be owned. Left out: any number."),
    "lease_block_h": Words(
        "A rented node is taken and paid for so long at least. 0: paid as used."
    ),
    "sources": Words(
        "Where your numbers are from, by key, as text. One with the word guess in it is listed "
        "as guessed in every answer."
    ),
}
#: By table of costs.toml.
COSTS: Final[Mapping[str, Mapping[str, Words]]] = {
    "site": {key: _COST_POOL[key] for key in ("pue", "usd_per_kwh")},
    "rollout": _COST_POOL,
    "train": _COST_POOL,
    "budget": {
        "capex_usd": Words(
            "Most that purchases of both pools may cost together. Left out: any amount. With "
            "[[period]] it goes in a period."
        )
    },
    "period": {
        "years": Words("Length of one purchase period."),
        "growth": Words("Demand in the period over that of the trace; nodes are rounded up."),
        "own_price_factor": Words("Purchase prices in the period over today's."),
        "rent_price_factor": Words("Rents in the period over today's."),
        "capex_usd": Words(
            "Most that the purchases of the period may cost; what is left is not carried over. "
            "Left out: any amount."
        ),
    },
}

_AXES: Final[Mapping[str, Words]] = {
    "max_group_size": Words("Most jobs in a group; 0: no limit.", "the paper's simulations: 5"),
    "max_rate": Words("Most iterations of a job per period of its group, k_j <= max_rate."),
    "host_dram_gb": Words("Host DRAM of a node of either pool."),
    "rollout_host_dram_gb": Words("Host DRAM of a rollout node."),
    "train_host_dram_gb": Words("Host DRAM of a train node."),
    "rollout_usd_per_gpu_hour": Words("Price of a rollout GPU."),
    "train_usd_per_gpu_hour": Words("Price of a train GPU."),
    "price_ratio": Words("Price of a train GPU over that of a rollout GPU."),
    "slo_scale": Words("Scales the tolerated slack of every job: 1 + f (slo - 1)."),
    "inter_gbps": Words(
        "Link between the clusters; sync seconds that the trace leaves out follow."
    ),
    "objective": Words("What placing a job minimises: per-hour or per-iteration."),
    "tie_rule": Words("Order of equally dear groups, as plan --tie-rule."),
    "fleet": Words('Rollout and train nodes that there are, such as "24,13"; "none": no limit.'),
    "queue": Words("How jobs wait for a fleet: fifo or backfill."),
    "growth": Words("Arrivals of bootstrapped copies over those of the trace."),
}
#: By table of a study; "" holds its top.
STUDY: Final[Mapping[str, Mapping[str, Words]]] = {
    "": {
        "name": Words("Name of the study. Left out: that of the file."),
        "cluster": Words("A cluster.toml, relative to the study. Left out: the default cluster."),
        "coefficients": Words("A TOML file of the estimator's numbers."),
        "policies": Words("Policies to replay each trace by."),
        "conventions": Words("What ends a stay: work, wallclock or both."),
        "seeds": Words("Seeds of policies that draw (random); others run once."),
        "replications": Words("Bootstrapped copies of each trace; 0: the trace as it is."),
        "runtime_replications": Words("Runs of each plan with lengths drawn; 0: none."),
        "trace": Words("One table [[trace]] a trace: a file, or a generator."),
        "axes": Words("One value or a list for each axis; all are combined."),
        "bootstrap": Words("How copies of a trace are drawn."),
        "case": Words("One table [[case]] a named setting, in place of the study's own values."),
    },
    "trace": {
        "name": Words("Name of the trace in the table. Left out: that of its file."),
        "file": Words("A trace, relative to the study."),
        "generator": Words("Name of a generator, as planner generate takes it."),
        "jobs": Words("Jobs to generate."),
        "seeds": Words("Seeds of the generator, one trace each."),
        "gangs": Words("Whether phases occupy 1, 2 or 4 nodes (production)."),
        "concurrent": Words("Whether all jobs are present at once (production)."),
        "kind": Words("balanced, rollout-heavy, train-heavy or mixed (profiles)."),
    },
    "axes": _AXES,
    "bootstrap": {
        "seed": Words("Seed of the first copy; copy i is drawn by seed + i - 1."),
        "block_h": Words("Hours of arrivals that are redrawn as one block."),
    },
    "case": {
        **_AXES,
        "name": Words("Name of the case in the table."),
        "policies": Words("Policies of this case."),
        "conventions": Words("Conventions of this case."),
    },
}
