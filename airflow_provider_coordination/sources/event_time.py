"""The bounds on the event time of records, as stored with a batch: records outside them are late or early."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class EventTimeBounds:
    """Which records of a batch are late or early.

    The bounds include the column's type and format, so that a later delivery with another schema leaves out the same
    records.

    :param column: the field of the payload that holds the event time.
    :param type: its type, as Spark writes it.
    :param earliest: records before this instant (aware) are late; None for no such bound.
    :param latest: records after this instant (aware) are early; None for no such bound.
    :param time_format: the format of its times; None for those that Spark accepts.
    """

    column: str
    type: str
    earliest: datetime | None
    latest: datetime | None
    time_format: str | None = None
