"""Which of this project's settings files a table is, by its keys.

A file given to the wrong option has no key in its place: one sentence says so, not one a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from instances.errors import InputError

__all__ = ["KEYS", "refuse_other_kind"]

#: Kind, its name and where such a file is given.
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "cluster": ("a cluster file", "give it to --cluster"),
    "costs": ("a cost file", "give it to --costs"),
    "coefficients": ("a file of coefficients", "give it to --coefficients"),
    "study": ("a study", "give it to planner sweep"),
}
#: Keys of each kind by table, ``""`` for those of the top; a test holds them to the schemas.
KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "cluster": {
        "": "rollout train links model",
        "rollout": (
            "gpu hbm_gb hbm_tb_per_s bf16_tflops usd_per_gpu_hour gpus_per_node host_dram_gb"
        ),
        "train": (
            "gpu hbm_gb hbm_tb_per_s bf16_tflops usd_per_gpu_hour gpus_per_node host_dram_gb"
        ),
        "links": "intra_gbps inter_gbps links flat_over_hierarchical",
        "model": "model_b rollout_state_gb train_state_gb rollout_switch_s train_switch_s",
    },
    "costs": {
        "": "site rollout train budget period",
        "site": "pue usd_per_kwh",
        "rollout": (
            "pue usd_per_kwh rent_usd_per_gpu_hour own_usd_per_gpu_hour usd_per_node "
            "depreciation_years interest residual_share watts_per_gpu watts_per_node "
            "hosting_usd_per_node_month staff_usd_per_node_year max_rented_nodes "
            "max_owned_nodes lease_block_h sources"
        ),
        "train": (
            "pue usd_per_kwh rent_usd_per_gpu_hour own_usd_per_gpu_hour usd_per_node "
            "depreciation_years interest residual_share watts_per_gpu watts_per_node "
            "hosting_usd_per_node_month staff_usd_per_node_year max_rented_nodes "
            "max_owned_nodes lease_block_h sources"
        ),
        "budget": "capex_usd",
        "period": "years growth own_price_factor rent_price_factor capex_usd",
    },
    "coefficients": {
        "": (
            "bandwidth_efficiency decode_compute_efficiency train_mfu train_mfu_low_balance "
            "low_balance_flop_per_byte logprob_passes hbm_share max_running_sequences "
            "parallel_step_overhead_s prompt_tokens mean_to_max_ratio tensor_parallel"
        ),
    },
    "study": {
        "": (
            "name cluster coefficients policies conventions seeds replications "
            "runtime_replications trace axes bootstrap case"
        ),
        "trace": "name file generator jobs seeds gangs concurrent kind",
        "axes": (
            "max_group_size max_rate host_dram_gb rollout_host_dram_gb train_host_dram_gb "
            "rollout_usd_per_gpu_hour train_usd_per_gpu_hour price_ratio slo_scale "
            "inter_gbps objective tie_rule fleet queue growth"
        ),
        "bootstrap": "seed block_h",
        "case": (
            "max_group_size max_rate host_dram_gb rollout_host_dram_gb train_host_dram_gb "
            "rollout_usd_per_gpu_hour train_usd_per_gpu_hour price_ratio slo_scale "
            "inter_gbps objective tie_rule fleet queue growth name policies conventions"
        ),
    },
}


def refuse_other_kind(data: Any, kind: str, source: str) -> None:
    """Refuse a table whose keys are mostly those of another kind of file.

    Parameters
    ----------
    data : dict
        Nested tables, as read from TOML.
    kind : str
        What the reader expects, a name of :data:`KEYS`.
    source : str
        Name put in front of the error.

    Raises
    ------
    InputError
        When more than half of the keys belong to another kind, and fewer to this one.
    """
    paths = list(_paths(data))
    shares = {
        name: sum(key in tables.get(table, "").split() for table, key in paths)
        for name, tables in KEYS.items()
    }
    best = max(shares, key=lambda name: shares[name])
    if 2 * shares[best] > len(paths) and shares[best] > shares[kind]:
        words, where = _WORDS[best]
        raise InputError(
            f"{source}: Expected {_WORDS[kind][0]}; these are keys of {words}: {where}."
        )


def _paths(data: Any) -> Iterator[tuple[str, str]]:
    """Yield each key with its table."""
    for name, value in data.items() if isinstance(data, dict) else ():
        tables = value if isinstance(value, list) else [value]
        inner = [table for table in tables if isinstance(table, dict)]
        if not inner:
            yield "", str(name)
        for table in inner:
            for key in table:
                yield str(name), str(key)
