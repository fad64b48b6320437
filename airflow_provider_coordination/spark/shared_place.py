"""Whether the place that slots land in is one that the driver and all workers share.

The slots of a job's first landing find out, each before it lands: no task of Spark is begun for it alone. What they
landed is not recorded if the place turns out to be shared by some only, and swept later.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.storage import (
    PROBES,
    calls_at_once,
    delete_files,
    join,
    probe_in,
    read_text,
    remove_if_empty,
    write_text,
)


@dataclass(frozen=True)
class Probe:
    """A file that the driver has written, for workers to find; it travels to them.

    :param root: the place.
    :param name: the file's name, and what it holds.
    :param access: how the place is reached.
    """

    root: str
    name: str
    access: Access

    @property
    def uri(self) -> str:
        """Where the file is."""
        return join(self.root, PROBES, self.name)

    def answer(self, slot: int) -> str:
        """Return where a slot has left an answer, as it found the file; else what went wrong."""
        answer = probe_in(self.root, self.name, str(slot))
        try:
            if read_text(self.uri, self.access) != self.name:
                raise OSError("it holds something else")
            write_text(answer, self.name, self.access)
        except Exception as error:  # whatever it is, the driver shall hear of it
            return f"{socket.gethostname()}: {error}"
        return answer

    def is_answer(self, text: str) -> bool:
        """Return whether a text is where an answer is, rather than what went wrong."""
        return text.startswith(f"{self.uri}.")


class SharedPlace:
    """The place that a job's slots land in; its first landing checks it.

    :param root: a path or URI.
    :param access: how it is reached.
    """

    def __init__(self, root: str, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access
        self._answers: list[str] = []
        self.is_checked = False

    @contextmanager
    def probed(self) -> Iterator[Probe]:
        """Write the driver's file, for slots to answer; delete it afterwards, with the answers that were seen."""
        probe = Probe(self._root, secrets.token_hex(8), self._access)
        write_text(probe.uri, probe.name, self._access)
        try:
            yield probe
        finally:
            delete_files([probe.uri, *self._answers], self._access)
            remove_if_empty(join(self._root, PROBES), self._access)

    def check(self, probe: Probe, answers: Collection[str]) -> None:
        """Check that the driver sees what each slot left.

        :param answers: what `Probe.answer` returned to each.
        :raises ConfigurationError: naming the place, and what the workers said.
        """
        looks = side_by_side(answers, lambda answer: self._sees(answer, probe), calls_at_once(self._root, self._access))
        seen = {answer for answer, is_seen in looks if is_seen is True}
        self._answers = sorted(seen)
        if unseen := set(answers) - seen:
            raise ConfigurationError(
                f"path {self._root!r} is not shared by all workers: {'; '.join(sorted(unseen))}; "
                "give a path or URI that the driver and every executor reach"
            )
        self.is_checked = True

    def _sees(self, answer: str, probe: Probe) -> bool:
        try:
            return probe.is_answer(answer) and read_text(answer, self._access) == probe.name
        except (OSError, CoordinationError):
            return False
