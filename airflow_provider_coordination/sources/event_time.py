"""The bounds on the event time of records, outside which they are late or early, as they are recorded with a batch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class EventTimeBounds:
    """Which records of a batch are late or early.

    The column's type belongs to them: who delivers the batch later, with another schema, leaves the same records out.

    :param column: the field of the payload that says when something happened.
    :param type: its type, as Spark writes it.
    :param earliest: records before this instant (aware) are late; None for no such bound.
    :param latest: records after this instant (aware) are early; None for no such bound.
    """

    column: str
    type: str
    earliest: datetime | None
    latest: datetime | None
