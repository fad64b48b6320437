"""What a job tells at its end: its XCom, and the last line of its output."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Summary:
    """What a job did.

    :param rounds: how many rounds it made.
    :param records_landed: user records read and landed.
    :param records_delivered: user records of the batches that were delivered.
    :param bytes_delivered: their payload bytes.
    :param batches_delivered: how many batches.
    :param records_by_sink: how many records each sink took of them.
    :param dead_letters: how many of these records are bad and went to the dead-letter sink.
    :param unrouted: how many records no sink took.
    :param parse_exceptions: how many bad records it found, also in batches that were not delivered for that.
    :param saved_parse_exceptions: the latest of them, as many as it was told to save.
    :param completed: partitions it finished.
    :param lost: partitions whose lease it lost; others go on with them.
    :param closed: partitions it finished for now; they are put aside, to be read again later.
    :param handed_over: partitions that it handed over to other workers that asked for them.
    :param failed: why, for each partition that failed and did not get further afterwards in this job.
    :param resting: partitions that rest after failures, or are parked, at its end: it left them alone.
    :param gone: how many items, such as objects, were deleted before they were read.
    :param data_loss: what was gone before it was read, by partition; the latest range of each.
    :param pending_acknowledgments: how many batches it delivered that others have yet to acknowledge.
    :param acknowledgment_sets: the names of their sets, the first 1,000.
    :param seconds: how long it ran.
    :param stopped_because: the condition that ended it.
    :param metrics: the totals of what the job counted, zeros left out.
    """

    rounds: int = 0
    records_landed: int = 0
    records_delivered: int = 0
    bytes_delivered: int = 0
    batches_delivered: int = 0
    records_by_sink: dict[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    unrouted: int = 0
    parse_exceptions: int = 0
    saved_parse_exceptions: list[dict[str, Any]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    handed_over: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    resting: list[str] = field(default_factory=list)
    gone: int = 0
    data_loss: dict[str, str] = field(default_factory=dict)
    pending_acknowledgments: int = 0
    acknowledgment_sets: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stopped_because: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}
