"""Objects that a queue announces: found by its messages, packed into partitions, and claimed as a scan claims them.

It is a supplier, so one worker of the fleet runs it at a time. Each page of partitions is created together with the
claims of its objects, and only then are the messages deleted. So a message is received again until its objects are
recorded, and an object that is announced twice, in any order, or found by a scan as well, is in one partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.aws import AwsSettings, Permission, aws_client
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Page, Supplier
from airflow_provider_coordination.coordination.texts import first_of
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.item_kind import ItemSupplier
from airflow_provider_coordination.sources.kept_messages import HIDDEN, Announced, KeptMessages
from airflow_provider_coordination.sources.queues import Message, Queue, QueueAddress, check_queue_url, region_of
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import Listing, S3Listing
from airflow_provider_coordination.sources.s3.notifications import Announcement, UnreadableMessageError, announced
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.s3.scan import (
    GATHERED_OBJECTS,
    GATHERED_SECONDS,
    S3Scan,
    Selection,
    Window,
    page_of,
    still_new,
)
from airflow_provider_coordination.sources.s3.selection import PackingLimits

log = logging.getLogger(__name__)

RECORDING = timedelta(minutes=5)
"""How long messages are hidden while their objects are recorded."""
WAIT_SECONDS = 1
"""How long the queue waits for a first message. Waiting at all makes it ask all of its servers."""
RECEIVERS = 8
"""The maximum number of calls that receive messages at the same time."""
RUN_SECONDS = 600.0
"""After this time a run ends, although there are messages; the next run takes them."""
NAMED_MESSAGES = 3
"""How many of the messages that stay in the queue a log line names."""


def finder(
    settings: S3Objects, coordinator: SourceCoordinator, connections: ConnectionResolver | None = None
) -> Supplier:
    """Return the supplier that finds objects: by the queue if there is one, else by a scan."""
    if settings.queue is None:
        return S3Scan(settings, coordinator, connections)
    return AnnouncedObjects(settings, coordinator, connections)


class AnnouncedObjects(ItemSupplier[S3Objects]):
    """Finds objects by the messages of a queue, and yields partitions of them; a `Supplier`.

    :param settings: of the source, with a queue.
    :param coordinator: of the source, initialized.
    :param connections: resolves the connection of the queue; None to reach it as S3 is reached.
    :param open_queue: returns the queue.
    :param list_path: returns the listing of a path, for a scan beside the queue.
    """

    def __init__(
        self,
        settings: S3Objects,
        coordinator: SourceCoordinator,
        connections: ConnectionResolver | None = None,
        *,
        open_queue: Callable[[QueueAddress], Queue] | None = None,
        list_path: Callable[[str], Listing] | None = None,
    ) -> None:
        settings.check()
        super().__init__(settings, coordinator, connections)
        assert settings.queue_address is not None
        self._address = settings.queue_address
        self._open = open_queue or (lambda address: self._opened(address, connections))
        self._queues: dict[QueueAddress, Queue] = {}
        self._clock = coordinator.clock
        self._claims = coordinator.claims
        self._kept = KeptMessages(coordinator.view)
        self._hidden = RECORDING if settings.acknowledge == "recorded" else HIDDEN
        self._limits = PackingLimits(
            max_objects=settings.max_objects, max_bytes=settings.max_bytes, room=self._claims.room
        )
        window = Window(settings.start_time, settings.end_time)
        self._selections = [Selection(settings, S3Listing(None, path), window) for path in settings.paths]
        scanned = replace(settings, queue=None, reconcile=None, interval=settings.reconcile)
        self._scan = S3Scan(scanned, coordinator, connections, list_path=list_path) if settings.reconcile else None
        self._received: list[Message] = []
        self._received_at = self._clock.now()

    @override
    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        """Record what the queue announces, until it has no message; then scan, if a scan is due.

        :param state: the state of scans, which this only passes on.
        :raises ConfigurationError: if the queue does not exist, or access is denied.
        :raises SourceUnavailableError: if the queue does not respond; the next run continues.
        """
        if self._scan is not None and self._settings.delete_on_success:
            self._scan.finish_deletions()
        self._kept.tend(self._queue)
        yield from self._announced()
        if self._settings.acknowledge != "recorded":
            self._kept.tend(self._queue)
        if self._scan is not None:
            yield from self._scan(state)

    def _announced(self) -> Iterator[Page]:
        ends = self._clock.monotonic() + RUN_SECONDS
        messages = objects = new = left = 0
        is_empty = False
        while not is_empty and self._clock.monotonic() < ends:
            is_empty = self._receive()
            reading = _Reading(self._received, self._selections)
            found = reading.objects
            unclaimed = [found[name] for name in self._claims.unclaimed(list(found))]
            taken = [(each, reading.groups[each.name]) for each in still_new(self._claims, unclaimed)]
            if taken:
                yield page_of(taken, self._limits)
            self._settle(reading)  # whatever was not created just now belongs to a partition already
            messages, objects = messages + len(self._received), objects + len(found)
            new, left = new + len(taken), left + len(reading.left)
            self._received = []
        log.info(
            "queue read: source=%s queue=%s messages=%d objects=%d new=%d left=%d",
            self._coordinator.source, self._address.url, messages, objects, new, left,
        )  # fmt: skip

    def _receive(self) -> bool:
        """Receive messages until there are enough for even partitions; return whether the queue has no more.

        Messages whose partitions could not be created in the last run of this supplier are still at hand.
        """
        queue, since = self._queue(self._address), self._clock.monotonic()
        if not self._received:
            self._received_at = self._clock.now()
        calls = 1
        with ThreadPoolExecutor(RECEIVERS, thread_name_prefix="receive") as pool:
            while len(self._received) < GATHERED_OBJECTS and self._clock.monotonic() - since < GATHERED_SECONDS:
                wanted = [
                    pool.submit(
                        queue.receive, wait_seconds=WAIT_SECONDS, hidden_seconds=int(self._hidden.total_seconds())
                    )
                    for _ in range(calls)
                ]
                answers = [each.result() for each in wanted]
                self._received += [message for answer in answers for message in answer]
                if not any(answers):
                    return True
                calls = min(2 * calls, RECEIVERS) if all(answers) else 1
        return False

    def _settle(self, reading: _Reading) -> None:
        """Delete the messages whose objects are recorded, or keep them until their objects are delivered."""
        for reason, messages in reading.left_by_reason.items():
            log.warning(
                "%d messages stay in the queue, whose redrive policy decides about them: source=%s messages=%s: %s",
                len(messages), self._coordinator.source,
                first_of([message.id for message in messages], NAMED_MESSAGES), reason,
            )  # fmt: skip
        settled = [message for message in self._received if message.id not in reading.left]
        if self._settings.acknowledge != "recorded":
            settled = self._keep(settled, reading)
        self._queue(self._address).delete([message.handle for message in settled])

    def _keep(self, messages: Sequence[Message], reading: _Reading) -> list[Message]:
        """Keep the messages that announce objects of partitions; return the others."""
        names = reading.names
        partitions = self._claims.partitions_of(dict.fromkeys(name for each in names.values() for name in each))
        kept = {
            message: [Announced(name=name, family=of[0], partition=of[1]) for name, of in belong]
            for message in messages
            if (belong := [(name, partitions[name]) for name in names.get(message.id, ()) if name in partitions])
        }
        self._kept.keep(self._address, kept, self._received_at)
        return [message for message in messages if message not in kept]

    def _queue(self, address: QueueAddress) -> Queue:
        if address not in self._queues:
            self._queues[address] = self._open(address)
        return self._queues[address]

    def _opened(self, address: QueueAddress, connections: ConnectionResolver | None) -> Queue:
        if connections is not None:
            return address.open(connections)
        return Queue(address.url, aws_client(_in_region_of(address.url, self._settings.aws), "sqs"))


class _Reading:
    """What some messages announce.

    :param messages: the messages.
    :param selections: of the paths, in order.
    """

    def __init__(self, messages: Sequence[Message], selections: Sequence[Selection]) -> None:
        self.left: dict[str, str] = {}
        self.left_by_reason: dict[str, list[Message]] = {}
        self.groups: dict[str, str] = {}
        self._selections = selections
        self._newest: dict[str, Announcement] = {}
        self._uris: dict[str, list[str]] = {}
        for message in messages:
            try:
                self._uris[message.id] = [uri for each in announced(message.body) if (uri := self._add(each))]
            except UnreadableMessageError as error:
                self.left[message.id] = str(error)
                self.left_by_reason.setdefault(str(error), []).append(message)
        self.objects: dict[str, ListedObject] = {each.listed.name: each.listed for each in self._newest.values()}

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of the objects that each message announces, by the message's id.

        An older version of an object that was replaced goes by the newest one that is announced.
        """
        return {id_: [self._newest[uri].listed.name for uri in uris] for id_, uris in self._uris.items()}

    def _add(self, each: Announcement) -> str | None:
        """Add an object if it is selected; return its URI.

        :raises UnreadableMessageError: if no path contains it.
        """
        uri = each.listed.uri
        containing = [selection for selection in self._selections if uri.startswith(selection.start)]
        if not containing:
            raise UnreadableMessageError(
                "they announce objects outside of 'paths'; add their path, or narrow the notification of the bucket"
            )
        selection = next((selection for selection in containing if selection.takes(each.listed)), None)
        if selection is None or uri.endswith("/"):
            return None
        known = self._newest.get(uri)
        if known is None or known.is_before(each):
            self._newest[uri] = each
            self.groups[each.listed.name] = selection.group(each.listed)
        return uri


def permissions(what: str, access: Callable[[str], AwsSettings]) -> tuple[AwsSettings, Sequence[Permission]] | None:
    """Return the permissions that finding objects by a queue needs; None if `what` is no queue.

    :param what: the URL of the queue.
    :param access: returns the settings for an AWS service.
    :raises ConfigurationError: if it is the URL of a queue that cannot announce objects.
    """
    if "://" in what and not what.startswith("http"):
        return None
    if remedy := check_queue_url(what):
        raise ConfigurationError(f"queue {what!r} {remedy}")
    settings = _in_region_of(what, access("sqs"))
    return settings, list(Queue(what, aws_client(settings, "sqs")).permissions())


def _in_region_of(url: str, settings: AwsSettings) -> AwsSettings:
    return replace(settings, region=region_of(url) or settings.region)
