"""Repair a source manually, as a DAG: end leases, reopen closed partitions, reset positions.

It runs unchanged with one connection, `coordination_default` (type coordination). A user triggers it with the name of
the source. So Airflow's log and XComs record what was done, by whom and to which partitions.

Without other params, no running lease is ended: the DAG releases expired leases, and reopens partitions whose time has
come. `end_running_leases` also ends running leases, of the `partition_keys` or of a `lease_owner`. `reopen_parked` also
reopens partitions that are closed or parked. `reset_to` reads the `partition_keys`, or the whole source, again.
`work_available` is skipped if there is no work for a job.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.partitions import ReleasePartitionsOperator, ResetPartitionsOperator
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor

PARAMS = {
    "source": Param("clicks", type="string", description="The name of the source."),
    "partition_keys": Param(None, type=["null", "array"], description="Only these partitions."),
    "lease_owner": Param(
        None, type=["null", "string"], description="With end_running_leases: the owner whose leases are ended."
    ),
    "end_running_leases": Param(False, type="boolean", description="End leases that are still running as well."),
    "reopen_parked": Param(
        False, type="boolean", description="Reopen partitions before their time, and parked ones as well."
    ),
    "reset_to": Param(
        None, type=["null", "string"], description="earliest, latest, or an instant: read again from there."
    ),
}
SOURCE = "{{ params.source }}"
KEYS = "{{ params.partition_keys }}"


@task.short_circuit(ignore_downstream_trigger_rules=False)
def is_reset_requested(reset_to: str) -> bool:
    """Return whether positions must be reset."""
    return reset_to not in ("", "None")


with DAG(
    dag_id="repair_source",
    schedule=None,
    catchup=False,
    params=PARAMS,
    doc_md=__doc__,
    tags=["coordination"],
) as dag:
    release = ReleasePartitionsOperator(
        task_id="release",
        source=SOURCE,
        partition_keys=KEYS,
        lease_owner="{{ params.lease_owner }}",
        expired="{{ not params.end_running_leases }}",
        force="{{ params.end_running_leases }}",
    )
    reopen = ReopenPartitionsOperator(
        task_id="reopen", source=SOURCE, partition_keys=KEYS, wait=False, force="{{ params.reopen_parked }}"
    )
    reset = ResetPartitionsOperator(
        task_id="reset", source=SOURCE, partition_keys=KEYS, to="{{ params.reset_to }}", retries=0
    )
    work_available = PartitionsAvailableSensor(
        task_id="work_available", source=SOURCE, deferrable=False, timeout=0, soft_fail=True, trigger_rule="none_failed"
    )
    release >> reopen >> is_reset_requested("{{ params.reset_to }}") >> reset
    [reopen, reset] >> work_available
