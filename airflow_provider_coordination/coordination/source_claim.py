"""Records which DAG reads a source and where from, and which DAG delivers it and where to.

Progress belongs to a source by its name. If two DAGs give the same name to different sources, each one skips what the
other has delivered. If two DAGs deliver one source to different places, each one misses what the other has delivered.
So the first DAG claims the name, and a DAG with different settings is refused. Reading and delivering may be tasks of
different DAGs, so there is a claim for each.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, format_instant, new_partition, parse_instant
from airflow_provider_coordination.coordination.source_view import SourceView

log = logging.getLogger(__name__)

FAMILY = "SOURCE_CLAIM"
MAX_VALUE_CHARACTERS = 200
"""The maximum length of a value in the message about a difference between two DAGs."""


@dataclass(frozen=True, kw_only=True)
class SourceClaim:
    """The claim to read a source.

    :param dag_id: the DAG.
    :param task_id: the task that claimed it.
    :param claimed_at: when it was claimed (aware).
    :param kind: the kind of source, such as `kinesis`.
    :param location: where it reads from, as JSON; without values that differ between two runs of the DAG.
    """

    KEY: ClassVar[str] = "READ_BY"
    PURPOSE: ClassVar[str] = "read"

    dag_id: str
    task_id: str
    claimed_at: datetime
    kind: str
    location: dict[str, Any] = field(default_factory=dict)

    def differences(self, other: SourceClaim) -> list[str]:
        """Return the differences of the two claims, each as `<field> <here> here and <there> there`."""
        if self.kind != other.kind:
            return [f"kind {self.kind!r} here and {other.kind!r} there"]
        return location_differences(self.location, other.location)

    def refusal(self, source: str, other: SourceClaim) -> str:
        """Return the message that refuses to read a source that another DAG has claimed."""
        return (
            f"source {source!r} is claimed by DAG {other.dag_id!r}, by its task {other.task_id!r} at "
            f"{other.claimed_at:%Y-%m-%dT%H:%M:%SZ}, but DAG {self.dag_id!r} reads something else under that name: "
            f"{', '.join(self.differences(other))}; give one of them another 'source' or, if DAG {other.dag_id!r} "
            f"no longer reads it, run: airflow-coordination unclaim {source}"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the claim as the JSON object to store."""
        return {**_written(self), "kind": self.kind, "location": as_stored(self.location)}

    @classmethod
    def of(cls, item: Partition) -> SourceClaim:
        """Return the claim from its stored item.

        :raises ConfigurationError: if it is unreadable.
        """
        return _read(cls, item)


@dataclass(frozen=True, kw_only=True)
class DeliveryClaim:
    """The claim to deliver a source.

    :param dag_id: the DAG.
    :param task_id: the task that claimed it.
    :param claimed_at: when it was claimed (aware).
    :param sinks: by the name of each sink, its location and what it receives.
    """

    KEY: ClassVar[str] = "DELIVERED_BY"
    PURPOSE: ClassVar[str] = "deliver"

    dag_id: str
    task_id: str
    claimed_at: datetime
    sinks: dict[str, Any]

    def differences(self, other: DeliveryClaim) -> list[str]:
        """Return the differences of the two claims, each as `sink <name> <here> here and <there> there`."""
        return [f"sink {difference}" for difference in location_differences(self.sinks, other.sinks)]

    def refusal(self, source: str, other: DeliveryClaim) -> str:
        """Return the message that refuses to deliver a source that another DAG delivers."""
        return (
            f"source {source!r} is delivered by DAG {other.dag_id!r}, by its task {other.task_id!r} at "
            f"{other.claimed_at:%Y-%m-%dT%H:%M:%SZ}, but DAG {self.dag_id!r} delivers it elsewhere, where the batches "
            f"of the first DAG would be missing: {', '.join(self.differences(other))}; give both the same sinks, or "
            f"give one of them another 'source' or, if DAG {other.dag_id!r} no longer delivers it, run: "
            f"airflow-coordination unclaim {source}"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the claim as the JSON object to store."""
        return {**_written(self), "sinks": as_stored(self.sinks)}

    @classmethod
    def of(cls, item: Partition) -> DeliveryClaim:
        """Return the claim from its stored item.

        :raises ConfigurationError: if it is unreadable.
        """
        return _read(cls, item)


C = TypeVar("C", SourceClaim, DeliveryClaim)

KEYS = (SourceClaim.KEY, DeliveryClaim.KEY)


def claim(view: SourceView, mine: C, check_change: Callable[[C], object] | None = None) -> None:
    """Claim a source, or its delivery, for a DAG, unless another DAG has a different claim.

    A DAG with an equal claim is accepted. A DAG that claimed it before with other settings updates its claim.

    :param view: the view of the source.
    :param mine: the claim.
    :param check_change: called with the DAG's own earlier claim before it is updated; it raises to keep that claim.
    :raises ConfigurationError: if another DAG has a different claim; the message names both.
    """
    while True:
        stored = claimed(view, mine.KEY)
        if stored is None:
            item = new_partition(view.family(FAMILY), mine.KEY, view.clock.now())
            if view.store.create([item.with_progress(mine.to_mapping())]):
                log.info(
                    "source claimed to %s: source=%s dag=%s task=%s",
                    mine.PURPOSE, view.source, mine.dag_id, mine.task_id,
                )  # fmt: skip
                return
            continue  # another DAG was faster
        theirs: Any = type(mine).of(stored)
        differences = mine.differences(theirs)
        if not differences:
            return
        if theirs.dag_id != mine.dag_id:
            raise ConfigurationError(mine.refusal(view.source, theirs))
        if check_change is not None:
            check_change(theirs)
        try:
            view.store.transact(update=[stored.with_progress(mine.to_mapping())])
        except PartitionUpdateError:  # another process changed it in between
            continue
        log.warning(
            "claim to %s a source changed: source=%s dag=%s task=%s before=%s: %s; earlier progress is kept",
            mine.PURPOSE, view.source, mine.dag_id, mine.task_id, theirs.task_id, ", ".join(differences),
        )  # fmt: skip
        return


def claimed(view: SourceView, key: str = SourceClaim.KEY) -> Partition | None:
    """Return the item with a claim of a source, by default the claim to read it; None if there is none."""
    return view.store.get(view.family(FAMILY), key)


def _written(claim: SourceClaim | DeliveryClaim) -> dict[str, Any]:
    """Return the common fields of both claims as they are stored."""
    return {"dag_id": claim.dag_id, "task_id": claim.task_id, "claimed_at": format_instant(claim.claimed_at)}


def _read(cls: type[C], item: Partition) -> C:
    """Return a claim from its stored item.

    :raises ConfigurationError: if it is unreadable.
    """
    try:
        return cls(**{**item.progress, "claimed_at": parse_instant(item.progress["claimed_at"])})
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError(
            f"the stored claim to {cls.PURPOSE} a source is invalid: {dict(item.progress)!r}; remove it with "
            "airflow-coordination unclaim"
        ) from None


def location_differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return the differences of two locations, each as `<name> <mine> here and <theirs> there`."""
    mine, theirs = as_stored(mine), as_stored(theirs)
    values = ((name, mine.get(name), theirs.get(name)) for name in sorted(mine.keys() | theirs.keys()))
    return [
        f"{name} {shown_value(here)} here and {shown_value(there)} there"
        for name, here, there in values
        if here != there
    ]


def as_stored(value: Any) -> Any:
    """Return a value as it is read back from the store: tuples become lists, mappings become objects."""
    return json.loads(json.dumps(value, default=_as_object))


def _as_object(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def shown_value(value: Any) -> str:
    """Return a value of a location for a message, shortened."""
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"
