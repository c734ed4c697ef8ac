"""Response lengths that change over a job's life: seven templates of one growth shape.

*Shape*. Relative length over the share of life gone, an input table (CSV, columns
``life_share,relative_length``): shares ascend from 0 to 1, the length at 0 is 1, and between rows
it is linear. Life counts seconds that the job runs, its restarts left out.

The default is a guess: growth that saturates, ``1 + 0.6 (1 - e^(-3x)) / (1 - e^-3)``, at eleven
shares. The publication shows an observed curve without its numbers; only the multiples are known.

*Template* ``x`` multiplies the deviation from 1: ``1 + x (shape - 1)``, so ``0`` is no drift, ``1``
the shape, ``-1`` its mirror image. Lengths stay above 0, or the template is refused.

*Phases*. The trace's ``rollout_s`` and ``train_s`` are those at the token limit. Two ways:

* in proportion: a job begins at ``start_share`` of the limit (a guess), and at relative
  length ``m`` both phases take ``min(start_share m, 1)`` of their seconds. With ``beyond_limit``
  nothing is cut off: then a job leaves even the worst case;
* by laws of lengths (:class:`LawFactors`; what a study does unless told otherwise): the lengths of
  responses at arrival are those of :mod:`planner.simulate.lengths`, all multiplied by ``m`` and
  then cut off at the limit. The rollout takes the median of the longest of a batch, over the limit,
  and train the mean length over the limit. Laws with long tails have their longest response near
  the limit from the start: the rollout hardly drifts then, and train does. Decode slots are taken
  to be enough for a batch.

Sync and switches do not depend on lengths.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import exp, isfinite, log
from pathlib import Path
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from instances.errors import InputError, did_you_mean
from instances.jobs import JobTable
from instances.trace_files import read_bytes, utf8_text
from planner.simulate.lengths import LengthLaw, PhaseSampler

__all__ = [
    "DEFAULT_SHAPE",
    "SETTINGS",
    "START_SHARE",
    "TEMPLATES",
    "GrowthShape",
    "LawFactors",
    "Lengths",
    "drawn_templates",
    "require_setting",
]

FloatArray = npt.NDArray[np.float64]

#: Multiples of the shape's deviation from 1 (published).
TEMPLATES: Final = (-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5)
#: Templates that the jobs of a setting draw from, all alike (a guess: shares are not published).
SETTINGS: Final[dict[str, tuple[float, ...]]] = {
    "none": (0.0,),
    "increasing": (0.5, 1.0, 1.5),
    "decreasing": (-1.5, -1.0, -0.5),
    "mixed": TEMPLATES,
}
#: Length at arrival over the token limit: a guess, with room for the largest default growth.
START_SHARE: Final = 0.5

_COLUMNS: Final = ["life_share", "relative_length"]
_GROWTH: Final = 0.6
_RATE: Final = 3.0
_POINTS: Final = 10
#: Midpoints by which the mean of a law is taken.
_MEAN_POINTS: Final = 512
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, kw_only=True)
class GrowthShape:
    """Relative length over the share of life gone.

    Attributes
    ----------
    life_share, relative_length : tuple of float
    source : str
        Where it comes from, for outputs.

    Raises
    ------
    InputError
        When shares do not ascend from 0 to 1, a length is not above 0, or the first is not 1.
    """

    life_share: tuple[float, ...]
    relative_length: tuple[float, ...]
    source: str

    def __post_init__(self) -> None:
        shares, lengths = self.life_share, self.relative_length
        where = f"({self.source})"
        if len(shares) != len(lengths) or len(shares) < 2:
            raise InputError(
                f"Expected two rows of a growth shape or more, got {len(shares)} shares and "
                f"{len(lengths)} lengths {where}."
            )
        ascend = all(a < b for a, b in pairwise(shares))
        if shares[0] != 0 or shares[-1] != 1 or not ascend:
            raise InputError(f"Expected life_share ascending from 0 to 1, got {shares} {where}.")
        for row, length in enumerate(lengths, start=1):
            if not (isfinite(length) and length > 0):
                raise InputError(
                    f"Expected relative_length > 0, got {length!r} (row {row}) {where}."
                )
        if lengths[0] != 1:
            raise InputError(f"Expected relative_length 1 at life_share 0, got {lengths[0]!r}.")

    @classmethod
    def from_csv(cls, path: Path) -> GrowthShape:
        """Read a shape from a CSV file of two columns.

        Raises
        ------
        InputError
            When the file is not such a table.
        """
        text = utf8_text(read_bytes(path), path.name).decode("utf-8")
        rows = [row for row in csv.reader(text.splitlines()) if row]
        if not rows or [cell.strip() for cell in rows[0]] != _COLUMNS:
            raise InputError(f"Expected the columns {','.join(_COLUMNS)} ({path.name}).")
        pairs = []
        for number, row in enumerate(rows[1:], start=1):
            try:
                share, length = (float(cell) for cell in row)
            except ValueError as fault:
                raise InputError(
                    f"Expected two numbers, got {','.join(row)!r} ({path.name}, row {number})."
                ) from fault
            pairs.append((share, length))
        return cls(
            life_share=tuple(share for share, _ in pairs),
            relative_length=tuple(length for _, length in pairs),
            source=path.name,
        )

    def length(self, life_share: float, template: float) -> float:
        """Return the relative length of a template; beyond the end of life it stays as it is."""
        at = float(np.interp(life_share, self.life_share, self.relative_length))
        return 1 + template * (at - 1)

    def require_positive(self, templates: Sequence[float]) -> None:
        """Refuse templates under which a length would be 0 or below."""
        for template in templates:
            least = min(1 + template * (length - 1) for length in self.relative_length)
            if not least > 0:
                raise InputError(
                    f"Expected relative lengths > 0 under template {template:g}, got {least:g} "
                    f"({self.source})."
                )


def _default_shape() -> GrowthShape:
    shares = tuple(i / _POINTS for i in range(_POINTS + 1))
    return GrowthShape(
        life_share=shares,
        relative_length=tuple(
            1 + _GROWTH * (1 - exp(-_RATE * x)) / (1 - exp(-_RATE)) for x in shares
        ),
        source="guess: saturating growth to 1.6 x",
    )


DEFAULT_SHAPE: Final = _default_shape()


def require_setting(setting: str) -> None:
    """Raise InputError for an unknown setting, with the nearest known one."""
    if setting not in SETTINGS:
        raise InputError(
            f"Expected setting in {', '.join(SETTINGS)}, got '{setting}'."
            f"{did_you_mean(setting, SETTINGS)}"
        )


def drawn_templates(n_jobs: int, setting: str, seed: int) -> tuple[float, ...]:
    """Return one template per job, drawn uniformly from those of the setting."""
    require_setting(setting)
    known = SETTINGS[setting]
    rng = np.random.default_rng((seed, list(SETTINGS).index(setting)))
    return tuple(known[i] for i in rng.integers(len(known), size=n_jobs))


class LawFactors:
    """Phase seconds over those at the limit, by laws of lengths (module docstring).

    Parameters
    ----------
    laws : sequence of LengthLaw
        Per job, at arrival.
    responses : sequence of int
        Per job, in a batch.
    """

    def __init__(self, laws: Sequence[LengthLaw], responses: Sequence[int]) -> None:
        if len(laws) != len(responses) or min(responses, default=1) < 1:
            raise InputError(
                f"Expected one number of responses >= 1 per law, got {len(laws)} laws and "
                f"{tuple(responses)}."
            )
        self._laws, self._responses = tuple(laws), tuple(responses)
        self._shares = (np.arange(_MEAN_POINTS) + 0.5) / _MEAN_POINTS
        self._scores = np.array([_NORMAL.inv_cdf(share) for share in self._shares])

    @classmethod
    def of(cls, jobs: JobTable) -> LawFactors:
        """Return the laws that a trace's columns give, the guess where they do not."""
        sampler = PhaseSampler(jobs)
        return cls(sampler.lengths, sampler.responses)

    def __len__(self) -> int:
        return len(self._laws)

    def at(self, index: int, relative_length: float) -> tuple[float, float]:
        """Return the factors of rollout and of train at a relative length."""
        law, m = self._laws[index], relative_length
        if law.tokens:
            law = replace(law, tokens=tuple(value * m for value in law.tokens))
        else:
            law = replace(law, log_tokens=tuple(value + log(m) for value in law.log_tokens))
        longest = law.quantile(0.5 ** (1 / self._responses[index])) / law.limit_tokens
        lengths = law.of(self._shares if law.tokens else self._scores)
        return min(longest, 1.0), float(np.minimum(lengths, 1.0).mean())


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Lengths of the jobs of a trace over their lives, and their phase seconds.

    Attributes
    ----------
    jobs : JobTable
        With the phase seconds at the token limit.
    template : tuple of float
        Per job.
    start_share : float
        Length at arrival over the token limit.
    beyond_limit : bool
        Whether lengths may pass the limit.
    factors : LawFactors or None
        How phases follow lengths; ``None``: in proportion. Given, the two above mean nothing.

    Raises
    ------
    InputError
        When a number is out of its range, or a length would not stay above 0.
    """

    jobs: JobTable
    template: tuple[float, ...]
    shape: GrowthShape = DEFAULT_SHAPE
    start_share: float = START_SHARE
    beyond_limit: bool = False
    factors: LawFactors | None = None

    def __post_init__(self) -> None:
        if len(self.template) != len(self.jobs):
            raise InputError(
                f"Expected one template per job, got {len(self.template)} of {len(self.jobs)}."
            )
        if not 0 < self.start_share <= 1:
            raise InputError(f"Expected start_share > 0 and <= 1, got {self.start_share!r}.")
        self.shape.require_positive(sorted(set(self.template)))
        if self.factors is not None and len(self.factors) != len(self.jobs):
            raise InputError(
                f"Expected one law per job, got {len(self.factors)} of {len(self.jobs)}."
            )

    def relative(self, index: int, running_s: float) -> float:
        """Return a job's relative length once it has run for so many seconds."""
        life = running_s / float(self.jobs.duration_s[index])
        return self.shape.length(life, self.template[index])

    def phases_s(self, index: int, running_s: float) -> tuple[float, float]:
        """Return rollout and train seconds once the job has run for so many seconds."""
        rollout, train = self._factors_at(index, self.relative(index, running_s))
        return rollout * float(self.jobs.rollout_s[index]), train * float(self.jobs.train_s[index])

    def _factors_at(self, index: int, relative_length: float) -> tuple[float, float]:
        if self.factors is not None:
            return self.factors.at(index, relative_length)
        share = self.start_share * relative_length
        share = share if self.beyond_limit else min(share, 1.0)
        return share, share

    def at_arrival(self) -> JobTable:
        """Return the jobs with their phase seconds at arrival."""
        seconds = [self.phases_s(i, 0.0) for i in range(len(self.jobs))]
        return self.jobs.replace(
            rollout_s=np.array([rollout_s for rollout_s, _ in seconds]),
            train_s=np.array([train_s for _, train_s in seconds]),
        )
