"""A dataset of known records that is checked while it grows: correct files are removed, so that no disk fills."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.known_records import Run, WrongRecordsError, joined, runs_of


class KnownDataset:
    """What jobs deliver of a stream of known records.

    :param folder: of the dataset.
    :param stream: the stream.
    :param began_at: when each shard's first record arrived, in milliseconds since 1970.
    """

    def __init__(self, folder: Path, stream: str, began_at: int) -> None:
        self._folder = folder
        self._stream = stream
        self._began_at = began_at
        self._found: dict[int, list[tuple[int, Run]]] = defaultdict(list)  # of each shard, since when it is visible
        self.bytes = 0
        """How large the files are that were removed."""

    def remove(self, delivered: Mapping[int, int], visible_by_ns: int) -> None:
        """Check files, and remove those that no job will look for any more.

        :param delivered: of each shard, the number of the last record before its checkpoint.
        :param visible_by_ns: leave out what became visible later, in nanoseconds since 1970.
        :raises WrongRecordsError: if a record is not the one that was sent, or out of order in its batch.
        """
        for file in self._folder.glob("*.parquet"):
            status = file.stat()  # a rename, which publishes a file, sets its ctime
            if status.st_ctime_ns > visible_by_ns:
                continue
            runs = joined([run for rows in _row_groups(file) for run in runs_of(rows, self._stream, self._began_at)])
            if all(run.last <= delivered.get(run.shard, -1) for run in runs):
                for run in runs:
                    self._found[run.shard].append((status.st_ctime_ns, run))
                self.bytes += status.st_size
                file.unlink()

    def check(self, heads: Sequence[int]) -> None:
        """Check that everything was there once, and each shard's batches in order.

        :param heads: of each shard, the number of its last record.
        :raises WrongRecordsError: if something is lost, doubled, out of order, or left.
        """
        wrong = [fault for shard, head in enumerate(heads) for fault in self._faults(shard, head)]
        left = [path.name for path in self._folder.iterdir() if not path.name.startswith(("_", "."))]
        if wrong or left or len(self._found) > len(heads):
            raise WrongRecordsError(f"{len(wrong)} faults: {wrong[:20]}; left: {left[:20]}")

    def _faults(self, shard: int, head: int) -> Iterator[str]:
        found = self._found[shard]
        expected = 0
        for run in sorted((run for _, run in found), key=lambda run: (run.first, run.last)):
            if run.first > expected:
                yield f"shard {shard}: {expected} to {run.first - 1} are lost"
            elif run.first < expected:
                yield f"shard {shard}: {run.first} to {min(run.last, expected - 1)} are doubled by {run.batch_id}"
            expected = max(expected, run.last + 1)
        if expected != head + 1:
            yield f"shard {shard}: it ends with {expected - 1}, and not with {head}"
        visible = [run.first for _, run in sorted(found, key=lambda each: (each[0], each[1].first))]
        if visible != sorted(visible):
            yield f"shard {shard}: its batches became visible in another order"


def _row_groups(file: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(file) as opened:
        for number in range(opened.num_row_groups):
            yield opened.read_row_group(number)
