"""The tombstones of a table: the keys that were deleted, each with the greatest order of its deletes.

They are in Parquet files below the table, in a folder where readers do not look: `_coordination_tombstones/<number>`.
A file is written before the commit that names its number, and never changes, so tombstones become valid with the rows
of that commit. A file lists earlier files whose tombstones are valid as well. So a commit writes its own deletes. Files
that are not much larger are merged into the new one: the sizes of those that are left grow by a factor, so there are
few of them, and a tombstone is rewritten a few times.

This module knows no kind of table. A table keeps a number with each of its versions, and removes files that no version
names.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.merging import Merging, positions
from airflow_provider_coordination.spark.parquet_files import read_table, schema_of, write_table
from airflow_provider_coordination.spark.storage import delete_files, files_before, join

FOLDER = "_coordination_tombstones"
"""The folder of the files, below the folder of the table."""
FILES = b"coordination.tombstones"
"""The key of a file's metadata that lists the files that its number names, the file itself last."""
GROWTH = 4
"""How many times as many tombstones as the new file an earlier file has, at least, that is not merged into it."""
FEW = 1_000
"""Below this number of tombstones a file counts as small."""
MANY = 1_000_000
"""From this number of tombstones on, a file is not merged again, so that a merge fits in memory."""
RANDOM_BITS = 31
"""The random bits of a number, by which simultaneous writers do not write the same file."""

_AT, _DELETED_AT, _LATER = "_coordination_at", "_coordination_deleted_at", "_coordination_later"


class MissingTombstonesError(DeliveryError):
    """A file of tombstones is gone."""


@dataclass(frozen=True, kw_only=True)
class TombstoneFile:
    """A file of tombstones.

    :param number: its number.
    :param count: how many tombstones it has.
    :param latest: when its latest tombstone was written, in microseconds since 1970.
    """

    number: int
    count: int
    latest: int


@dataclass(frozen=True, kw_only=True)
class Added:
    """Tombstones that a commit adds.

    :param number: the number that the commit names; 0 if the table keeps no tombstones any more.
    :param superseded: the files that this number names no more, and those of earlier tries of the commit.
    """

    number: int
    superseded: Sequence[int] = ()


class Tombstones:
    """The tombstones of one table.

    :param root: the folder of the table.
    :param merging: how rows are merged.
    :param retention: for how long a tombstone is valid; with 0 there are none.
    :param access: how to reach the folder.
    :param clock: the source of the current time.
    """

    def __init__(
        self,
        root: str,
        merging: Merging,
        retention: timedelta,
        access: Access = DEFAULT_ACCESS,
        clock: Clock | None = None,
    ) -> None:
        self._folder = join(root, FOLDER)
        self._merging = merging
        self._retention = retention
        self._access = access
        self._clock = clock or SystemClock()
        self._tried: list[int] = []  # files that were written since a commit was certain

    def without_late(self, number: int, rows: pa.Table) -> pa.Table:
        """Return rows without those whose key was deleted by a change with a greater order.

        :param number: the number that the table names; 0 if it names none.
        :param rows: rows, each key once.
        :raises MissingTombstonesError: if a file is gone.
        """
        if not self._retention or not number or not rows.num_rows:
            return rows
        order, on = self._order_by, list(self._merging.on)
        read = (self._read(file.number) for file in self._files(number) if file.latest >= self._expired_before())
        valid = [self._of_keys(found, rows) for found in read if self._fits(found)]
        if not valid:
            return rows
        known = _greatest(pa.concat_tables(valid, promote_options="permissive"), on, order)
        own = rows.select([*on, order]).append_column(_AT, positions(rows))
        deleted = pa.table({**{name: known[name].cast(own[name].type) for name in on}, _LATER: known[order]})
        both = own.join(deleted, keys=on, join_type="inner")
        is_late = pc.or_(pc.is_null(both[order]), pc.fill_null(pc.less(both[order], both[_LATER]), False))
        late = both.filter(is_late)[_AT].combine_chunks()
        return rows.filter(pc.invert(pc.is_in(own[_AT], value_set=late)))

    def add(self, number: int, rows: pa.Table) -> Added | None:
        """Write the tombstones of rows that delete; return None if none of them needs one.

        :param number: the number that the table names; 0 if it names none.
        :param rows: the rows of a delivery, also several with the same key.
        :raises MissingTombstonesError: if an earlier file is gone.
        """
        if not self._retention:
            return Added(number=0) if number else None
        order, on = self._order_by, list(self._merging.on)
        deletes = pc.and_(self._merging.deletes(rows), pc.is_valid(rows[order]))  # nothing is older than null
        added = rows.filter(deletes).select([*on, order])
        if not added.num_rows:
            return None
        at = _micros(self._clock.now())
        parts = [added.append_column(_DELETED_AT, pa.repeat(pa.scalar(at, pa.int64()), added.num_rows))]
        earlier = self._files(number)
        kept = [file for file in earlier if file.latest >= self._expired_before()]
        count = added.num_rows
        while kept and kept[-1].count < min(GROWTH * max(count, FEW), MANY):
            small = self._read(kept[-1].number)
            if not self._fits(small):
                break
            parts.append(small)
            count += kept.pop().count
        merged = _greatest(pa.concat_tables(parts, promote_options="permissive"), on, order)
        new = ((number >> RANDOM_BITS) + 1 << RANDOM_BITS) | secrets.randbits(RANDOM_BITS)
        self._tried.append(new)
        named = [*kept, TombstoneFile(number=new, count=merged.num_rows, latest=at)]
        listed = {FILES: json.dumps([vars(file) for file in named])}
        write_table(merged.replace_schema_metadata(listed), self._uri(new), self._access)
        former = {*self._tried, *(file.number for file in earlier)} - {file.number for file in named}
        return Added(number=new, superseded=sorted(former))

    def unneeded(self, numbers: Collection[int], before: datetime) -> list[str]:
        """Return the files that none of some numbers name, and that were written before an instant.

        :param numbers: the numbers that versions of the table have.
        :param before: the instant (aware): later files may belong to a commit in progress.
        :raises MissingTombstonesError: if a file is gone.
        """
        named = {self._uri(file.number) for number in numbers for file in self._files(number)}
        return [uri for uri in files_before(self._folder, before, self._access) if uri not in named]

    def remove_superseded(self, added: Added) -> None:
        """Remove the files that a commit superseded, once it is certain that it was made.

        A writer that started from an earlier version misses them, and its commit would fail. A table whose versions
        can become the latest again needs them: it removes those that are `unneeded`.
        """
        self._tried.clear()
        with suppress(OSError):  # maintenance removes them
            delete_files(map(self._uri, added.superseded), self._access)

    def discard(self, added: Added) -> None:
        """Remove the file of a commit that certainly was not made."""
        delete_files([self._uri(added.number)], self._access)

    @property
    def _order_by(self) -> str:
        if self._merging.order_by is None:
            raise ValueError("tombstones need an order")
        return self._merging.order_by

    def _uri(self, number: int) -> str:
        return join(self._folder, f"{number}.parquet")

    def _expired_before(self) -> int:
        return _micros(self._clock.now() - self._retention)

    def _files(self, number: int) -> list[TombstoneFile]:
        """Return the files that a number names, from the earliest."""
        if not number:
            return []
        try:
            metadata = schema_of(self._uri(number), self._access).metadata
        except FileNotFoundError as error:
            raise self._missing(number) from error
        return [TombstoneFile(**each) for each in json.loads(metadata[FILES])]

    def _fits(self, found: pa.Table) -> bool:
        """Return whether tombstones have the columns of this merge: a table may be merged on other ones than before."""
        return {*self._merging.on, self._order_by, _DELETED_AT} == set(found.column_names)

    def _of_keys(self, found: pa.Table, rows: pa.Table) -> pa.Table:
        """Return the tombstones whose key is among those of rows."""
        first = self._merging.on[0]
        wanted = rows[first].cast(found[first].type).combine_chunks()
        found = found.filter(pc.is_in(found[first], value_set=wanted))  # a join of all would cost far more
        return found.take(self._merging.matching(found, rows))

    def _read(self, number: int) -> pa.Table:
        """Return the valid tombstones of a file."""
        try:
            found = read_table(self._uri(number), access=self._access)
        except FileNotFoundError as error:
            raise self._missing(number) from error
        return found.filter(pc.greater_equal(found[_DELETED_AT], self._expired_before()))

    def _missing(self, number: int) -> MissingTombstonesError:
        return MissingTombstonesError(
            f"file {self._uri(number)} is missing, which has keys that were deleted from the table; restore it, or set "
            "'tombstone_retention' to 0 for a delivery, which gives these tombstones up"
        )


def _greatest(tombstones: pa.Table, on: Sequence[str], order: str) -> pa.Table:
    """Return one tombstone for each key: the greatest order, and the time of the latest one."""
    tombstones = tombstones.take(pc.sort_indices(tombstones, sort_keys=[(order, "ascending")]))
    numbered = tombstones.append_column(_AT, positions(tombstones))
    groups = numbered.group_by(list(on)).aggregate([(_AT, "max"), (_DELETED_AT, "max")])
    greatest = tombstones.take(groups[f"{_AT}_max"]).drop_columns([_DELETED_AT])
    return greatest.append_column(_DELETED_AT, groups[f"{_DELETED_AT}_max"])


def _micros(at: datetime) -> int:
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))
