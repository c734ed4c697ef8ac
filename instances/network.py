"""Weight synchronisation over the slow link between the two clusters.

Model (design section 7, derived): one copy of the bf16 weights is ``2 bytes x params``.

* *hierarchical*: one copy crosses the slow link, then is broadcast at the fast one:
  ``copy / inter + copy / intra``.
* *flat* (a collective that ignores the topology): one copy per receiving GPU crosses the
  slow link: ``gpus x copy / inter``.

For 8 -> 8 GPUs the ratio flat / hierarchical is 7.62, within 10 % of the published
7.87-8.33 x. For 16 -> 16 it is 15.24, where 2.62-2.75 x was measured: **the model fails
there** (a real flat collective does not send 16 full copies). Give ``sync_s`` measured.
"""

from __future__ import annotations

from typing import overload

import numpy as np
import numpy.typing as npt

from instances.hardware import Links

__all__ = ["sync_gb_of_model", "sync_seconds", "sync_seconds_flat"]

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
    """Return seconds of a flat sync: one copy per receiving GPU over the slow link."""
    return receiving_gpus * _BITS_PER_BYTE * sync_gb / links.inter_gbps
