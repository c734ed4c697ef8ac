"""What the shell may complete: names of policies, methods, parts, traces, one or in a list.

Called at every press of Tab, so only light modules are imported, and only here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

__all__ = [
    "DRIFT_POLICIES",
    "DRIFT_SETTINGS",
    "REPORT_PARTS",
    "SIMULATE_PARTS",
    "STUDIES",
    "catalog_names",
    "drift_policies",
    "drift_settings",
    "explained_kinds",
    "explained_words",
    "generators",
    "levels",
    "listed",
    "methods",
    "oracles",
    "policies",
    "profile_kinds",
    "profiles",
    "repack_rules",
    "report_parts",
    "simulate_parts",
    "size_parts",
    "studies",
    "tie_rules",
]

#: As in :mod:`planner.report`, :mod:`planner.simulate` and :mod:`planner.reproduce`, whose
#: import takes too long for a press of Tab.
REPORT_PARTS: Final = ("size", "simulate", "gap")
SIMULATE_PARTS: Final = ("runtime", "failures", "migration", "drift")
DRIFT_SETTINGS: Final = ("none", "increasing", "decreasing", "mixed")
DRIFT_POLICIES: Final = (
    "weave",
    "regroup",
    "payback",
    "resubmit",
    "repack",
    "random",
    "most-idle",
    "solo",
)
STUDIES: Final = ("micro", "migration", "drift")

Completion = Callable[[str], list[str]]


def listed(names: Completion) -> Completion:
    """Return the completion of a list with commas; names that are there are not offered again."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        given = before.split(",")
        return [f"{before}{comma}{name}" for name in names(last) if name not in given]

    return complete


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def policies(incomplete: str) -> list[str]:
    """Return the policies that start so."""
    from planner.policies.registry import POLICIES

    return _starting(POLICIES, incomplete)


def methods(incomplete: str) -> list[str]:
    """Return the methods of ``planner snapshot``."""
    from planner.snapshot.solving import SNAPSHOT_METHODS

    return _starting(SNAPSHOT_METHODS, incomplete)


def tie_rules(incomplete: str) -> list[str]:
    """Return the orders of equally dear groups."""
    from planner.placement.tie_rules import TIE_RULES

    return _starting(TIE_RULES, incomplete)


def size_parts(incomplete: str) -> list[str]:
    """Return the parts of ``planner size``."""
    from planner.size.params import PARTS

    return _starting(PARTS, incomplete)


def report_parts(incomplete: str) -> list[str]:
    """Return the parts of ``planner report``."""
    return _starting(REPORT_PARTS, incomplete)


def simulate_parts(incomplete: str) -> list[str]:
    """Return the parts of ``planner simulate``."""
    return _starting(SIMULATE_PARTS, incomplete)


def drift_settings(incomplete: str) -> list[str]:
    """Return the ways lengths drift."""
    return _starting(DRIFT_SETTINGS, incomplete)


def drift_policies(incomplete: str) -> list[str]:
    """Return the policies that drift is studied with."""
    return _starting(DRIFT_POLICIES, incomplete)


def repack_rules(incomplete: str) -> list[str]:
    """Return the rules of how long a saving lasts."""
    from planner.policies.repack_params import RULES

    return _starting(RULES, incomplete)


def oracles(incomplete: str) -> list[str]:
    """Return what may be known of the future."""
    from planner.policies.repack_params import ORACLES

    return _starting(ORACLES, incomplete)


def levels(incomplete: str) -> list[str]:
    """Return the rollouts one may plan for."""
    return _starting(("p50", "p95", "p99", "max"), incomplete)


def studies(incomplete: str) -> list[str]:
    """Return the studies of ``planner reproduce`` beyond placement."""
    return _starting(STUDIES, incomplete)


def generators(incomplete: str) -> list[str]:
    """Return what ``planner generate`` makes."""
    from instances.generate import GENERATORS

    return _starting(GENERATORS, incomplete)


def profile_kinds(incomplete: str) -> list[str]:
    """Return the kinds of generated profiles."""
    from instances.profiles import KINDS

    return _starting(KINDS, incomplete)


def profiles(incomplete: str) -> list[str]:
    """Return the profiles that imported jobs may be given."""
    from instances.profiles import PROFILES

    return _starting(PROFILES, incomplete)


def catalog_names(incomplete: str) -> list[str]:
    """Return the shipped traces that start so; of nothing none, so that the shell offers files."""
    from instances.catalog import CATALOG

    return _starting(CATALOG, incomplete) if incomplete else []


def explained_words(incomplete: str) -> list[str]:
    """Return the words of ``planner explain`` that start so, each once, without blanks."""
    from planner.first_run.glossary import every_entry

    names = dict.fromkeys(entry.name for entry in every_entry() if " " not in entry.name)
    return _starting(names, incomplete)


def explained_kinds(incomplete: str) -> list[str]:
    """Return the kinds of words of ``planner explain``."""
    from planner.first_run.entry import KINDS

    return _starting(KINDS, incomplete)
