"""The document of ``planner reproduce --json``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from instances.cluster_file import cluster_to_dict
from instances.hardware import Cluster
from planner.plan.document import SCHEMA_VERSION, package_versions
from planner.replay.published import Row

__all__ = ["reproduce_document"]


def reproduce_document(rows: Sequence[Row], seeds: int, cluster: Cluster) -> dict[str, Any]:
    """Return the document of ``planner reproduce --json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "reproduce",
        "inputs": {
            "seeds": list(range(seeds)),
            "cluster": cluster_to_dict(cluster),
            "package_versions": package_versions(),
        },
        "rows": [dataclasses.asdict(row) for row in rows],
    }
