"""Which rule a set of jobs breaks, and its cures, whatever the rates: strict or several.

With one iteration a period for every job, :mod:`models.why_not.rules` says all. With ``max_rate``
``K`` above 1 a set fails at every rate vector worth trying (:mod:`models.group.rate_vectors`), so
the rule told is the first one at which the last vector falls:

* ``max_group_size`` and ``residency``: as there, rates do not matter;
* ``slo``: no rates of at most ``K`` keep every SLO, ``k_j T_j <= C <= k_j D_j``;
* ``load``: at each of the rates, every pinning within host DRAM has a node with more than ``C``
  seconds of phases;
* ``precedence``: at some rates loads admit pinnings, and yet no schedule exists.

Cures are nodes and GB, each the least of its kind; where these are not enough, SLOs that let all
jobs iterate at the pace of the longest, not proved the least.
"""

from __future__ import annotations

from dataclasses import replace

from models.group.pinnings import PoolLoads, pinnings
from models.group.rate_vectors import RateVector, rate_vectors
from models.problem.options import Deadline
from models.why_not.cures import cures_of, slos_for
from models.why_not.explanation import POOLS, Cure, counted, names_of, number, sentence
from models.why_not.rules import Asked, broken_rule, residency_words, shortest_of

__all__ = ["told"]


def told(asked: Asked, deadline: Deadline) -> tuple[str, str, list[Cure]]:
    """Return the rule that jobs in conflict break, the words for it, and the cures."""
    size = asked.snapshot.limits.max_group_size
    base = Cure(max_group_size=len(asked.all)) if 0 < size < len(asked.all) else Cure()
    if asked.snapshot.limits.max_rate == 1 or base != Cure():
        shortest = shortest_of(asked, base, deadline)
        rule, message = broken_rule(asked, shortest, deadline)
        return rule, message, cures_of(asked, base, shortest, deadline)
    rule, message = _broken(asked, deadline)
    return rule, message, _cures(asked, base, deadline)


def _broken(asked: Asked, deadline: Deadline) -> tuple[str, str]:
    """Return the first broken rule of the module docstring, and the words for it."""
    jobs, most = asked.jobs, asked.snapshot.limits.max_rate
    binding = min(jobs, key=lambda job: job.deadline_s)
    for pool in (0, 1):
        words = residency_words(asked, pool, binding, deadline)
        if words is not None:
            return "residency", words
    vectors = rate_vectors([job.deadline_s for job in jobs], [job.solo_s for job in jobs], most)
    if not vectors:
        longest = max(jobs, key=lambda job: job.solo_s)
        return "slo", (
            f"{sentence(names_of(jobs))} have no period in common: with at most {most} iterations "
            f"a period (max_rate), none keeps every SLO. Job {longest.job_id} takes "
            f"{number(longest.solo_s)} s an iteration even alone; job {binding.job_id} may take "
            f"{number(binding.deadline_s)} s at most."
        )
    where = " and ".join(counted(asked.nodes[pool], f"{POOLS[pool]} node") for pool in (0, 1))
    admitted = [vector for vector in vectors if _loads_admit(asked, vector)]
    if not admitted:
        return "load", (
            f"{sentence(names_of(jobs))} on {where}: at all rates that keep every SLO "
            f"({_rates_words(vectors)}) some node carries more phases than the period is long."
        )
    return "precedence", (
        f"{sentence(names_of(jobs))} on {where}: each node has time for its phases at some rates "
        f"that keep every SLO ({_rates_words(admitted)}), but no order of the phases fits."
    )


def _loads_admit(asked: Asked, vector: RateVector) -> bool:
    """Return whether both pools have a pinning within loads and DRAM at these rates."""
    return all(
        next(
            pinnings(
                _times(asked.loads[pool], vector.rates),
                asked.nodes[pool],
                vector.period_s,
                asked.dram_gb[pool],
            ),
            None,
        )
        is not None
        for pool in (0, 1)
    )


def _times(loads: PoolLoads, rates: tuple[int, ...]) -> PoolLoads:
    return loads.take(range(len(rates)), rates)


def _rates_words(vectors: list[RateVector]) -> str:
    """Return the rates in the order of the jobs, and their period: the first of several."""
    period, rates = vectors[0]
    each = " + ".join(map(str, rates))
    more = f" and {counted(len(vectors) - 1, 'more choice')}" if len(vectors) > 1 else ""
    return f"{each} iterations in {number(period)} s{more}"


def _cures(asked: Asked, base: Cure, deadline: Deadline) -> list[Cure]:
    """Return the least change of nodes and of GB, else SLOs that are enough."""
    found = cures_of(asked, base, None, deadline)
    if found or deadline.expired:
        return found
    slo = slos_for(asked, max(job.solo_s for job in asked.jobs))
    looser = replace(base, slo=slo, least=False)
    return [looser] if slo and asked.decide(looser) is not None else []
