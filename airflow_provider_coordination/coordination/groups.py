"""Groups of sources, whose jobs run in one Spark application: the group's host.

A job of a member is requested by an item of the group's family `…|REQUEST`. A host asks for requests every second, and
takes one by deleting it, if it is unchanged. So one host runs each job, although several may exist. The host itself is
a followed job (`jobs`) of the group, as other jobs are of a source.

A launcher first writes a request, then looks for a host. A host that ends first writes so, then looks for requests. So
one of them sees the other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, new_partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.workers import item_key

log = logging.getLogger(__name__)

FAMILY = "REQUEST"
GROUP_NAME = r"^[^|@\s]{1,64}$"
"""The name of a group."""
GROUP_NAME_WORDS = "1 to 64 characters without '|', '@' or spaces"
MAX_SEALED_CHARACTERS = 60_000
"""A stored progress holds 64 KB."""
TAKEN_AT_A_TIME = 100
NO_ARGUMENTS: Mapping[str, str] = {}


def group_identifier(name: str, key_id: str) -> str:
    """Return the name under which a group has its items, in place of a source.

    :param name: the group's name.
    :param key_id: identifies the key of the group's requests: hosts and requests with another key are another group.
    """
    return f"@{name}@{key_id}"


@dataclass(frozen=True)
class MemberRequest:
    """A request to run a job of a member.

    :param item: the item as it was read.
    """

    item: Partition

    @property
    def owner(self) -> str:
        """The job's owner."""
        return self._text("owner")

    @property
    def source(self) -> str:
        """The member's source."""
        return self._text("source")

    @property
    def sealed(self) -> str:
        """The job's settings, sealed."""
        return self._text("sealed")

    @property
    def application(self) -> Mapping[str, str]:
        """The digests of Spark's arguments that the job asks for, by their names."""
        value = self.item.progress.get("application")
        return value if isinstance(value, Mapping) else NO_ARGUMENTS

    def _text(self, name: str) -> str:
        value = self.item.progress.get(name)
        return value if isinstance(value, str) else ""


class GroupRequests:
    """The requests of one group.

    :param view: an initialized view of the group, by its `group_identifier`.
    """

    def __init__(self, view: SourceView) -> None:
        self.view = view
        self.jobs = Jobs(view)
        self._store = view.store
        self._identifier = view.family(FAMILY)

    def add(self, owner: str, source: str, sealed: str, application: Mapping[str, str] = NO_ARGUMENTS) -> None:
        """Request a job; see `MemberRequest`. If it is requested already, nothing changes.

        :raises ConfigurationError: if the settings are too large.
        """
        if len(sealed) > MAX_SEALED_CHARACTERS:
            raise ConfigurationError(
                f"the sealed settings of a job of source {source!r} have {len(sealed)} characters, and a group's "
                f"request holds {MAX_SEALED_CHARACTERS}: move large values, such as queries, to a file, or leave "
                "'group' out"
            )
        progress = {"owner": owner, "source": source, "sealed": sealed, "application": dict(application)}
        item = new_partition(self._identifier, item_key(owner), self.view.clock.now())
        self._store.create([item.with_progress(progress)])

    def waiting(self) -> list[MemberRequest]:
        """Return the requests that no host has taken, the oldest first."""
        found = self._store.query(self._identifier, PartitionStatus.UNASSIGNED, limit=TAKEN_AT_A_TIME)
        return [MemberRequest(item) for item in found]

    def take(self, request: MemberRequest) -> bool:
        """Take a request; return whether this process took it, so that no other one runs its job."""
        try:
            self._store.delete(request.item)
        except PartitionUpdateError:  # another host took it, or its launcher withdrew it
            return False
        return True

    def withdraw(self, owner: str) -> None:
        """Delete a request that no host has taken."""
        if (item := self._store.get(self._identifier, item_key(owner))) is not None:
            with suppress(PartitionUpdateError):
                self._store.delete(item)

    def refuse(self, outcome: Mapping[str, Any]) -> None:
        """Take all waiting requests, and record an outcome for their jobs: no host runs them."""
        for request in self.waiting():
            if self.take(request):
                self.record_outcome(request, outcome)

    def record_outcome(self, request: MemberRequest, outcome: Mapping[str, Any]) -> None:
        """Record the outcome of a job that was requested and cannot record it itself."""
        view = self.view
        source = SourceView(
            view.store, request.source, prefix=view.prefix, safety_margin=view.safety_margin, clock=view.clock
        )
        Jobs(source).end(request.owner, outcome)
        log.warning("a job of source %s did not run: owner=%s: %s", request.source, request.owner, outcome.get("error"))

    def host(self, besides: str = "") -> Job | None:
        """Return a host that takes requests, or will once it has started; None if there is none.

        One that runs comes first, then one that starts, then the one with the smallest name.

        :param besides: the owner of a host that does not count.
        """
        now, found = self.view.clock.now(), []
        for listed in self.jobs.unfinished():
            job = self.jobs.get(listed.owner)  # by its key: a list may be older
            if job is None or job.owner == besides or job.stop is not None:
                continue
            at = job.given_up_at(self.jobs.safety_margin)
            if at is not None and at > now:
                found.append(job)
        order = [JobState.RUNNING, JobState.STARTING, JobState.SUBMITTED]
        return min(found, key=lambda job: (order.index(job.state), job.owner), default=None)
