"""Which DAG reads a source, and where from.

Progress belongs to a source by its name. Two DAGs that give different things the same name would each skip what the
other one has delivered, so the first one claims the name, and one that means something else is refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, new_partition
from airflow_provider_coordination.coordination.settings import read_settings, write_settings

log = logging.getLogger(__name__)

FAMILY = "SOURCE_CLAIM"
KEY = "READ_BY"
MAX_VALUE_CHARACTERS = 200
"""So much of a value is told where two DAGs differ."""


@dataclass(frozen=True, kw_only=True)
class SourceClaim:
    """Who reads a source, and what it means by it.

    :param dag_id: the DAG.
    :param task_id: the task that claimed it.
    :param claimed_at: when (aware).
    :param kind: the kind of source, such as `kinesis`.
    :param location: where it reads from; JSON. Nothing that may differ between two runs of the DAG.
    """

    dag_id: str
    task_id: str
    claimed_at: datetime
    kind: str
    location: dict[str, Any] = field(default_factory=dict)

    def differences(self, other: SourceClaim) -> list[str]:
        """Return in what the two mean something else, each as `<field> <here> here and <there> there`."""
        if self.kind != other.kind:
            return [f"kind {self.kind!r} here and {other.kind!r} there"]
        names = sorted(self.location.keys() | other.location.keys())
        values = ((name, _plain(self.location.get(name)), _plain(other.location.get(name))) for name in names)
        return [f"{name} {_told(here)} here and {_told(there)} there" for name, here, there in values if here != there]

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, the form in which it is stored."""
        return {**write_settings(self), "location": _plain(self.location)}

    @classmethod
    def of(cls, item: Partition) -> SourceClaim:
        """Return the claim that is stored.

        :raises ConfigurationError: if it is unreadable.
        """
        return read_settings(cls, "stored claim of a source", item.progress)


def claim(coordinator: SourceCoordinator, mine: SourceClaim) -> None:
    """Claim a source for a DAG, or find that it may read it.

    A DAG that means the same may read it too. One that claimed it before and means something else now takes it over.

    :param coordinator: of the source.
    :raises ConfigurationError: if another DAG has claimed it and means something else; both are named.
    """
    while True:
        stored = claimed(coordinator)
        if stored is None:
            item = new_partition(coordinator.family(FAMILY), KEY, coordinator.clock.now())
            if coordinator.store.create([item.with_progress(mine.to_mapping())]):
                log.info("source claimed: source=%s dag=%s task=%s", coordinator.source, mine.dag_id, mine.task_id)
                return
            continue  # somebody was faster
        theirs = SourceClaim.of(stored)
        differences = mine.differences(theirs)
        if not differences:
            return
        if theirs.dag_id != mine.dag_id:
            raise _refused(coordinator.source, mine, theirs, differences)
        try:
            coordinator.store.transact(update=[stored.with_progress(mine.to_mapping())])
        except PartitionUpdateError:  # somebody changed it in between
            continue
        log.warning(
            "source is read differently from now on: source=%s dag=%s task=%s: %s; progress that was made before stays",
            coordinator.source, mine.dag_id, mine.task_id, ", ".join(differences),
        )  # fmt: skip
        return


def claimed(coordinator: SourceCoordinator) -> Partition | None:
    """Return the item that holds a source's claim; None if nobody claims it."""
    return coordinator.store.get(coordinator.family(FAMILY), KEY)


def _refused(source: str, mine: SourceClaim, theirs: SourceClaim, differences: list[str]) -> ConfigurationError:
    return ConfigurationError(
        f"source {source!r} is claimed by DAG {theirs.dag_id!r}, since its task {theirs.task_id!r} at "
        f"{theirs.claimed_at:%Y-%m-%dT%H:%M:%SZ}, and DAG {mine.dag_id!r} reads something else by that name: "
        f"{', '.join(differences)}; give one of them another 'source', or, if DAG {theirs.dag_id!r} is to read it no "
        f"more: airflow-coordination unclaim {source}"
    )


def _plain(value: Any) -> Any:
    """Return a value as it is once it was stored: tuples are lists, mappings of any kind are objects."""
    return json.loads(json.dumps(value, default=_as_object))


def _as_object(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _told(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"
