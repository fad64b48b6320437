"""The reports: the results of one run, its faults, and their presentation."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from demo.check import Comparison
from demo.crash import Crash
from demo.observation import counted, progress_of, shard_of, worker_name

GOOD, BAD = "green", "bold red"
Row = tuple[str, str, str | None]
"""The name, the value and the style of a result."""


class DemoReport(ABC):
    """The results of one run of a demo."""

    @property
    @abstractmethod
    def verdict(self) -> str:
        """What the demo has shown, as a sentence, if there are no faults."""

    @abstractmethod
    def faults(self) -> list[str]:
        """Return the faults, one sentence each; an empty list if there are none."""

    @abstractmethod
    def to_mapping(self) -> dict[str, Any]:
        """Return the results as a JSON object."""

    @abstractmethod
    def show(self, console: Console) -> None:
        """Print the results as tables."""

    def write(self, file: Path) -> None:
        """Write the results to a file, as JSON."""
        file.write_text(json.dumps(self.to_mapping(), indent=2) + "\n")


@dataclass(frozen=True, kw_only=True)
class StreamReport(DemoReport):
    """The results of one run of the demo of a stream.

    :param events_sent: the number of events that the producer sent.
    :param records_sent: the number of Kinesis records that carried them.
    :param dataset: the comparison of the dataset with the sent events.
    :param partitions: every partition at the end.
    :param split_shard: the shard that was split.
    :param crash: the killed job.
    :param killed_worker: the address of the Spark worker that was killed; None without a cluster.
    :param left_undelivered: batches that the killed job had recorded, and that no other job delivered.
    :param takeover_seconds: the time from the kill until other jobs had taken over all its leases.
    :param lease_seconds: the longest takeover if the leases had to expire first.
    :param dag_state: the final state of the DAG run.
    :param tries: the number of tries of each Spark task, by task number.
    :param phases: the duration of each phase, in seconds.
    """

    events_sent: int
    records_sent: int
    dataset: Comparison
    partitions: Sequence[Partition]
    split_shard: str
    crash: Crash
    killed_worker: str | None
    left_undelivered: Sequence[str]
    takeover_seconds: float
    lease_seconds: float
    dag_state: str
    tries: Mapping[int, int]
    phases: Mapping[str, float]

    @property
    def events_per_second(self) -> float:
        """The events ingested per second, from the first landed file to the last."""
        return self.dataset.events / self.dataset.seconds if self.dataset.seconds else 0.0

    @property
    @override
    def verdict(self) -> str:
        return f"{self.dataset.distinct:,} events, each exactly once."

    @override
    def faults(self) -> list[str]:
        data = self.dataset
        parent = [p.status for p in self.partitions if shard_of(p) == self.split_shard]
        children = [p for p in self.partitions if self.split_shard in progress_of(p).parent_shard_ids]
        found = {
            f"{data.lost:,} events are lost": data.lost,
            f"{data.duplicates:,} events are duplicated": data.duplicates,
            f"{data.mismatched:,} events differ from the sent ones": data.mismatched,
            f"{data.unknown:,} events were never sent": data.unknown,
            f"the DAG run ended as {self.dag_state!r}, not as 'success'": self.dag_state != "success",
            f"the split shard {self.split_shard} is not COMPLETED": parent != [PartitionStatus.COMPLETED],
            f"{self.split_shard} has {len(children)} child partitions, not 2": len(children) != 2,
            "the job was not in the middle of a round when it was killed": not self.crash.batches,
            f"batches of the killed job are missing: {', '.join(self.left_undelivered)}": self.left_undelivered,
            "Airflow did not retry the killed task": max(self.tries.values(), default=0) < 2,
        }
        return [fault for fault, is_so in found.items() if is_so]

    @override
    def to_mapping(self) -> dict[str, Any]:
        return {
            "events_sent": self.events_sent,
            "records_sent": self.records_sent,
            "dataset": asdict(self.dataset),
            "partitions": [
                {
                    "partition_key": p.partition_key,
                    "shard_id": shard_of(p),
                    "status": p.status.value,
                    "parents": list(progress_of(p).parent_shard_ids),
                }
                for p in self.partitions
            ],
            "split_shard": self.split_shard,
            "killed": {
                "owner": self.crash.owner,
                "processes": self.crash.processes,
                "partitions": list(self.crash.partitions),
                "batches": list(self.crash.batches),
            },
            "killed_worker": self.killed_worker,
            "takeover_seconds": round(self.takeover_seconds, 3),
            "events_per_second": round(self.events_per_second),
            "dag_state": self.dag_state,
            "tries": {str(number): tries for number, tries in self.tries.items()},
            "phases": {phase: round(seconds, 1) for phase, seconds in self.phases.items()},
            "faults": self.faults(),
        }

    @override
    def show(self, console: Console) -> None:
        show_rows(console, self._rows())
        partitions = Table(title="Partitions")
        for heading in ("shard", "status", "parent", "meaning"):
            partitions.add_column(heading)
        for p in self.partitions:
            is_done = p.status is PartitionStatus.COMPLETED
            meaning = "ingested to its end" if is_done else "open, up to date"
            partitions.add_row(shard_of(p), p.status.value, ", ".join(progress_of(p).parent_shard_ids), meaning)
        console.print(partitions)

    def _rows(self) -> list[Row]:
        data, crash = self.dataset, self.crash
        tries = ", ".join(f"job-{number}: {tries}" for number, tries in sorted(self.tries.items()))
        speed = f"{self.events_per_second:,.0f} events/s, {data.bytes / 1e6 / (data.seconds or 1):.1f} MB/s"
        return [
            ("events sent", f"{self.events_sent:,} in {self.records_sent:,} Kinesis records", None),
            ("events in the dataset", f"{data.events:,} in {data.files:,} Parquet files", None),
            ("distinct events", f"{data.distinct:,}", None),
            checked_row("duplicates", data.duplicates),
            checked_row("lost", data.lost),
            checked_row("different from the sent ones", data.mismatched + data.unknown),
            ("DAG run", self.dag_state, GOOD if self.dag_state == "success" else BAD),
            ("tries of the Spark tasks", tries, None),
            ("shard split", self.split_shard, None),
            ("killed", f"{worker_name(crash.owner)} with its {crash.processes} processes", None),
            (
                "  in the middle of a round",
                f"{len(crash.batches)} of its batches recorded but not delivered; its successor delivered them",
                None,
            ),
            (
                "takeover",
                f"{self.takeover_seconds:.1f} s for its {counted(len(crash.partitions), 'partition')} "
                f"(up to {self.lease_seconds:.0f} s if the leases had to expire first)",
                None,
            ),
            *([] if self.killed_worker is None else [("Spark worker killed", self.killed_worker, None)]),
            ("throughput", f"{speed} over {data.seconds:.0f} s, limited by the producer", None),
            *phase_rows(self.phases),
        ]


def checked_row(name: str, count: int) -> Row:
    """Return the row of a number that must be 0."""
    return name, f"{count:,}", BAD if count else GOOD


def phase_rows(phases: Mapping[str, float]) -> list[Row]:
    """Return the rows of the durations of phases, in seconds."""
    each = [
        ("phases" if number == 0 else "", f"{seconds:5.1f} s  {phase}", None)
        for number, (phase, seconds) in enumerate(phases.items())
    ]
    return [*each, ("", f"{sum(phases.values()):5.1f} s  in total", None)]


def show_rows(console: Console, rows: Iterable[Row]) -> None:
    """Print rows as a table."""
    table = Table(title="Report", show_header=False)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for name, value, style in rows:
        table.add_row(name, value, style=style)
    console.print(table)
