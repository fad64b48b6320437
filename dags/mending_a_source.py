"""What a person may do to a source by hand, as a DAG: end leases, reopen what rests, set positions.

Runnable as it stands with one connection, `coordination_default` (type coordination). It is started by hand, with the
source's name, so that what was done, by whom and to what is in Airflow's log and XComs.

Without other params nothing is taken from anybody: leases that ran out are ended, and partitions reopened whose time
has come. `take_away` ends leases that still run, of the `partition_keys` or of a `lease_owner`; `reopen_parked` reopens
what rests or is parked, too; `reset_to` reads the `partition_keys` anew, or the whole source. `there_is_work` is
skipped if nothing is left for a job.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.release_partitions import ReleasePartitionsOperator
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.operators.reset_partitions import ResetPartitionsOperator
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor

PARAMS = {
    "source": Param("clicks", type="string", description="The source's name."),
    "partition_keys": Param(None, type=["null", "array"], description="Only these partitions."),
    "lease_owner": Param(None, type=["null", "string"], description="With take_away: whose leases are ended."),
    "take_away": Param(False, type="boolean", description="End leases that still run, too."),
    "reopen_parked": Param(False, type="boolean", description="Reopen before the time, and what is parked."),
    "reset_to": Param(None, type=["null", "string"], description="earliest, latest, or an instant: read anew from it."),
}
SOURCE = "{{ params.source }}"
KEYS = "{{ params.partition_keys }}"


@task.short_circuit(ignore_downstream_trigger_rules=False)
def shall_reset(reset_to: str) -> bool:
    """Tell whether positions are to be set."""
    return reset_to not in ("", "None")


with DAG(
    dag_id="mending_a_source",
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
        expired="{{ not params.take_away }}",
        force="{{ params.take_away }}",
    )
    reopen = ReopenPartitionsOperator(
        task_id="reopen", source=SOURCE, partition_keys=KEYS, wait=False, force="{{ params.reopen_parked }}"
    )
    reset = ResetPartitionsOperator(
        task_id="reset", source=SOURCE, partition_keys=KEYS, to="{{ params.reset_to }}", retries=0
    )
    there_is_work = PartitionsAvailableSensor(
        task_id="there_is_work", source=SOURCE, deferrable=False, timeout=0, soft_fail=True, trigger_rule="none_failed"
    )
    release >> reopen >> shall_reset("{{ params.reset_to }}") >> reset
    [reopen, reset] >> there_is_work
