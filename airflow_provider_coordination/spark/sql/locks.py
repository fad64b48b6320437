"""Waiting for locks of other transactions: who holds them, until when, and what ends them.

A job that is paused within a transaction keeps its locks until the server ends its session. The next owner waits that
long. PostgreSQL does not end a session that stopped in the middle of a COPY; then the next owner ends it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.spark.delivery import SinkLockedError

log = logging.getLogger(__name__)

ABANDONED_SECONDS = 60
"""After this time, a worker that stopped in the middle of a transaction loses its locks."""
LOCKED_SECONDS = 180.0
"""How long a transaction is repeated while others hold its locks: longer than an abandoned session lasts."""
MAX_NAMED = 3
"""The number of sessions that a message names."""


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """A session of the database whose transaction holds locks.

    :param session: its number.
    :param user: its user.
    :param client: its application and address; empty if the server does not show it.
    :param since: when its transaction began; None if the server does not show it.
    :param idle_since: since when it is idle; None if it works, or if the server does not show it.
    :param until: when the server ends it if it stays idle; None if that is not known.
    :param copied: the number of bytes that it has received, if a job of the same login waits for more within a COPY.
    :param is_certain: whether it does hold locks, as far as the server shows.
    :param ends_by: the statement that ends it.
    """

    session: int
    user: str
    client: str = ""
    since: datetime | None = None
    idle_since: datetime | None = None
    until: datetime | None = None
    copied: int | None = None
    is_certain: bool = True
    ends_by: str

    def __str__(self) -> str:
        said = f"{'' if self.is_certain else 'probably by '}session {self.session} of user {self.user!r}"
        said += f" ({self.client})" if self.client else ""
        said += f", in a transaction since {self.since:%Y-%m-%d %H:%M:%S}" if self.since else ""
        said += f", idle since {self.idle_since:%H:%M:%S}" if self.idle_since else ""
        said += ", waiting for its client within a COPY" if self.copied is not None else ""
        said += f"; the server ends it at {self.until:%H:%M:%S} UTC if it stays idle" if self.until else ""
        return f"{said}; to end it now: {self.ends_by}"


def lock_holders(rows: Sequence[Sequence[Any]], ends_by: str, *, is_certain: bool = True) -> list[LockHolder]:
    """Return the sessions that a server shows: readers only if nobody else holds a lock.

    :param rows: for each session the fields of `LockHolder` up to `copied`, and whether it holds a writer's lock.
    :param ends_by: the statement that ends a session, with its number as `{}`.
    :param is_certain: whether the sessions do hold locks, as far as the server shows.
    """
    writers = [row for row in rows if row[-1]]
    return [
        LockHolder(
            session=session,
            user=user,
            client=client,
            since=since,
            idle_since=idle_since,
            until=until,
            copied=copied,
            is_certain=is_certain,
            ends_by=ends_by.format(session),
        )
        for session, user, client, since, idle_since, until, copied, _ in writers or rows
    ]


class LockWait:
    """How long one transaction waits for the locks of others.

    :param location: the table, for messages.
    :param find: returns the sessions that hold locks on the table in transactions that are older than some seconds.
    :param end: ends a session.
    """

    def __init__(
        self, location: str, find: Callable[[float], Sequence[LockHolder]], end: Callable[[LockHolder], None]
    ) -> None:
        self._location = location
        self._find = find
        self._end = end
        self._began: float | None = None
        self._stalled: dict[tuple[int, datetime | None, int], float] = {}

    def note(self, reason: str, waited: float) -> None:
        """Note that a lock was not granted.

        :param reason: the server's message.
        :param waited: the seconds since the transaction began.
        :raises SinkLockedError: if the transaction has waited long enough.
        """
        now = time.monotonic()
        if self._began is None:
            self._began = now - waited
        holders = self._find(waited)
        named = " and ".join(map(str, holders[:MAX_NAMED])) or "a session that the server does not show"
        said = f"table {self._location} is locked by {named} ({reason})"
        if now - self._began >= LOCKED_SECONDS:
            raise SinkLockedError(said)
        log.warning("the transaction is repeated: %s", said)
        for holder in holders:
            self._end_if_stalled(holder, now)

    def _end_if_stalled(self, holder: LockHolder, now: float) -> None:
        """End a session of ours that has received nothing within a COPY for as long as an idle one may last."""
        if holder.copied is None:
            return
        since = self._stalled.setdefault((holder.session, holder.since, holder.copied), now)
        if now - since >= ABANDONED_SECONDS:
            log.warning("the abandoned session %d of user %r is ended", holder.session, holder.user)
            self._end(holder)
