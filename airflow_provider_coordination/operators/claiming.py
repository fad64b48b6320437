"""Claiming a source, and its delivery, for a DAG, in a task that creates its partitions, reads or delivers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.partition import UNFINISHED
from airflow_provider_coordination.coordination.source_claim import DeliveryClaim, SourceClaim, claim
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.operators.reads.reads import Located, Reads
from airflow_provider_coordination.spark.settings import IngestSettings, SinkSettings

KINESIS = "kinesis"


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


def claim_reads(view: SourceView, context: Context, reads: Reads) -> None:
    """Claim what `reads` describes; see `claim_source`."""
    claim_source(view, context, reads.kind, reads.reads_from if isinstance(reads, Located) else {})


def claim_streams(view: SourceView, context: Context, streams: Sequence[str], kinesis: AwsSettings) -> None:
    """Claim Kinesis streams; see `claim_source`."""
    location = {"streams": sorted(streams), "region": kinesis.region, "endpoint_url": kinesis.endpoint_url}
    claim_source(view, context, KINESIS, {name: value for name, value in location.items() if value is not None})


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


def claim_for_job(
    connection: ConnectionSettings, context: Context, settings: IngestSettings, reads: Reads | None
) -> Prospect:
    """Claim what a Spark job reads, and its delivery; see `claim_source` and `claim_delivery`.

    :returns: what awaits the job. What is not a stream, or is an interval of one, ends some day: nothing is left then.
    :raises StoreUnavailableError: if the store does not answer.
    """
    view = connection.view(settings.source)
    with closing(view.store):
        if reads is None:
            claim_streams(view, context, settings.streams, settings.kinesis)
        else:
            claim_reads(view, context, reads)
        claim_delivery(view, context, settings.all_sinks)
        ends = reads is not None or settings.finish_at_stop
        return Prospect(
            is_anything_left=not ends or any(view.count_by_status()[status] for status in UNFINISHED),
            suspension=view.suspension(),
        )
