"""Claiming a source, and its delivery, for a DAG, in a task that creates its partitions, reads or delivers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.coordination.partition import UNFINISHED
from airflow_provider_coordination.coordination.source_claim import DeliveryClaim, SourceClaim, claim
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.operators.reads.reads import Located, Reads
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.settings import IngestSettings, SinkSettings


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """What awaits a job that would begin now.

    :param is_anything_left: whether there is anything to do, now or later.
    :param suspension: how the source is suspended; None if it is not.
    """

    is_anything_left: bool
    suspension: Suspension | None = None


def claim_source(view: SourceView, context: Context, kind: str, location: Mapping[str, Any]) -> None:
    """Claim a source for this task's DAG.

    :param view: of the source.
    :param kind: the kind of source.
    :param location: where it reads from.
    :raises ConfigurationError: if another DAG has claimed it and reads something else; both are named.
    """
    ti: Any = context["ti"]
    mine = SourceClaim(
        dag_id=ti.dag_id, task_id=ti.task_id, claimed_at=view.clock.now(), kind=kind, location=dict(location)
    )
    claim(view, mine)


def claim_reads(view: SourceView, context: Context, reads: Reads, settings: ReadsSettings | None = None) -> None:
    """Claim what `reads` describes; see `claim_source`.

    :param settings: what a Spark job is given of it; None where only `reads` itself can say where it reads from.
    """
    if isinstance(reads, Located):
        location = reads.reads_from
    else:
        location = {} if settings is None else settings.found().location(settings.settings)
    claim_source(view, context, reads.kind, location)


def claim_delivery(view: SourceView, context: Context, sinks: Sequence[SinkSettings]) -> None:
    """Claim the delivery of a source for this task's DAG.

    :param view: of the source.
    :param sinks: all that the job delivers to.
    :raises ConfigurationError: if another DAG has claimed it and delivers to other places; both are named.
    """
    ti: Any = context["ti"]
    places = {
        sink.name: (sink.location.rstrip("/") or sink.location) + ("" if sink.where is None else f" where {sink.where}")
        for sink in sinks
    }
    claim(
        view,
        DeliveryClaim(dag_id=ti.dag_id, task_id=ti.task_id, claimed_at=view.clock.now(), sinks=places),
    )


def claim_for_job(connection: ConnectionSettings, context: Context, settings: IngestSettings, reads: Reads) -> Prospect:
    """Claim what a Spark job reads, and its delivery; see `claim_source` and `claim_delivery`.

    :returns: what awaits the job. What has an end is done with some day: nothing is left then.
    :raises StoreUnavailableError: if the store does not answer.
    """
    view = connection.view(settings.source)
    with closing(view.store):
        claim_reads(view, context, reads, settings.reads)
        claim_delivery(view, context, settings.all_sinks)
        ends = settings.reads.found().ends(settings.reads.settings)
        return Prospect(
            is_anything_left=not ends or any(view.count_by_status()[status] for status in UNFINISHED),
            suspension=view.suspension(),
        )
