"""What one Spark application is told to do: a file that the operator writes and the application reads at its start.

The file holds secrets, so it is readable by its owner alone, is never part of a command line, and expires.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import check_lease_times
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.settings import read_settings, write_settings
from airflow_provider_coordination.stores import StoreSettings

POSITIVE = (
    "workers",
    "max_leases",
    "max_idle_rounds",
    "max_batch_bytes",
    "shards_per_slot",
    "round_seconds",
    "max_duration_seconds",
)


@dataclass(frozen=True, kw_only=True)
class IngestSettings:
    """The settings of one Kinesis ingestion job.

    :param source: the source's name.
    :param owner: who the job is, as made by `new_owner`.
    :param stream: the Kinesis stream's name.
    :param output: where the dataset is: a path or URI that every worker reaches.
    :param expires_at: a job started later than this refuses to run (UTC).
    :param store: where the partitions are.
    :param prefix: what separates installations that share the store.
    :param kinesis: how to reach Kinesis.
    :param landing: where raw batches wait for delivery; `<output>/_landing` by default. Without a transform it must be
        on the same filesystem as `output`.
    :param transform: `module:function`, from DataFrame to DataFrame; None publishes the raw records.
    :param ownership_timeout_seconds: how long a lease runs without renewal.
    :param safety_margin_seconds: how far the clocks of workers may differ.
    :param workers: how many jobs are expected to share the source.
    :param max_leases: most partitions this job holds; None for its fair share.
    :param until_caught_up: stop when everything that was in the stream at the start is delivered.
    :param max_duration_seconds: start no round later than this after the start.
    :param max_idle_rounds: stop after so many rounds in a row without a record.
    :param round_seconds: how long a shard is read in one round.
    :param idle_seconds: pause after a round without a record.
    :param max_batch_bytes: most record bytes read of one shard in one round; what a slot keeps in memory for each
        shard that it reads at the same time.
    :param shards_per_slot: how many shards one Spark task reads at the same time.
    """

    source: str
    owner: str
    stream: str
    output: str
    expires_at: datetime
    store: StoreSettings
    prefix: str | None = None
    kinesis: AwsSettings = field(default_factory=AwsSettings)
    landing: str | None = None
    transform: str | None = None
    ownership_timeout_seconds: float = 60.0
    safety_margin_seconds: float = 5.0
    workers: int = 1
    max_leases: int | None = None
    until_caught_up: bool = True
    max_duration_seconds: float | None = None
    max_idle_rounds: int | None = None
    round_seconds: float = 10.0
    idle_seconds: float = 2.0
    max_batch_bytes: int = 32 * 1024 * 1024
    shards_per_slot: int = 4

    def check(self) -> None:
        """Check every value.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        for name in ("source", "owner", "stream", "output"):
            if not getattr(self, name):
                raise ConfigurationError(f"ingest settings: field {name!r} must not be empty")
        for name in POSITIVE:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigurationError(f"ingest settings: field {name!r} must be positive; got {value!r}")
        if self.idle_seconds < 0:
            raise ConfigurationError(
                f"ingest settings: field 'idle_seconds' must not be negative; got {self.idle_seconds!r}"
            )
        if self.transform is not None and len([part for part in self.transform.split(":") if part]) != 2:
            raise ConfigurationError(
                f"ingest settings: transform {self.transform!r} is not of the form 'module:function', "
                "for example 'my_project.transforms:clean'"
            )
        check_lease_times(
            timedelta(seconds=self.ownership_timeout_seconds), timedelta(seconds=self.safety_margin_seconds)
        )
        self.store.check()

    @property
    def landing_root(self) -> str:
        """Where raw batches wait for delivery."""
        return self.landing or self.output.rstrip("/") + "/_landing"

    def write(self, path: Path) -> None:
        """Write them to a new file that only its owner can read."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(write_settings(self), file)

    @classmethod
    def read(cls, path: Path, now: datetime) -> IngestSettings:
        """Read and check them.

        :param now: the present instant; settings that expired before it are refused.
        :raises ConfigurationError: if the file is missing, damaged, wrong or expired.
        """
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"ingest settings {path}: cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigurationError(f"ingest settings {path}: not JSON: {error}") from None
        settings = read_settings(cls, "ingest settings", values)
        settings.check()
        if settings.expires_at <= now:
            raise ConfigurationError(
                f"ingest settings {path}: expired at {settings.expires_at:%Y-%m-%dT%H:%M:%SZ}; they are made for one "
                "run of the operator, so run the task again instead of starting the application with an old file"
            )
        return settings
