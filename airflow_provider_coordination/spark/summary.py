"""A job's report at its end: its XCom, and the last line of its output."""

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
    :param ranges: from where to where it delivered of each of these, the first 50: the positions `from` (exclusive) and
        `to`, the `records`, and the `last_arrival` where the source tells.
    :param columns: of the main dataset, as they were delivered last, the first 200: their types by their names.
    :param records_by_sink: how many records each sink took of them.
    :param held_by_sink: how often a batch waited for a sink that took nothing, whatever it was given.
    :param at_least_once: the names of the sinks that may have got a batch more than once.
    :param dead_letters: how many of these records went to the dead-letter sink: those that are bad and, if the settings
        say so, those that are late or early.
    :param unrouted: how many records no sink took.
    :param thrown_away: how many records were left out because they are late or early.
    :param parse_exceptions: how many bad records it found, also in batches that were not delivered for that.
    :param saved_parse_exceptions: the latest of them, as many as it was told to save.
    :param completed: partitions it finished.
    :param lost: partitions whose lease it lost; others go on with them.
    :param closed: partitions it finished for now; they are put aside, to be read again later.
    :param handed_over: partitions that it handed over to other workers that asked for them.
    :param failed: why, for each partition that failed and did not get further afterwards in this job.
    :param resting: partitions that rest after failures, or are parked, at its end: it left them alone.
    :param gone: how many items, such as objects, were deleted before they were read.
    :param set_aside: how many items could not be read; they become partitions of their own.
    :param data_loss: what was gone before it was read, by partition; the latest range of each.
    :param pending_acknowledgments: how many batches it delivered that others have yet to acknowledge.
    :param acknowledgment_sets: the names of their sets, the first 1,000.
    :param slot_memory_bytes: how much a Spark task held at most of what it read.
    :param seconds: how long it ran.
    :param stopped_because: the condition that ended it.
    :param metrics: the totals of what the job counted, zeros left out.
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

        :param is_first: whether it is the first one of its partition.
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
        """Note the columns of what was delivered; nothing if they are not known."""
        if columns:
            self.columns = dict(islice(columns.items(), COLUMNS_NAMED))

    def note_progress(self, key: str) -> None:
        """Note that a partition got further: what it failed by before is no failure of the job."""
        self.failed.pop(key, None)

    def note_pending(self, sets: Sequence[str]) -> None:
        """Note the sets of delivered batches that others have yet to acknowledge."""
        self.pending_acknowledgments += len(sets)
        self.acknowledgment_sets += sets[: SETS_NAMED - len(self.acknowledgment_sets)]

    def note_resting(self, closed: Iterable[Partition]) -> None:
        """Note which of the closed partitions of the source rest after failures, or are parked."""
        for partition in closed:
            if not partition.attempts:
                continue
            self.resting.append(partition.partition_key)
            log.warning(
                "not delivered: partition %s %s after %d failures, the last one: %s",
                partition.partition_key,
                "is parked" if partition.is_parked else f"rests until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ}",
                partition.attempts, partition.last_error,
            )  # fmt: skip

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}
