"""What one entry of the glossary is, and how units follow from a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["KINDS", "Entry", "entries", "unit_of"]

#: Every kind of word, with what it is, in the order of the list.
KINDS: Final[Mapping[str, str]] = {
    "input": "columns of a trace",
    "setting": "keys of cluster.toml, costs.toml and a study",
    "output": "columns of the files written, and keys of --json",
    "rule": "what planner check holds a plan to",
    "method": "of planner snapshot, and who proves a bound",
    "policy": "of plan --policy",
    "convention": "what ends a job's stay",
    "term": "words and symbols",
}
#: Units by how a name ends, the longest ending first.
_ENDINGS: Final[Mapping[str, str]] = {
    "_usd_per_gpu_hour": "$ a GPU and hour",
    "usd_per_gpu_hour": "$ a GPU and hour",
    "usd_per_train_gpu_hour": "$ a GPU and hour",
    "usd_per_node_hour": "$ a node and hour",
    "usd_per_node_month": "$ a node and month",
    "usd_per_node_year": "$ a node and year",
    "usd_per_work_hour": "$ an hour of work",
    "usd_per_hour_change": "share",
    "usd_per_hour_mean": "$/h",
    "usd_per_hour": "$/h",
    "usd_per_kwh": "$/kWh",
    "usd_per_node": "$ a node",
    "usd_total_recomputed": "$",
    "usd_total": "$",
    "_usd": "$",
    "_node_hours": "node-hours",
    "node_hours": "node-hours",
    "job_hours": "job-hours",
    "_hours": "h",
    "_state_gb": "GB a node",
    "_dram_gb": "GB a node",
    "_gb": "GB (1e9 bytes)",
    "_gbps": "Gb/s",
    "_tb_per_s": "TB/s",
    "_tflops": "TFLOPS",
    "_tokens": "tokens",
    "_nodes": "nodes",
    "_gpus": "GPUs",
    "_years": "years",
    "_fraction": "share, 0 to 1",
    "_attainment": "share, 0 to 1",
    "_share": "share, 0 to 1",
    "_ms": "ms",
    "_b": "1e9 parameters",
    "_h": "h",
    "_s": "s",
}
_WHOLE: Final[Mapping[str, str]] = {
    "usd": "$",
    "hours": "h",
    "nodes": "nodes",
    "gpus": "GPUs",
    "years": "years",
    "interest": "a year",
    "growth": "ratio",
    "ratio": "ratio",
    "trajectory_ratio": "ratio",
    "slo": "ratio",
    "slowdown": "ratio",
    "watts_per_gpu": "W",
    "watts_per_node": "W",
    "gpus_per_node": "GPUs",
    "min_gain_usd": "$",
}


def unit_of(name: str) -> str:
    """Return the unit that a name says, empty where it says none."""
    if name in _WHOLE:
        return _WHOLE[name]
    return next((unit for end, unit in _ENDINGS.items() if name.endswith(end)), "")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One word explained.

    Attributes
    ----------
    kind : str
        One of ``KINDS``.
    text : str
        One to four sentences.
    default : str
        What holds where nothing is given.
    source : str
        Where the number, or the rule, is from.
    where : str
        Where it shows or is given.
    """

    name: str
    kind: str
    text: str
    unit: str = ""
    default: str = ""
    source: str = ""
    where: str = ""


def entries(kind: str, where: str, texts: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return entries of one kind that show at one place; units of figures follow from the names."""
    return tuple(
        Entry(
            name=name,
            kind=kind,
            text=text,
            unit=unit_of(name) if kind == "output" else "",
            where=where,
        )
        for name, text in texts.items()
    )
