"""What delivery still owes for a batch: one reference per sink.

This is the form that lives and dies with the Spark job. A batch that was not acknowledged before the job died is
delivered again from its landed file, which the sinks recognise by its batch id.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class AcknowledgmentState(StrEnum):
    """Where a set stands; all but PENDING are ends."""

    PENDING = "PENDING"
    ACKNOWLEDGED = "ACKNOWLEDGED"
    REJECTED = "REJECTED"


class AcknowledgmentSet:
    """The references of one batch; ends once, when the last is released or the first is released negatively.

    :param batch_id: the batch.
    :param sinks: one reference each; none at all means that nothing is owed.
    """

    def __init__(self, batch_id: str, sinks: Iterable[str]) -> None:
        self.batch_id = batch_id
        self._owed = set(sinks)
        self._state = AcknowledgmentState.PENDING if self._owed else AcknowledgmentState.ACKNOWLEDGED

    @property
    def state(self) -> AcknowledgmentState:
        """Where the set stands."""
        return self._state

    def release(self, sink: str, *, positive: bool) -> AcknowledgmentState:
        """Release a sink's reference and return where the set stands then.

        Releasing twice, or after the end, changes nothing.
        """
        if self._state is AcknowledgmentState.PENDING and sink in self._owed:
            self._owed.discard(sink)
            if not positive:
                self._state = AcknowledgmentState.REJECTED
            elif not self._owed:
                self._state = AcknowledgmentState.ACKNOWLEDGED
        return self._state
