"""``cluster.toml`` and ``costs.toml`` to edit: every key of the schema, its default, and its words.

Which keys there are comes from the schema that reads the files, the numbers from the defaults, the
words from :mod:`planner.first_run.glossary_settings`: none of them can drift from what is read.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from instances.cluster_file import ClusterTables, cluster_to_dict
from instances.hardware import DEFAULT_CLUSTER
from planner.first_run.entry import unit_of
from planner.first_run.glossary_settings import CLUSTER, COSTS, Words

__all__ = ["cluster_toml", "costs_toml"]

_WIDTH: Final = 88
#: What an editor may put where a key has no default.
_EXAMPLES: Final[Mapping[str, str]] = {
    "links": "4",
    "flat_over_hierarchical": "2.7",
    "own_usd_per_gpu_hour": "2.10",
    "max_rented_nodes": "20",
    "max_owned_nodes": "50",
    "capex_usd": "5_000_000",
}
_CLUSTER_HEAD: Final = (
    "The cluster: two pools of GPU nodes and the links between them. Read by --cluster.",
    "Every key may be left out; it then has the value that stands here. Change the prices and the "
    "host DRAM first. What follows a # is not read.",
    "Source: where the number is from. Paper: Weave (OSDI 2026; preprint RollMux, arXiv "
    "2512.11306). Guess: nobody measured or published it.",
)
_COSTS_HEAD: Final = (
    "What nodes cost, owned and rented. Read by planner size --costs.",
    "Every number here is the default, most of them guesses, and is not read until you remove the "
    "# before its key: so answers go on naming the guesses that you have not replaced.",
)
_AS_ABOVE: Final = "Keys as in [rollout]."
_TITLES: Final[Mapping[str, str]] = {
    "rollout": "Pool that generates responses (rollout)",
    "train": "Pool that updates weights (train)",
    "links": "Network",
    "model": "State and warm switches of a job, by size of its model: one table each",
    "site": "Power of both pools, unless a pool says otherwise",
    "budget": "Most that purchases may cost",
    "period": "Purchase periods, one table each; left out: one, of the demand as it is",
}


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _title(table: str) -> list[str]:
    words = f"# --- {_TITLES[table]} "
    return ["", words.ljust(_WIDTH, "-")]


def _words(words: Words, source: str, *, said: bool = False) -> list[str]:
    """Return the comment above a key: its meaning, unless said before, and its source."""
    origin = f"{source[0].upper()}{source[1:]}." if source.startswith("guess") else ""
    if source and not origin:
        origin = f"Source: {source}."
    return ([] if said else ["", *_comment(words.text)]) + (_comment(origin) if origin else [])


def _line(key: str, value: str, *, read: bool) -> str:
    """Return a key with its value, and its unit behind; one that is not read behind a #."""
    start, unit = f"{'' if read else '#'}{key} = {value}", unit_of(key)
    return f"{start:<38} # {unit}" if unit else start


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value).removesuffix(".0")


def _head(paragraphs: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += _comment(paragraph)
        lines.append("#")
    return lines[:-1]


# --- cluster.toml ---------------------------------------------------------------------------------


def _keys(schema: Any, table: str) -> tuple[str, ...]:
    """Return the keys of one table of a file, in the schema's order."""
    annotation = schema.model_fields[table].annotation
    for part in (annotation, *getattr(annotation, "__args__", ())):
        for inner in (part, *getattr(part, "__args__", ())):
            if hasattr(inner, "model_fields"):
                return tuple(inner.model_fields)
    raise TypeError(f"Expected a table at '{table}', got {annotation}.")


def cluster_toml() -> str:
    """Return the default cluster as a commented file."""
    default = cluster_to_dict(DEFAULT_CLUSTER)
    lines = _head(_CLUSTER_HEAD)
    for table in ClusterTables.model_fields:
        words = CLUSTER[table]
        lines += _title(table)
        if table == "model":
            lines += _models(words, default[table])
            continue
        lines.append(f"[{table}]")
        if table == "train":
            lines += _comment(_AS_ABOVE)
        for key in _keys(ClusterTables, table):
            lines += _words(words[key], words[key].source, said=table == "train")
            there = key in default[table]
            value = _value(default[table][key]) if there else _EXAMPLES[key]
            lines.append(_line(key, value, read=there))
    return "\n".join(lines) + "\n"


def _models(words: Mapping[str, Words], points: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for key in _keys(ClusterTables, "model"):
        lines += _words(words[key]._replace(text=f"{key}: {words[key].text}"), words[key].source)
    for point in points:
        lines += ["", "[[model]]", *(_line(key, _value(point[key]), read=True) for key in point)]
    return lines


# --- costs.toml -----------------------------------------------------------------------------------


def costs_toml() -> str:
    """Return the default costs of the default cluster; no key is read until it is uncommented."""
    from planner.size.cost_file import CostTables
    from planner.size.pool_costs import Period, default_costs

    costs = default_costs(DEFAULT_CLUSTER)
    lines = _head(_COSTS_HEAD)
    for table in CostTables.model_fields:
        words = COSTS[table]
        lines += _title(table)
        optional = table in ("budget", "period")  # a table that is there changes the answer
        brackets = f"[[{table}]]" if table == "period" else f"[{table}]"
        lines.append(f"#{brackets}" if optional else brackets)
        if table == "train":
            lines += _comment(_AS_ABOVE)
        pool: Any = getattr(costs, table, None) or (Period() if optional else costs.rollout)
        for key in _keys(CostTables, table):
            if key == "sources":
                continue
            source = getattr(pool, "sources", {}).get(key, words[key].source)
            lines += _words(words[key], source, said=table == "train")
            value = getattr(pool, key)
            text = _EXAMPLES[key] if value is None else _value(round(value, 2))
            lines.append(_line(key, text, read=False))
        if "sources" in words:
            lines += ["", *_comment(words["sources"].text)]
            lines += [f"#[{table}.sources]", '#usd_per_node = "quote of a dealer, 2026-10"']
    return "\n".join(lines) + "\n"
