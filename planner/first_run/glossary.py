"""Every word that ``planner explain`` knows, and how one is found.

What the code already says is taken from there: defaults of ``cluster.toml`` and ``costs.toml`` from
what reads them, numbers of the estimator from their own table. The rest are the data of the modules
``glossary_*`` beside this one. Columns that only repeat a figure for a policy, a pool or one end of
an interval are explained through that figure.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from instances.errors import InputError
from planner.first_run import glossary_plan, glossary_size
from planner.first_run.entry import KINDS, Entry, unit_of
from planner.first_run.glossary_settings import CLUSTER, COSTS, STUDY, Words
from planner.first_run.glossary_trace import INPUTS
from planner.first_run.glossary_words import WORDS

__all__ = ["documented", "every_entry", "find", "found_words", "plain"]

#: What the end of a column's name says about the figure before it.
_ENDS: Final[Mapping[str, str]] = {
    "_low": "Lower end of the interval (95 % unless said) of",
    "_high": "Upper end of the interval (95 % unless said) of",
    "_mean": "Mean over drawn traces of",
    "_p5": "5th percentile over drawn traces of",
    "_p50": "Median over drawn traces of",
    "_p95": "95th percentile over drawn traces of",
}
_LEVELS: Final[Mapping[str, str]] = {
    "mean": "needed, mean over time",
    "p50": "that are enough for half of the time",
    "p95": "that are enough for 95 % of the time",
    "p99": "that are enough for 99 % of the time",
    "peak": "needed at once at most",
    "owned": "to own",
}
#: The one number of the estimator that its class names only in passing.
_COEFFICIENT: Final = (
    "Balance of a GPU, peak FLOP/s over memory bandwidth, below which train_mfu_low_balance holds "
    "in place of train_mfu."
)
_POOL_NODES: Final = re.compile(
    r"(?:(?P<a>mean|p50|p95|p99|peak|owned)_(?P<p>rollout|train)_nodes"
    r"|(?P<q>rollout|train)_nodes_(?P<b>mean|p50|p95|peak))"
)


def plain(word: str) -> str:
    """Return a word without what does not tell words apart: case, dashes, blanks."""
    return re.sub(r"[\s_-]+", "-", word.strip().lower())


# --- from what the code says ----------------------------------------------------------------------


def _settings(
    file: str, tables: Mapping[str, Mapping[str, Words]], defaults: Mapping[str, Any]
) -> Iterator[Entry]:
    """Yield the keys of one file; keys that several tables share with equal words once."""
    merged: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for table, keys in tables.items():
        for key, words in keys.items():
            value = defaults.get(table, {}).get(key)
            shown = (
                "" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"
            )
            merged.setdefault((key, words.text), []).append((table, shown, words.source))
    for (key, text), places in merged.items():
        brackets = ", ".join(f"[{table}]" if table else "the top" for table, _, _ in places)
        several = len({shown for _, shown, _ in places}) > 1
        default = "; ".join(
            f"{shown} ({table})" if several else shown for table, shown, _ in places if shown
        )
        yield Entry(
            name=key,
            kind="setting",
            text=text,
            unit=unit_of(key),
            default=default if several else default.partition("; ")[0],
            source="; ".join(dict.fromkeys(source for _, _, source in places if source)),
            where=f"{brackets} of {file}",
        )


def _cluster_defaults() -> dict[str, Any]:
    from instances.cluster_file import cluster_to_dict
    from instances.hardware import DEFAULT_CLUSTER

    tables = cluster_to_dict(DEFAULT_CLUSTER)
    return {name: table for name, table in tables.items() if isinstance(table, dict)}


def _cost_words() -> tuple[dict[str, Mapping[str, Words]], dict[str, Any]]:
    """Return words of costs.toml with the sources of the defaults, and these defaults."""
    from instances.hardware import DEFAULT_CLUSTER
    from planner.size.pool_costs import default_costs

    costs = default_costs(DEFAULT_CLUSTER)
    tables: dict[str, Mapping[str, Words]] = {}
    defaults: dict[str, Any] = {}
    for table, keys in COSTS.items():
        side = getattr(costs, table, costs.rollout if table == "site" else None)
        if side is None:
            tables[table] = keys
            continue
        found = {
            key: words._replace(source=side.sources.get(key, "")) for key, words in keys.items()
        }
        tables[table] = found
        defaults[table] = {key: getattr(side, key) for key in keys if key != "sources"}
    return tables, defaults


def documented(owner: type) -> dict[str, str]:
    """Return what the docstring of a class says about each attribute, by name."""
    text = inspect.getdoc(owner) or ""
    body = re.search(r"Attributes\n-+\n(.*?)(?:\n\n\w+\n-+\n|\Z)", text, re.DOTALL)
    out: dict[str, str] = {}
    names: list[str] = []
    for line in body[1].splitlines() if body else ():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(":")[0].split(",")]
        else:
            for name in names:
                out[name] = f"{out.get(name, '')} {line.strip()}".strip()
    return out


def _code(text: str) -> str:
    return text.replace("``", "")


def _coefficients() -> Iterator[Entry]:
    """Yield the numbers of the estimator, with unit, default and source of their own table."""
    from instances.coefficients import Coefficients, coefficient_rows

    words = documented(Coefficients)
    for row in coefficient_rows():
        yield Entry(
            name=row.name,
            kind="setting",
            text=_code(words.get(row.name, _COEFFICIENT)),
            unit=row.unit,
            default=f"{row.value:g}",
            source=f"{row.kind}: {row.source}",
            where="--coefficients",
        )


def _repack() -> Iterator[Entry]:
    from planner.policies.repack_params import RepackParams

    for name, text in documented(RepackParams).items():
        yield Entry(
            name=name, kind="setting", text=_code(text), unit=unit_of(name), where="policy repack"
        )


@lru_cache(maxsize=1)
def every_entry() -> tuple[Entry, ...]:
    """Return every entry, kind by kind, each by name; a name may have several."""
    cost_words, cost_defaults = _cost_words()
    found = (
        *INPUTS,
        *_settings("cluster.toml", CLUSTER, _cluster_defaults()),
        *_settings("costs.toml", cost_words, cost_defaults),
        *_settings("a study", STUDY, {}),
        *_coefficients(),
        *_repack(),
        *glossary_plan.OUTPUTS,
        *glossary_size.OUTPUTS,
        *WORDS,
    )
    order = list(KINDS)
    return tuple(sorted(found, key=lambda entry: (order.index(entry.kind), entry.name)))


# --- finding one ----------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _by_name() -> dict[str, list[Entry]]:
    out: dict[str, list[Entry]] = {}
    for entry in every_entry():
        out.setdefault(plain(entry.name), []).append(entry)
    return out


def _exact(word: str) -> list[Entry]:
    return list(_by_name().get(plain(word), ()))


def _derived(word: str) -> list[Entry]:
    """Return the entry of a column that repeats a figure: of one end, a pool, or a policy."""
    name = plain(word).replace("-", "_")
    match = _POOL_NODES.fullmatch(name)
    if match:
        level, pool = match["a"] or match["b"], match["p"] or match["q"]
        text = f"Nodes of the {pool} pool {_LEVELS[level]}."
        return [Entry(name=name, kind="output", text=text, unit="nodes", where="files and --json")]
    for end, words in _ENDS.items():
        for base in found_words(name.removesuffix(end)) if name.endswith(end) else ():
            if base.kind == "output":
                text = f"{words} {base.name}. {base.name}: {base.text}"
                return [
                    Entry(name=name, kind="output", text=text, unit=base.unit, where=base.where)
                ]
    for policy in (entry.name for entry in every_entry() if entry.kind == "policy"):
        start = plain(policy).replace("-", "_") + "_"
        for base in _exact(name.removeprefix(start)) if name.startswith(start) else ():
            if base.kind == "output":
                text = f"Of policy {policy}: {base.text}"
                return [
                    Entry(name=name, kind="output", text=text, unit=base.unit, where=base.where)
                ]
    return []


def _of_kind(word: str) -> list[Entry]:
    """Return the entries of a word that ends in their kind, ``work convention`` say."""
    name, _, kind = plain(word).rpartition("-")
    return [entry for entry in _exact(name) if entry.kind == kind]


def found_words(word: str) -> list[Entry]:
    """Return every entry of a word, whatever its case, dashes or underscores; empty: none."""
    return _exact(word) or _derived(word) or _of_kind(word)


def find(word: str) -> list[Entry]:
    """Return every entry of a word.

    Raises
    ------
    InputError
        When there is none; the message has the nearest words.
    """
    found = found_words(word)
    if found:
        return found
    known = {plain(entry.name): entry.name for entry in every_entry()}
    near = difflib.get_close_matches(plain(word), known, n=3, cutoff=0.6)
    guess = ", ".join(f"'{known[name]}'" for name in near)
    hint = f" Did you mean {guess}?" if guess else ""
    raise InputError(f"Unknown word '{word}'.{hint} planner explain --all lists them all.")
