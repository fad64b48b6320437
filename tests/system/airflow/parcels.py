"""A supervised source whose job is disturbed by hand."""

from __future__ import annotations

from typing import Any

import httpx

from airflow_provider_coordination.supervisor.store import SupervisionStore
from tests.support.supervised_stream import Status, SupervisedStream

SOURCE, DAG_ID = "parcels", "supervise_parcels"


class Parcels(SupervisedStream):
    """A source with one job, and the DAG that supervises it."""

    def spec(self, **supervise: Any) -> dict[str, Any]:
        """Return its spec."""
        return {
            "version": 1,
            "source": SOURCE,
            "reads": {"kinesis": {"streams": self.pipeline.stream}},
            "writes": [{"parquet": {"path": str(self.lake / SOURCE)}}],
            "rounds": {"round_duration": 1, "idle_duration": 0.5},
            "supervise": {
                "task_duration": "PT4H",
                "start_delay": 0,
                "period": 2,
                "completion_timeout": "PT5M",
                **supervise,
            },
        }

    def begins(self) -> None:
        """Have the first job started, without waiting for it."""
        self.write(self.spec())
        self.send(5)
        self.airflow.unpause(DAG_ID)

    def supervised_by(self) -> str:
        """Return which run, and which try of its task, supervises."""
        stored = SupervisionStore(self.source.view).get()
        return "" if stored is None or stored.claimant is None else stored.claimant.owner

    def http_status(self) -> Status:
        """Return the status as the page has it: of whether the DAG is paused, Airflow is asked."""
        headers = {"Authorization": f"Bearer {self.airflow.login('op')}"}
        url = f"{self.airflow.url}/coordination/connections/coordination_default/sources/{SOURCE}/supervisor"
        found: Status = httpx.get(url, headers=headers, trust_env=False, timeout=20).raise_for_status().json()
        return found
