"""A supervisor follows a table: through its history, a killed job, shards that split, a reset and its termination."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.jobs import Job, JobRecord, Jobs
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.dynamodb_streams.kind import DynamoDBStreamsKind
from airflow_provider_coordination.sources.dynamodb_streams.service import unread
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService
from airflow_provider_coordination.supervisor.operations import ResetReport, SupervisorVerbs
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.status import SupervisorStatus, read_status
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import JobRequest, Supervisor
from tests.support.dynamodb_streams import strings
from tests.support.fleet import MortalWorker
from tests.support.followed_table import FollowedTable, merged
from tests.support.history import STREAM

START_TIMEOUT = timedelta(minutes=10)
TURNS = 60


class NoConnections:
    """Resolves a connection that a spec names."""

    def aws(self, conn_id: str | None, region_name: str | None, service: str) -> AwsSettings:
        return AwsSettings(region=region_name)

    def values(self, conn_id: str, name: str) -> Any:
        raise NotImplementedError

    def from_python(self, conn_id: str) -> Any:
        raise NotImplementedError


class RunningJob:
    """A job of the fleet with its record, which the supervisor follows."""

    def __init__(self, worker: MortalWorker, record: JobRecord) -> None:
        self.worker = worker
        self.record = record
        self.must_stop = False


class SupervisedTable:
    """A table with its supervisor; its jobs are those of a fleet, which makes a round between two turns."""

    must_discover_partitions = False

    def __init__(self, folder: Path) -> None:
        self.table = FollowedTable(folder)
        self.view = self.table.look.view
        self.jobs = Jobs(self.view)
        self.running: dict[str, RunningJob] = {}
        reads = {"table": STREAM, "follow": True, "segments": 3, "region_name": "eu-west-1"}
        spec = {
            "version": 1,
            "source": STREAM,
            "reads": {"dynamodb": reads},
            "writes": [{"parquet": {"path": str(folder)}}],
            "supervise": {"start_delay": 0, "period": 5},
        }
        SupervisionStore(self.view).submit(spec, by="ann")
        self.claimant = Claimant(owner="supervisor", dag_id="supervise_clicks", run_at=self.table.clock.now())
        self.coordinator = self.table.coordinator("supervisor", self.table.store)
        self.supervisor = Supervisor(self.coordinator, self.claimant, probe=self)

    @property
    def service(self) -> StreamService:
        return StreamService(self.table.client, (STREAM,))

    # What it asks the source

    def follow(self, spec: IngestionSpec) -> None:
        """The spec names the table."""

    def discover_partitions(self) -> None:
        self.table.sync()

    def count(self) -> int | None:
        return get_kind("dynamodb_streams").open_partitions(self.service, {"tables": [STREAM]})

    def lag(self, partition: Partition) -> int | None:
        clock = self.table.clock
        lag = unread(self.service, partition, RetryBudget(attempts=1, clock=clock, sleep=clock.sleep)).lag
        return None if lag is None else lag // timedelta(milliseconds=1)

    # How it starts jobs

    def new_owner(self) -> str:
        return f"worker-{self.table.started + 1}"

    def start(self, request: JobRequest) -> None:
        owner, start_by = request.job.owner, self.table.clock.now() + START_TIMEOUT
        assert self.jobs.submit(owner, task=request.task, digest="", start_by=start_by)
        worker = self.table.start(until_caught_up=False)
        assert worker.name == owner
        job: RunningJob
        record = JobRecord(self.table.coordinator(owner, worker.store), lambda why: setattr(job, "must_stop", True))
        job = self.running[owner] = RunningJob(worker, record)
        record.begin()
        record.note_reading()

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        self.table.look.give_up_owner(job.owner)

    # What happens

    def turns(self, holds: Any) -> None:
        """Take turns, each with a round of each job, until something holds."""
        for _ in range(TURNS):
            self.supervisor.turn(self)
            if holds():
                return
            for owner, job in list(self.running.items()):
                self._work(owner, job)
            self.table.clock.advance(6)
        raise AssertionError(f"not within {TURNS} turns: {self.status}")

    def _work(self, owner: str, job: RunningJob) -> None:
        job.record.renew_due()
        if job.must_stop:
            with self.table.without_spark():
                job.worker.job.finish()
            self.table.stop(job.worker)
            job.record.end({"exit_code": 0, "error": None, "summary": {}})
            del self.running[owner]
            return
        self.table.round(job.worker)

    def kill(self) -> None:
        """Kill the only job."""
        [(owner, job)] = self.running.items()
        self.table.lose(job.worker)
        del self.running[owner]

    def lose_changes(self) -> None:
        """Replace an item whose changes the stream does not have any more, as if they had expired unread."""
        service, name = self.table.service, min(self.table.items)
        service.items[STREAM][json.dumps({"S": name})] = strings(id=name, event="lost")
        for shard in service.stream_of(STREAM).shards.values():
            shard.changes = [each for each in shard.changes if each.record["dynamodb"]["Keys"] != strings(id=name)]

    def reset(self) -> ResetReport:
        """Reset the source, by the connections of its spec."""
        with patch.object(DynamoDBStreamsKind, "service", lambda *_: self.service):
            return SupervisorVerbs(self.coordinator, by="ann").reset(connections=NoConnections())

    def is_equal(self) -> bool:
        return merged(self.table.rows) == self.table.items

    @property
    def status(self) -> SupervisorStatus:
        found = read_status(self.view)
        assert found is not None
        return found


@pytest.fixture
def supervised(tmp_path: Path) -> SupervisedTable:
    return SupervisedTable(tmp_path)


def test_supervised_table_is_followed_until_it_is_terminated(supervised: SupervisedTable) -> None:
    table = supervised.table
    supervised.turns(lambda: table.parts_of_history())
    table.put(1)
    supervised.turns(supervised.is_equal)
    supervised.turns(lambda: supervised.status.partitions["open"] == 2)

    table.split(0)
    table.put(2)
    table.remove(4)
    table.put(11)
    supervised.turns(lambda: supervised.is_equal() and supervised.status.partitions["open"] == 3)

    [before] = supervised.running
    supervised.kill()
    table.put(5)
    supervised.turns(lambda: (supervised.status.lag.oldest_ms or 0) > 0)
    supervised.turns(supervised.is_equal)
    assert before not in supervised.running

    supervised.lose_changes()
    assert not supervised.is_equal()
    report = supervised.reset()
    assert report.failed == [] and len([each for each in report.outcomes if "/" in each.partition_key]) == 3
    supervised.turns(supervised.is_equal)

    SupervisorVerbs(supervised.coordinator, by="ann").terminate()
    supervised.turns(lambda: supervised.status.detailed_state == "TERMINATED" and not supervised.running)
    assert supervised.status.jobs == () and supervised.is_equal()
