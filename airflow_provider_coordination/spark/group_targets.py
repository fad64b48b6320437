"""What the jobs of a group write: no two sources of a group write one table or folder.

A spec is compared with others before its connections are resolved. So two connections to one database, or a table with
and without its schema, are only noticed by the host.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sink_settings import OF_FUNCTION, normalized_location

INTERVAL = re.compile("@[^@]*--[^@]*$")
"""What the name of a source ends with that is an interval of another one, which writes the same."""


class GroupTargets:
    """The sinks of the jobs that run in a group's host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._written: dict[str, tuple[str, Mapping[str, str]]] = {}

    @contextmanager
    def writing(self, settings: IngestSettings) -> Iterator[None]:
        """Let a job write its sinks while the block runs.

        :raises ConfigurationError: if a job of another source writes one of them.
        """
        mine = {
            normalized_location(sink.location): f"{sink} in {sink.location!r}"
            for sink in settings.writes
            if not sink.location.startswith(OF_FUNCTION)
        }
        source_of_mine = INTERVAL.sub("", settings.source)
        with self._lock:
            for source, theirs in self._written.values():
                if source != source_of_mine and (same := mine.keys() & theirs.keys()):
                    raise ConfigurationError(
                        f"{mine[min(same)]} is what source {source!r} of the same group writes as well, there "
                        f"{theirs[min(same)]}: give one of them another location, or another 'group'"
                    )
            self._written[settings.owner] = (source_of_mine, mine)
        try:
            yield
        finally:
            with self._lock:
                del self._written[settings.owner]
