"""What OpenLineage receives of jobs: their datasets, what they delivered, and runs of supervised jobs.

Datasets are named by OpenLineage's naming conventions; each kind of source names its own. For a job of a task,
Airflow's provider `openlineage` requests the metadata and reports the task's run. The jobs of a supervisor outlive its
tasks. So each is reported as a separate run once a turn finds it ended, with the supervisor's task as its parent. The
provider is imported only where it is installed.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_provider_coordination.coordination.jobs import Job
from airflow_provider_coordination.sources.source_kind import DatasetName, file_dataset
from airflow_provider_coordination.spark.column_lineage import DIRECT
from airflow_provider_coordination.spark.outcome import EXIT_LOST_WORK, EXIT_SUCCESS, Outcome
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.facet_v2 import DatasetFacet

log = logging.getLogger(__name__)

PROVIDER = "airflow.providers.openlineage"
MAX_STORED_CHARACTERS = 4000
"""The size of a job's datasets in its item: the other inputs, and then the other outputs, are left out."""
INPUTS_WITH_COLUMNS = 10
"""Of more inputs, it is not said which columns come from them: each column may come from each input."""
REPORT_SECONDS = 10.0
"""How long a turn that has done its work waits until OpenLineage has taken the events."""


@dataclass(frozen=True, kw_only=True)
class JobDatasets:
    """What a job reads and writes.

    :param source: the source's name.
    :param reads: the kind of source.
    :param inputs: the datasets that it reads, each once, in order; empty if its kind of source does not name them.
    :param outputs: the datasets that it writes, by the names of the sinks; the sink of bad records is last.
    """

    source: str
    reads: str
    inputs: Sequence[DatasetName] = ()
    outputs: Sequence[tuple[str, DatasetName]] = ()

    @classmethod
    def of(cls, settings: IngestSettings) -> JobDatasets:
        """Return the datasets of a job with these settings."""
        inputs = dict.fromkeys(settings.reads.source_kind().datasets(settings.reads.settings))
        dead = [sink for sink in settings.all_sinks if sink.name == DEAD_LETTER]
        outputs = [(sink.name, file_dataset(sink.location)) for sink in (*settings.writes, *dead)]
        return cls(source=settings.source, reads=settings.reads.kind, inputs=list(inputs), outputs=outputs)

    def to_text(self) -> str:
        """Return them as a text of bounded size."""
        inputs = [[named.namespace, named.name] for named in self.inputs]
        outputs = [[sink, named.namespace, named.name] for sink, named in self.outputs]
        while True:
            stored = {"source": self.source, "reads": self.reads, "inputs": inputs, "outputs": outputs}
            text = json.dumps(stored)
            if len(text) <= MAX_STORED_CHARACTERS or not (inputs or outputs):
                return text
            del (inputs or outputs)[-1]

    @classmethod
    def from_text(cls, text: str) -> JobDatasets:
        """Return the datasets from a text of `to_text`.

        :raises ValueError: if the text is another one.
        """
        try:
            stored = json.loads(text)
            return cls(
                source=stored["source"],
                reads=stored["reads"],
                inputs=[DatasetName(*named) for named in stored["inputs"]],
                outputs=[(sink, DatasetName(*named)) for sink, *named in stored["outputs"]],
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"{text[:100]!r} names no datasets") from error


def result_of(owner: str, outcome: Outcome, job: Job | None) -> dict[str, Any]:
    """Return what is known of the results of a job: its summary, or what it reported last if it left none.

    :param outcome: how it ended.
    :param job: the job as it is stored; None if it is not.
    """
    if outcome.summary or job is None or job.report is None:
        return {"owner": owner, **outcome.summary}
    return {"owner": owner, "records_delivered": job.report.totals.processed}


def lineage_of(datasets: JobDatasets, result: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """Return the OpenLineage metadata of a job.

    :param datasets: what it reads and writes.
    :param result: the job's summary, as far as it is known, with its `owner`.
    """
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_provider_coordination.operators.lineage_facets import CoordinationRunFacet

    records: Mapping[str, int] | None = result.get("records_by_sink")
    facets = _column_facets(datasets, result)
    outputs = [
        OutputDataset(
            namespace=named.namespace,
            name=named.name,
            facets={} if sink == DEAD_LETTER else facets,
            outputFacets={}
            if records is None
            else {
                "outputStatistics": OutputStatisticsOutputDatasetFacet(
                    rowCount=records.get(sink, 0),
                    fileCount=result.get("batches_delivered", 0) if number == 0 else None,
                )
            },
        )
        for number, (sink, named) in enumerate(datasets.outputs)
    ]
    return OperatorLineage(
        inputs=[Dataset(namespace=named.namespace, name=named.name) for named in datasets.inputs],
        outputs=outputs,
        run_facets={
            "coordination": CoordinationRunFacet(
                source=datasets.source,
                owner=str(result.get("owner") or ""),
                reads=datasets.reads,
                partitions=int(result.get("partitions_delivered", 0)),
                records=int(result.get("records_delivered", 0)),
                deadLetters=int(result.get("dead_letters", 0)),
            )
        },
    )


def _column_facets(datasets: JobDatasets, result: Mapping[str, Any]) -> dict[str, DatasetFacet]:
    """Return the facets about the columns that a job writes."""
    from openlineage.client.facet_v2 import column_lineage_dataset, schema_dataset

    columns: Mapping[str, str] = result.get("columns") or {}
    lineage: Mapping[str, Mapping[str, Any]] = result.get("column_lineage") or {}
    facets: dict[str, DatasetFacet] = {}
    if columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in columns.items()]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)

    def inputs(uses: Mapping[str, Sequence[str]]) -> list[column_lineage_dataset.InputField]:
        return [
            column_lineage_dataset.InputField(
                namespace=named.namespace,
                name=named.name,
                field=column,
                transformations=[
                    column_lineage_dataset.Transformation(type="DIRECT" if use in DIRECT else "INDIRECT", subtype=use)
                    for use in found
                ],
            )
            for named in datasets.inputs
            for column, found in uses.items()
        ]

    if lineage.get("columns") and 0 < len(datasets.inputs) <= INPUTS_WITH_COLUMNS:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                column: column_lineage_dataset.Fields(inputFields=inputs(uses))
                for column, uses in lineage["columns"].items()
            },
            dataset=inputs(lineage.get("rows") or {}),
        )
    return facets


# Runs of supervised jobs


def report_ended(context: Context, jobs: Sequence[Job], redaction: Redaction) -> None:
    """Report jobs that have ended to OpenLineage, if it is configured, each as a run whose parent is this task's run.

    It raises nothing, and waits `REPORT_SECONDS` at most. The run of a job has the same id whenever it is reported.

    :param context: the context of the task that found them ended.
    :param jobs: the jobs. Those that were withdrawn before they began are left out.
    :param redaction: hides secrets in their errors.
    """
    if not jobs or find_spec(PROVIDER) is None:
        return
    try:
        emit = _emitter(context)
        events = [] if emit is None else [event for job in jobs for event in _events_of(context, job, redaction)]
    except Exception as error:
        log.warning("jobs that ended are not reported to OpenLineage: %s: %s", type(error).__name__, error)
        return
    if emit is None or not events:
        return

    def emit_all() -> None:
        for event in events:
            emit(event)

    # Its transport may wait for an endpoint that does not respond.
    thread = threading.Thread(target=emit_all, name="report to OpenLineage", daemon=True)
    thread.start()
    thread.join(REPORT_SECONDS)
    if thread.is_alive():
        log.warning("OpenLineage did not take the events of %d jobs within %g seconds", len(jobs), REPORT_SECONDS)


def _emitter(context: Context) -> Callable[[RunEvent], object] | None:
    """Return what sends events as those of Airflow itself are sent; None if OpenLineage is not to get any."""
    from airflow.providers.openlineage import conf

    task: Any = context["task"]
    name = f"{type(task).__module__}.{type(task).__qualname__}"
    if conf.is_disabled() or name in conf.disabled_operators():
        return None
    from airflow.providers.openlineage.plugins.listener import get_openlineage_listener  # this takes a second

    adapter = get_openlineage_listener().adapter
    adapter.get_or_create_openlineage_client()  # here, as it may need a connection of Airflow
    emit: Callable[[RunEvent], object] = adapter.emit  # it logs what goes wrong
    return emit


def _events_of(context: Context, job: Job, redaction: Redaction) -> Iterator[RunEvent]:
    """Yield the events of a job that has ended: of its start, and of its end."""
    from airflow.providers.openlineage import conf
    from openlineage.client.event_v2 import Job as LineageJob
    from openlineage.client.event_v2 import Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, job_type_job
    from openlineage.client.uuid import generate_static_uuid

    outcome = Outcome.from_mapping(job.outcome or {})
    if job.datasets is None or (outcome.exit_code is None and outcome.error is None):
        return
    datasets = JobDatasets.from_text(job.datasets)
    lineage = lineage_of(datasets, result_of(job.owner, outcome, job))
    began = job.submitted_at or job.since
    ti: Any = context["ti"]
    kind = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="SPARK", jobType="APPLICATION")
    named = LineageJob(
        namespace=conf.namespace(), name=f"{ti.dag_id}.{ti.task_id}.{datasets.source}", facets={"jobType": kind}
    )
    run_id = str(generate_static_uuid(instant=began, data=job.owner.encode()))
    facets = {"parent": _parent_of(context), **lineage.run_facets}
    state = RunState.COMPLETE
    if outcome.exit_code not in (EXIT_SUCCESS, EXIT_LOST_WORK):  # others continue what was lost: it has not failed
        state = RunState.FAIL
        message = redaction.text(outcome.error or f"the job ended with exit code {outcome.exit_code}")
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(message=message, programmingLanguage="python")

    def event(state: RunState, at: datetime, outputs: Any, facets: Any) -> RunEvent:
        return RunEvent(
            eventType=state,
            eventTime=at.isoformat(),
            run=Run(runId=run_id, facets=facets),
            job=named,
            inputs=lineage.inputs,
            outputs=outputs,
        )

    yield event(RunState.START, began, [], {"parent": facets["parent"]})
    yield event(state, max(job.since, began), lineage.outputs, facets)


def _parent_of(context: Context) -> Any:
    """Return the facet that names this task's run, as Airflow reports it itself."""
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
    from openlineage.client.facet_v2 import parent_run

    ti: Any = context["ti"]
    run: Any = context["dag_run"]
    at = run.logical_date or run.run_after
    task_run = OpenLineageAdapter.build_task_instance_run_id(
        dag_id=ti.dag_id, task_id=ti.task_id, try_number=ti.try_number, logical_date=at, map_index=ti.map_index
    )
    dag_run = OpenLineageAdapter.build_dag_run_id(
        dag_id=ti.dag_id, logical_date=at, clear_number=getattr(run, "clear_number", None) or 0
    )
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=task_run),
        job=parent_run.Job(namespace=conf.namespace(), name=f"{ti.dag_id}.{ti.task_id}"),
        root=parent_run.Root(
            run=parent_run.RootRun(runId=dag_run),
            job=parent_run.RootJob(namespace=conf.namespace(), name=ti.dag_id),
        ),
    )
