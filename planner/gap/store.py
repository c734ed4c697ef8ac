"""The store of finished snapshots: an SQLite file that a later run goes on from.

One row a snapshot, committed when it is finished, so a run that is killed loses at most what
was in work. A snapshot is found again by a digest of all that its answer depends on: the
numbers of its jobs in order of arrival, cluster, limits, and the version of the method. What is
not proved depends on the effort as well. The price of the same jobs re-planned depends on how
the policy places. So runs of other policies, conventions and traces may share one store.

Nothing in a store is believed unseen: each row carries the digest of its text, and plans pass
the checker and are priced anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from instances.cluster_file import cluster_to_dict
from instances.errors import InputError
from models.problem.snapshot import PlacedGroup
from planner.gap.solve import Replayed, Solved

__all__ = ["Keys", "Store"]

#: Of the method: raise it whenever the same snapshot may get another answer.
_VERSION: Final = 1
#: ``PRAGMA application_id`` of our files: "rlgs".
_APPLICATION: Final = 0x726C6773
_TABLE: Final = (
    "CREATE TABLE rows (key TEXT NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, "
    "digest TEXT NOT NULL, PRIMARY KEY (key, kind)) WITHOUT ROWID"
)
#: What a plan of a snapshot depends on, of a job.
_NUMBERS: Final = (
    "rollout_s", "train_s", "sync_s", "slo", "rollout_nodes", "train_nodes", "rollout_state_gb",
    "train_state_gb", "rollout_switch_s", "train_switch_s",
)  # fmt: skip
#: Seconds to wait for another process that writes.
_BUSY_S: Final = 5.0


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Keys:
    """Digests of what answers depend on."""

    def __init__(self, replayed: Replayed) -> None:
        cluster = cluster_to_dict(replayed.cluster)
        cluster.pop("links", None)
        self._problem = _digest([_VERSION, cluster, dataclasses.asdict(replayed.limits)])
        placer = None if replayed.placer is None else dataclasses.asdict(replayed.placer)
        #: Kind of the row of a re-planned price.
        self.replanned: Final = f"replanned {_digest(placer)}"
        effort = dataclasses.asdict(replayed.effort)
        #: Kind of the row of an answer without proof: it depends on where the search began, too.
        self.unproved: Final = f"unproved {_digest([effort, placer])}"
        numbers: tuple[str, ...] = _NUMBERS
        if placer is not None and placer["tie_rule"] == "nearest-departure":
            numbers += ("arrival_s", "duration_s")
        # a mode beside sync only where it is, so that what was stored before modes is still found
        self._jobs = [
            _digest([getattr(job, name) for name in numbers] + [job.mode] * (job.mode != "sync"))
            for job in replayed.jobs
        ]

    def of(self, jobs: Sequence[int]) -> str:
        """Return the key of a snapshot of these jobs, in order of arrival."""
        return _digest([self._problem, [self._jobs[i] for i in jobs]])


class Store:
    """An open store; use as a context.

    Parameters
    ----------
    path : Path
        Made when it is not there.
    option : str
        To name in errors.

    Raises
    ------
    InputError
        When the file is something else, is damaged, or cannot be written.
    """

    def __init__(self, path: Path, option: str = "--resume") -> None:
        self._path, self._option = path, option
        if path.is_dir():
            raise InputError(f"Expected {option} to name a file, but {path} is a folder.")
        if not path.absolute().parent.is_dir():
            parent = path.absolute().parent
            raise InputError(f"Expected the folder {parent} of {option} to exist. Create it first.")
        with self._words():
            self._sql = sqlite3.connect(path, timeout=_BUSY_S)
        try:
            with self._words():
                self._open()
        except BaseException:
            self._sql.close()
            raise

    def _open(self) -> None:
        with self._sql:
            self._sql.execute("BEGIN IMMEDIATE")  # first: another run may be making it just now
            (application,) = self._sql.execute("PRAGMA application_id").fetchone()
            (tables,) = self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not application and not tables:
                self._sql.execute(_TABLE)
            elif application != _APPLICATION:
                raise InputError(
                    f"Expected {self._option} to name a store of planner gap, but {self._path} "
                    "is another database."
                )
            # written every time: where nothing can be, that is said now, not after hours of work
            self._sql.execute(f"PRAGMA application_id = {_APPLICATION}")
        self._sql.execute("SELECT key, kind, text, digest FROM rows LIMIT 1").fetchone()

    @contextlib.contextmanager
    def _words(self) -> Iterator[None]:
        """Turn what SQLite says into words about the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise InputError(f"{self._path}: Cannot be used as {self._option}: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise InputError(
                f"Expected {self._option} to name a store of planner gap, but {self._path} is "
                f"none, or is damaged: {error}. Remove it, or name another file."
            ) from error

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sql.close()

    # --- rows ---------------------------------------------------------------------------------

    def _get(self, key: str, kind: str) -> Any:
        with self._words():
            row = self._sql.execute(
                "SELECT text, digest FROM rows WHERE key = ? AND kind = ?", (key, kind)
            ).fetchone()
        if row is None:
            return None
        text, digest = row
        if hashlib.sha256(f"{key}{kind}{text}".encode()).hexdigest() != digest:
            raise self._damaged(key)
        return json.loads(text)

    def _damaged(self, key: str) -> InputError:
        return InputError(
            f"Expected {self._option} to name a whole store, but row {key[:12]} of {self._path} is "
            "damaged. Remove the file, or name another."
        )

    def _put(self, key: str, kind: str, value: Any) -> None:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
        digest = hashlib.sha256(f"{key}{kind}{text}".encode()).hexdigest()
        with self._words(), self._sql:
            self._sql.execute(
                "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)", (key, kind, text, digest)
            )

    def replanned_usd(self, key: str, keys: Keys) -> float | None:
        """Return the price of the jobs re-planned, $/h, when it is known."""
        value = self._get(key, keys.replanned)
        if value is None:
            return None
        if not isinstance(value, float) or not isfinite(value):
            raise self._damaged(key)
        return value

    def solved(self, key: str, keys: Keys) -> Solved | None:
        """Return what is known of a snapshot: a proof, or what the same effort has led to."""
        for kind in ("proved", keys.unproved):
            value = self._get(key, kind)
            if value is not None:
                try:
                    return _solved(value)
                except (KeyError, TypeError, ValueError):
                    raise self._damaged(key) from None
        return None

    def put_replanned(self, key: str, keys: Keys, usd: float) -> None:
        """Keep the price of the jobs re-planned, $/h."""
        self._put(key, keys.replanned, float(usd))

    def put_solved(self, key: str, keys: Keys, solved: Solved) -> None:
        """Keep what is known of a snapshot."""
        self._put(key, "proved" if solved.proved else keys.unproved, dataclasses.asdict(solved))


def _solved(value: dict[str, Any]) -> Solved:
    groups = tuple(
        PlacedGroup(
            members=tuple(group["members"]),
            rollout_pins=tuple(map(tuple, group["rollout_pins"])),
            train_pins=tuple(map(tuple, group["train_pins"])),
            period_s=float(group["period_s"]),
            starts_s=tuple(
                tuple((float(r), float(t)) for r, t in starts) for starts in group["starts_s"]
            ),
            rates=tuple(group["rates"]),
        )
        for group in value["groups"]
    )
    return Solved(
        usd_per_hour=float(value["usd_per_hour"]),
        bound_usd_per_hour=float(value["bound_usd_per_hour"]),
        bound_method=str(value["bound_method"]),
        stopped_by=value["stopped_by"],
        groups=groups,
        reused=bool(value["reused"]),
    )
