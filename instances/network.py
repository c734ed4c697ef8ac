"""Weight synchronisation over the slow link between the two clusters.

Model (derived): one copy of the bf16 weights is ``2 bytes x params``.

* *hierarchical*: one copy crosses the slow link, then is broadcast at the fast one:
  ``copy / inter + copy / intra``.
* *flat* (a collective that ignores the topology): one copy per receiving GPU crosses the
  slow link: ``gpus x copy / inter``.

For 8 -> 8 GPUs the ratio flat / hierarchical is 7.62, within 10 % of the published
7.87-8.33 x. For 16 -> 16 it is 15.24, where 2.62-2.75 x was measured: **the model fails
there** (a real flat collective does not send 16 full copies). Measured overrides: the trace
column ``sync_s`` for the seconds of a job, and ``flat_over_hierarchical`` under ``[links]`` of the
cluster file (:class:`~instances.hardware.Links`) for the ratio. :func:`sync_table` puts the model
beside what was published.
"""

from __future__ import annotations

from typing import Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from instances.hardware import DEFAULT_CLUSTER, Links

__all__ = [
    "PUBLISHED_RATIOS",
    "SyncRow",
    "sync_gb_of_model",
    "sync_seconds",
    "sync_seconds_flat",
    "sync_table",
]

#: Receiving GPUs -> lowest and highest published ratio of flat to hierarchical sync seconds.
PUBLISHED_RATIOS: Final = {8: (7.87, 8.33), 16: (2.62, 2.75)}
_TOLERANCE: Final = 0.10

_BYTES_PER_PARAM = 2.0
_BITS_PER_BYTE = 8.0

FloatArray = npt.NDArray[np.float64]


@overload
def sync_gb_of_model(model_b: float) -> float: ...
@overload
def sync_gb_of_model(model_b: FloatArray) -> FloatArray: ...
def sync_gb_of_model(model_b: float | FloatArray) -> float | FloatArray:
    """Return the size of one bf16 copy of a model of ``model_b`` billion parameters, GB."""
    return _BYTES_PER_PARAM * model_b


@overload
def sync_seconds(sync_gb: float, links: Links) -> float: ...
@overload
def sync_seconds(sync_gb: FloatArray, links: Links) -> FloatArray: ...
def sync_seconds(sync_gb: float | FloatArray, links: Links) -> float | FloatArray:
    """Return seconds of a hierarchical sync of one copy of ``sync_gb`` GB over a free link."""
    gbit = _BITS_PER_BYTE * sync_gb
    return gbit / links.inter_gbps + gbit / links.intra_gbps


def sync_seconds_flat(sync_gb: float, receiving_gpus: int, links: Links) -> float:
    """Return seconds of a flat sync: one copy per receiving GPU over the slow link.

    Where ``links.flat_over_hierarchical`` is given, that measured ratio times the hierarchical
    seconds instead, for any number of GPUs.
    """
    if links.flat_over_hierarchical is not None:
        return links.flat_over_hierarchical * sync_seconds(sync_gb, links)
    return receiving_gpus * _BITS_PER_BYTE * sync_gb / links.inter_gbps


class SyncRow(NamedTuple):
    """One published comparison beside ours.

    ``model_ratio`` is the simple model's, whatever was measured; ``ratio`` is flat over
    hierarchical as used, which a measured override changes. ``agrees`` tells whether ``ratio``
    is within 10 % of the published range.
    """

    gpus: int
    sync_gb: float
    hierarchical_s: float
    flat_s: float
    ratio: float
    model_ratio: float
    published_low: float
    published_high: float
    agrees: bool
    note: str


def sync_table(sync_gb: float = 14.0, links: Links = DEFAULT_CLUSTER.links) -> tuple[SyncRow, ...]:
    """Return hierarchical and flat sync at 8 -> 8 and 16 -> 16 GPUs beside the published ratios.

    Parameters
    ----------
    sync_gb : float
        One copy of the weights, GB (14: a 7B model in bf16); the ratios do not depend on it.
    links : Links
        Link speeds, and the measured ratio where there is one.

    Returns
    -------
    tuple of SyncRow
        At 8 GPUs the simple model gives 7.62 (published 7.87-8.33); at 16 it gives 15.24 and
        **fails** (published 2.62-2.75), as the row's note says.
    """
    rows = []
    for gpus, (low, high) in PUBLISHED_RATIOS.items():
        hierarchical_s = sync_seconds(sync_gb, links)
        flat_s = sync_seconds_flat(sync_gb, gpus, links)
        model_ratio = gpus / (1.0 + links.inter_gbps / links.intra_gbps)
        measured = links.flat_over_hierarchical
        ratio = model_ratio if measured is None else measured
        agrees = low * (1 - _TOLERANCE) <= ratio <= high * (1 + _TOLERANCE)
        if measured is not None:
            note = "measured ratio given"
        elif agrees:
            note = "simple model, within 10 % of the published range"
        else:
            note = (
                "simple model fails here: a real flat collective does not send one copy per GPU; "
                "measure it and give [links] flat_over_hierarchical, or sync_s per job"
            )
        rows.append(
            SyncRow(
                gpus=gpus,
                sync_gb=sync_gb,
                hierarchical_s=hierarchical_s,
                flat_s=flat_s,
                ratio=ratio,
                model_ratio=model_ratio,
                published_low=low,
                published_high=high,
                agrees=agrees,
                note=note,
            )
        )
    return tuple(rows)
