"""Which DAG reads a source, where from, and where it delivers what it reads.

Progress belongs to a source by its name. Two DAGs that give different things the same name would each skip what the
other one has delivered; two that deliver one source to different places would each miss what the other one delivers. So
the first one claims the name, and one that means something else is refused. What reads a source and what delivers it
may be tasks of different DAGs, and are claimed apart.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, format_instant, new_partition, parse_instant
from airflow_provider_coordination.coordination.source_view import SourceView

log = logging.getLogger(__name__)

FAMILY = "SOURCE_CLAIM"
MAX_VALUE_CHARACTERS = 200
"""How much of a value is shown where two DAGs differ."""


@dataclass(frozen=True, kw_only=True)
class SourceClaim:
    """Who reads a source, and what it means by it.

    :param dag_id: the DAG.
    :param task_id: the task that claimed it.
    :param claimed_at: when (aware).
    :param kind: the kind of source, such as `kinesis`.
    :param location: where it reads from; JSON. Nothing that may differ between two runs of the DAG.
    """

    KEY: ClassVar[str] = "READ_BY"
    PURPOSE: ClassVar[str] = "read"

    dag_id: str
    task_id: str
    claimed_at: datetime
    kind: str
    location: dict[str, Any] = field(default_factory=dict)

    def differences(self, other: SourceClaim) -> list[str]:
        """Return in what the two mean something else, each as `<field> <here> here and <there> there`."""
        if self.kind != other.kind:
            return [f"kind {self.kind!r} here and {other.kind!r} there"]
        return _differences(self.location, other.location)

    def refusal(self, source: str, other: SourceClaim) -> str:
        """Return why a source that another DAG has claimed is not read by this one."""
        return (
            f"source {source!r} is claimed by DAG {other.dag_id!r}, since its task {other.task_id!r} at "
            f"{other.claimed_at:%Y-%m-%dT%H:%M:%SZ}, and DAG {self.dag_id!r} reads something else by that name: "
            f"{', '.join(self.differences(other))}; give one of them another 'source', or, if DAG {other.dag_id!r} is "
            f"to read it no more: airflow-coordination unclaim {source}"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, the form in which it is stored."""
        return {**_written(self), "kind": self.kind, "location": _plain(self.location)}

    @classmethod
    def of(cls, item: Partition) -> SourceClaim:
        """Return the claim that is stored.

        :raises ConfigurationError: if it is unreadable.
        """
        return _read(cls, item)


@dataclass(frozen=True, kw_only=True)
class DeliveryClaim:
    """Who delivers a source, and where to.

    :param dag_id: the DAG.
    :param task_id: the task that claimed it.
    :param claimed_at: when (aware).
    :param sinks: by the name of each sink, where it is and what goes there.
    """

    KEY: ClassVar[str] = "DELIVERED_BY"
    PURPOSE: ClassVar[str] = "deliver"

    dag_id: str
    task_id: str
    claimed_at: datetime
    sinks: dict[str, Any]

    def differences(self, other: DeliveryClaim) -> list[str]:
        """Return in what the two differ, each as `sink <name> <here> here and <there> there`."""
        return [f"sink {difference}" for difference in _differences(self.sinks, other.sinks)]

    def refusal(self, source: str, other: DeliveryClaim) -> str:
        """Return why a source that another DAG delivers is not delivered by this one."""
        return (
            f"source {source!r} is delivered by DAG {other.dag_id!r}, since its task {other.task_id!r} at "
            f"{other.claimed_at:%Y-%m-%dT%H:%M:%SZ}, and DAG {self.dag_id!r} delivers it elsewhere, where what the "
            f"first one delivers would be missing: {', '.join(self.differences(other))}; give both the same sinks, or "
            f"one of them another 'source', or, if DAG {other.dag_id!r} is to deliver it no more: airflow-coordination "
            f"unclaim {source}"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, the form in which it is stored."""
        return {**_written(self), "sinks": _plain(self.sinks)}

    @classmethod
    def of(cls, item: Partition) -> DeliveryClaim:
        """Return the claim that is stored.

        :raises ConfigurationError: if it is unreadable.
        """
        return _read(cls, item)


KEYS = (SourceClaim.KEY, DeliveryClaim.KEY)


def claim(view: SourceView, mine: SourceClaim | DeliveryClaim) -> None:
    """Claim a source, or its delivery, for a DAG, or find that the DAG may have it too.

    A DAG that means the same may. One that claimed it before and means something else now takes it over.

    :param view: of the source.
    :raises ConfigurationError: if another DAG has claimed it and means something else; both are named.
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
            continue  # somebody was faster
        theirs: Any = type(mine).of(stored)
        differences = mine.differences(theirs)
        if not differences:
            return
        if theirs.dag_id != mine.dag_id:
            raise ConfigurationError(mine.refusal(view.source, theirs))
        try:
            view.store.transact(update=[stored.with_progress(mine.to_mapping())])
        except PartitionUpdateError:  # somebody changed it in between
            continue
        log.warning(
            "claim to %s a source changed: source=%s dag=%s task=%s before=%s: %s; progress that was made before stays",
            mine.PURPOSE, view.source, mine.dag_id, mine.task_id, theirs.task_id, ", ".join(differences),
        )  # fmt: skip
        return


def claimed(view: SourceView, key: str = SourceClaim.KEY) -> Partition | None:
    """Return the item that holds a claim of a source, to read it by default; None if nobody claims it."""
    return view.store.get(view.family(FAMILY), key)


C = TypeVar("C", SourceClaim, DeliveryClaim)


def _written(claim: SourceClaim | DeliveryClaim) -> dict[str, Any]:
    """Return what both kinds of claims say, as it is stored."""
    return {"dag_id": claim.dag_id, "task_id": claim.task_id, "claimed_at": format_instant(claim.claimed_at)}


def _read(cls: type[C], item: Partition) -> C:
    """Return a claim as it is stored.

    :raises ConfigurationError: if it is unreadable.
    """
    try:
        return cls(**{**item.progress, "claimed_at": parse_instant(item.progress["claimed_at"])})
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError(
            f"the stored claim to {cls.PURPOSE} a source is none: {dict(item.progress)!r}; remove it with "
            "airflow-coordination unclaim"
        ) from None


def _differences(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    values = ((name, _plain(mine.get(name)), _plain(theirs.get(name))) for name in sorted(mine.keys() | theirs.keys()))
    return [f"{name} {_shown(here)} here and {_shown(there)} there" for name, here, there in values if here != there]


def _plain(value: Any) -> Any:
    """Return a value as it is once it was stored: tuples are lists, mappings of any kind are objects."""
    return json.loads(json.dumps(value, default=_as_object))


def _as_object(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= MAX_VALUE_CHARACTERS else f"{text[:MAX_VALUE_CHARACTERS]}…"
