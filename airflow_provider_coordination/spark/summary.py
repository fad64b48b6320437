"""A job's summary at its end: its XCom, and the last line of its output."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from airflow_provider_coordination.coordination.partition import Partition, format_instant
from airflow_provider_coordination.sources.landed import LandedBatch

RANGES_NAMED = 50
"""How many partitions a summary lists with the range that was delivered."""
COLUMNS_NAMED = 200
SETS_NAMED = 1000
"""How many pending sets a summary names: as many as Airflow maps over by default."""

log = logging.getLogger(__name__)


@dataclass
class Summary:
    """What a job did.

    :param rounds: how many rounds it made.
    :param records_landed: user records read and landed.
    :param records_delivered: user records of the batches that were delivered.
    :param bytes_delivered: their payload bytes.
    :param batches_delivered: how many batches.
    :param partitions_delivered: of how many partitions.
    :param ranges: the delivered range of each of these partitions, the first 50: the positions `from` (exclusive) and
        `to`, the number of `records`, and the `last_arrival` if the source reports it.
    :param columns: the types of the main dataset's columns at the last delivery, by name, the first 200.
    :param records_by_sink: the number of records that each sink took.
    :param held_by_sink: how often a batch waited for an unavailable sink, by sink.
    :param at_least_once: the names of the sinks that may have got a batch more than once.
    :param dead_letters: the number of records that went to the dead-letter sink: bad records and, with
        `keeps_rejected`, late and early records.
    :param unrouted: the number of records that no sink took.
    :param thrown_away: the number of records that were left out because they are late or early.
    :param parse_exceptions: the number of bad records that it found, including batches that were refused for them.
    :param saved_parse_exceptions: the latest bad records, at most `max_saved_parse_exceptions`.
    :param completed: the partitions that it completed.
    :param lost: the partitions whose lease it lost; other workers continue them.
    :param closed: the partitions that it finished for now; they are closed, to be read again later.
    :param handed_over: the partitions that it handed over to other workers that requested them.
    :param failed: the reason, for each partition that failed and did not progress afterwards in this job.
    :param resting: the partitions that waited after failures, or were parked, at its end.
    :param gone: the number of items, such as objects, that were deleted before they were read.
    :param set_aside: the number of items that could not be read; they become partitions of their own.
    :param data_loss: what was gone before it was read, by partition; the latest range of each.
    :param pending_acknowledgments: the number of delivered batches that are not yet acknowledged outside the job.
    :param acknowledgment_sets: the names of their sets, the first 1,000.
    :param slot_memory_bytes: the largest number of bytes that a Spark task held of what it read.
    :param seconds: how long the job ran.
    :param stopped_because: the condition that ended the job.
    :param metrics: the totals of the job's metrics, without zeros.
    """

    rounds: int = 0
    records_landed: int = 0
    records_delivered: int = 0
    bytes_delivered: int = 0
    batches_delivered: int = 0
    partitions_delivered: int = 0
    ranges: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    records_by_sink: dict[str, int] = field(default_factory=dict)
    held_by_sink: dict[str, int] = field(default_factory=dict)
    at_least_once: list[str] = field(default_factory=list)
    dead_letters: int = 0
    unrouted: int = 0
    thrown_away: int = 0
    parse_exceptions: int = 0
    saved_parse_exceptions: list[dict[str, Any]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    handed_over: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    resting: list[str] = field(default_factory=list)
    gone: int = 0
    set_aside: int = 0
    data_loss: dict[str, str] = field(default_factory=dict)
    pending_acknowledgments: int = 0
    acknowledgment_sets: list[str] = field(default_factory=list)
    slot_memory_bytes: int = 0
    seconds: float = 0.0
    stopped_because: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    def note_delivered(self, key: str, batch: LandedBatch, *, is_first: bool) -> None:
        """Note that a batch of a partition was delivered.

        :param is_first: whether it is the first batch of its partition in this job.
        """
        self.batches_delivered += 1
        self.partitions_delivered += is_first
        self.records_delivered += batch.records
        self.bytes_delivered += batch.bytes
        known = self.ranges.get(key)
        if known is None and (not is_first or len(self.ranges) >= RANGES_NAMED):
            return
        self.ranges[key] = {
            "from": known["from"] if known else batch.start,
            "to": batch.end,
            "records": (known["records"] if known else 0) + batch.records,
            "last_arrival": None if batch.last_arrival is None else format_instant(batch.last_arrival),
        }

    def note_columns(self, columns: Mapping[str, str]) -> None:
        """Note the columns of a delivery; do nothing if they are not known."""
        if columns:
            self.columns = dict(islice(columns.items(), COLUMNS_NAMED))

    def note_progress(self, key: str) -> None:
        """Note that a partition progressed: an earlier failure of it is then no failure of the job."""
        self.failed.pop(key, None)

    def note_pending(self, sets: Sequence[str]) -> None:
        """Note the sets of delivered batches that are not yet acknowledged outside the job."""
        self.pending_acknowledgments += len(sets)
        self.acknowledgment_sets += sets[: SETS_NAMED - len(self.acknowledgment_sets)]

    def note_resting(self, closed: Iterable[Partition]) -> None:
        """Note which of the source's closed partitions wait after failures, or are parked."""
        for partition in closed:
            if not partition.attempts:
                continue
            self.resting.append(partition.partition_key)
            log.warning(
                "not delivered: partition %s %s after %d failures; the last failure: %s",
                partition.partition_key,
                "is parked" if partition.is_parked else f"waits until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ}",
                partition.attempts, partition.last_error,
            )  # fmt: skip

    def to_mapping(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}
