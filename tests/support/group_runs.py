"""Groups with real hosts: their sources, as the supervisors of those sources keep them running."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_provider_coordination.coordination.groups import GroupRequests, group_identifier
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.spark.group_settings import GroupSettings, group_key, key_id, seal
from airflow_provider_coordination.spark.outcome import Outcome, coordinator_of
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from tests.support.spark_job import GROUP_APPLICATION, Job, submit

KEY = group_key("a fernet key", "small")
TASK = "supervisor"


@dataclass
class GroupRun:
    """A group, with at most one live host at a time.

    :param folder: for settings and logs.
    :param url: the URL of the store.
    :param timeout: how long leases last.
    """

    folder: Path
    url: str
    timeout: timedelta = timedelta(seconds=10)
    hosts: list[Job] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    """The owner of the latest job of each source."""

    def __post_init__(self) -> None:
        self.source = group_identifier("small", key_id(KEY))
        coordinator = coordinator_of(self.host_settings(), "supervisor")
        self.requests = GroupRequests(coordinator.view)

    def host_settings(self) -> GroupSettings:
        """Return the settings of a new host."""
        return GroupSettings(
            group="small",
            secret_key=KEY,
            source=self.source,
            owner=f"host-{uuid.uuid4().hex[:8]}",
            expires_at=datetime.now(UTC) + timedelta(minutes=10),
            store=StoreSettings.from_url(self.url),
            ownership_timeout=self.timeout,
            safety_margin=timedelta(seconds=1),
            is_followed=True,
        )

    def request(self, settings: IngestSettings) -> str:
        """Request a job of a source; submit a host if there is none. Return the job's owner."""
        settings = replace(
            settings,
            is_followed=True,
            ownership_timeout=self.timeout,
            safety_margin=timedelta(seconds=1),
        )
        start_by = datetime.now(UTC) + timedelta(minutes=5)
        self.jobs(settings).submit(settings.owner, task=TASK, digest="", start_by=start_by)
        self.requests.add(settings.owner, settings.source, seal(settings, KEY))
        if self.requests.host() is None:
            host = self.host_settings()
            self.requests.jobs.submit(host.owner, task=TASK, digest="", start_by=start_by)
            self.hosts.append(submit(host, self.folder, GROUP_APPLICATION))
        self.owners[settings.source] = settings.owner
        return settings.owner

    def jobs(self, settings: IngestSettings) -> Jobs:
        """Return the jobs of a source."""
        return Jobs(coordinator_of(settings, "supervisor").view)

    def outcome(self, settings: IngestSettings) -> Outcome | None:
        """Return how the latest job of a source ended; None if it has not. One that vanished is given up."""
        coordinator = coordinator_of(settings, "supervisor")
        jobs, owner = Jobs(coordinator.view), self.owners[settings.source]
        job = jobs.get(owner)
        assert job is not None
        at = job.given_up_at(jobs.safety_margin)
        if at is not None and at <= datetime.now(UTC):
            jobs.end(owner, Outcome(exit_code=None, error="it vanished").to_mapping())
            coordinator.give_up_owner(owner)
            job = jobs.get(owner)
        return None if job is None or job.outcome is None else Outcome.from_mapping(job.outcome)

    def kill(self) -> None:
        """Kill all hosts."""
        for host in self.hosts:
            host.kill()
