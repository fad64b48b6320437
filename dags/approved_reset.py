"""Read a source again, but only once a person has approved how much that is.

It runs unchanged with one connection, `coordination_default` (type coordination). Trigger it with the name of a source
and a position. The task describes what it would read again: partitions, time and size. If that is more than six hours,
or unknown, it waits for a person, who finds the question under *Required Actions* in Airflow's UI. After *Approve* it
resets the source. After *Reject* it is skipped, and if nobody responds within a day it fails: nothing has changed then.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.approval import Approval
from airflow_provider_coordination.operators.partitions import ResetPartitionsOperator

with DAG(
    dag_id="approved_reset",
    schedule=None,
    catchup=False,
    params={
        "source": Param("clicks", type="string", description="The name of the source."),
        "to": Param("earliest", type="string", description="earliest, latest, or an instant: read again from there."),
    },
    doc_md=__doc__,
    tags=["coordination"],
):
    ResetPartitionsOperator(
        task_id="reset",
        source="{{ params.source }}",
        to="{{ params.to }}",
        approval=Approval(above=timedelta(hours=6), timeout=timedelta(days=1)),
        retries=0,
    )
