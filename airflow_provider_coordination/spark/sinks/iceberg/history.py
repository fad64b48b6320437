"""Which batches a table has, by the summaries of its snapshots.

A snapshot that a delivery made names its batches, each with the fencing token and the acknowledgment set of the attempt
that brought it. Summaries go with their snapshots when those are expired: what is known then is known up to where.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.spark.delivered_batches import Commit, TableHistory, described, read_described
from airflow_provider_coordination.spark.delivery import Attempt

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

BATCHES = "coordination.batches"
"""The property of a summary that names a snapshot's batches: a JSON object, of `<token>:<set>` by batch id."""
SOURCE = "coordination.source"
OWNER = "coordination.owner"
DELIVERED = "coordination.delivered"
"""The property that says of each batch what `DeliveredBatch` has: a JSON list, by zlib and in base 64."""
MAX_DELIVERED_BYTES = 128 * 1024
"""What is longer is left out: a table's metadata holds the summaries of all its snapshots."""


@dataclass(frozen=True)
class Entry:
    """The attempt that brought a batch.

    :param fencing_token: its lease's.
    :param set_id: its acknowledgment set, as `_short` has it.
    """

    fencing_token: int
    set_id: str

    @classmethod
    def of(cls, signature: Mapping[str, Any]) -> Entry:
        """Return the attempt that a manifest is of, as a history names it."""
        return cls(signature["fencing_token"], _short(signature["set"], signature["batch"]))

    def is_of(self, attempt: Attempt) -> bool:
        """Return whether it is this attempt."""
        return self.fencing_token == attempt.fencing_token and self.is_of_set(attempt)

    def is_of_set(self, attempt: Attempt) -> bool:
        """Return whether it was for the same acknowledgment set, perhaps under another lease."""
        return self.set_id == _short(attempt.set_id, attempt.batch_id)


@dataclass(frozen=True)
class History:
    """What the summaries of a table's present snapshot and its ancestors say.

    :param entries: the latest attempt that brought a batch, by batch id.
    :param begins: the sequence number of the oldest snapshot that is there; 0 where there never was one, None where
        snapshots have no numbers, as in tables of Iceberg's first version.
    """

    entries: Mapping[str, Entry]
    begins: int | None = 0

    def is_whole_since(self, sequence_number: int) -> bool:
        """Return whether no later snapshot than one is missing.

        A snapshot whose parent is expired may not name it any more: that it has none says nothing.
        """
        return self.begins is not None and self.begins <= sequence_number + 1


class Histories:
    """Reads histories; what a snapshot says never changes, and is read once."""

    def __init__(self) -> None:
        self._known: dict[int, Mapping[str, Entry]] = {}

    def of(self, metadata: TableMetadata) -> History:
        """Return the history of a table's present snapshot."""
        entries: dict[str, Entry] = {}
        known: dict[int, Mapping[str, Entry]] = {}
        snapshot, last = metadata.current_snapshot(), None
        while snapshot is not None:
            last, named = snapshot, self._known.get(snapshot.snapshot_id)
            known[snapshot.snapshot_id] = named = _named_in(snapshot) if named is None else named
            for batch_id, entry in named.items():
                entries.setdefault(batch_id, entry)
            above = snapshot.parent_snapshot_id
            snapshot = None if above is None else metadata.snapshot_by_id(above)
        self._known = known
        if last is None:
            return History({})
        return History(entries, last.sequence_number or None)


def summary_of(attempts: Sequence[Attempt]) -> dict[str, str]:
    """Return what a snapshot's summary says of the attempts that it brings."""
    named = {a.batch_id: f"{a.fencing_token}:{_short(a.set_id, a.batch_id)}" for a in attempts}
    delivered = base64.b64encode(zlib.compress(_json([described(a) for a in attempts]).encode())).decode()
    summary = {
        SOURCE: ",".join(sorted({attempt.source for attempt in attempts})),
        OWNER: ",".join(sorted({attempt.owner for attempt in attempts})),
        BATCHES: _json(named),
    }
    return {**summary, DELIVERED: delivered} if len(delivered) <= MAX_DELIVERED_BYTES else summary


def delivered_by(metadata: TableMetadata, location: str) -> TableHistory:
    """Return what the summaries of a table's present snapshot and its ancestors say of the batches that they brought.

    :param location: the table, for people.
    """
    commits: list[Commit] = []
    unknown: list[str] = []
    snapshot, begins = metadata.current_snapshot(), 1
    while snapshot is not None:
        begins = snapshot.sequence_number or 0
        summary = None if snapshot.summary is None else snapshot.summary.get(DELIVERED)
        if summary is not None:
            batches = read_described(
                json.loads(zlib.decompress(base64.b64decode(summary))),
                f"snapshot {snapshot.snapshot_id} of table {location}",
            )
            commits.append(Commit(at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC), batches=batches))
        else:
            unknown += _named_in(snapshot)
        above = snapshot.parent_snapshot_id
        snapshot = None if above is None else metadata.snapshot_by_id(above)
    return TableHistory(
        location=location, commits=tuple(reversed(commits)), is_whole=begins == 1, unknown=tuple(unknown)
    )


def _named_in(snapshot: Snapshot) -> Mapping[str, Entry]:
    text = None if snapshot.summary is None else snapshot.summary.get(BATCHES)
    if text is None:
        return {}
    entries = {}
    for batch_id, said in json.loads(text).items():
        token, _, set_id = said.partition(":")
        entries[batch_id] = Entry(int(token), set_id)
    return entries


def _short(set_id: str, batch_id: str) -> str:
    """Return a set's id without that of its batch, with which it begins."""
    return set_id.removeprefix(batch_id)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
