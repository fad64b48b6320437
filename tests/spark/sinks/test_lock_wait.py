"""A transaction waits for locks as long as an abandoned session may last, and ends a session that stalls in a COPY."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from airflow_provider_coordination.spark.delivery import SinkLockedError
from airflow_provider_coordination.spark.sinks.sql import database
from airflow_provider_coordination.spark.sinks.sql.database import LockHolder, LockWait

ABANDONED, LOCKED = database.ABANDONED_SECONDS, int(database.LOCKED_SECONDS)


class Wait:
    """A transaction that waits for one session.

    :param copied: the bytes that the session has received within a COPY, by the second; None outside of one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, copied: Callable[[int], int | None]) -> None:
        self.second = 0
        self.ended: list[int] = []
        self._copied = copied
        self._wait = LockWait("clicks", lambda waited: [self._holder()], lambda holder: self.ended.append(self.second))
        monkeypatch.setattr(database, "time", SimpleNamespace(monotonic=lambda: float(self.second)))

    def _holder(self) -> LockHolder:
        return LockHolder(session=7, user="job", copied=self._copied(self.second), ends_by="KILL 7")

    def until(self, second: int) -> None:
        """Miss the lock at the start, and once a second until then."""
        for self.second in range(second + 1):
            self._wait.note("timeout", 0.0)


def test_session_stalled_in_a_copy_is_ended_once_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, lambda second: 6)
    wait.until(ABANDONED)
    assert wait.ended == [ABANDONED]


@pytest.mark.parametrize("copied", [lambda second: second, lambda second: None], ids=["within a COPY", "outside"])
def test_other_sessions_are_not_ended(monkeypatch: pytest.MonkeyPatch, copied: Callable[[int], int | None]) -> None:
    wait = Wait(monkeypatch, copied)
    wait.until(LOCKED - 1)
    assert wait.ended == []


def test_lock_is_waited_for_until_sessions_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Wait(monkeypatch, lambda second: None)
    with pytest.raises(SinkLockedError, match="table clicks is locked by session 7 of user 'job'"):
        wait.until(LOCKED + 1)
    assert wait.second == LOCKED > ABANDONED
