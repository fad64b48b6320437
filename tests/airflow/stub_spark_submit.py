"""Stands in for spark-submit: records how it was called, then does what `plan.json` in its folder says.

`acquire`: lease this number of partitions; `complete`: and complete them; `deliver`: lease all, and deliver records
with these payloads, which other parties acknowledge; `child`: leave a process behind; `lines`: print these; `sleep`:
this number of seconds; `exit`: with this code. `outcome`: keep a record in the store, and leave this in it at the end,
or on a stop request. `kubernetes`: the API server where the driver's pod is made, with this `pod` as its name.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator


def main() -> int:
    folder, arguments = Path(sys.argv[1]), sys.argv[2:]
    plan = json.loads((folder / "plan.json").read_text())
    settings_file = Path(arguments[-2])
    if not settings_file.is_absolute():  # cluster mode on YARN: they travel in the program
        settings_file = Path(arguments[-3])
    archive = Path(arguments[arguments.index("--py-files") + 1].split(",")[-1])
    call = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "settings_file": str(settings_file),
        "archive": str(keep(archive, folder)),
    }
    if "kubernetes" in plan:
        settings = run_pod(arguments, plan)
    else:
        settings = settings_in(settings_file)
        call["mode"] = oct(settings_file.stat().st_mode & 0o777)
        call["folder_mode"] = oct(settings_file.parent.stat().st_mode & 0o777)
    call["settings"] = settings
    if plan.get("acquire") or plan.get("deliver"):
        coordinator = coordinator_of(settings)
        if plan.get("deliver"):
            deliver(coordinator, settings, plan["deliver"])
        for partition in coordinator.leases.acquire(plan.get("acquire", 0)):
            if plan.get("complete"):
                coordinator.leases.complete(partition.partition_key, partition.progress)
    if plan.get("child"):
        child = subprocess.Popen(["/bin/sh", "-c", "sleep 60; true", "driver", str(settings_file)])
        call["child"] = child.pid
    for line in plan.get("lines", []):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    written = folder / "call.json"
    written.write_text(json.dumps(call))
    written.rename(folder / f"call-{time.time_ns()}.json")
    if plan.get("outcome") is not None:
        follow(settings, plan)
    else:
        time.sleep(plan.get("sleep", 0))
    return int(plan.get("exit", 0))


def settings_in(file: Path) -> dict[str, Any]:
    """Return the settings of a settings file, or of the program that brings them to a container."""
    text = file.read_text()
    if file.suffix == ".py":
        [statement] = ast.parse(text).body[-1:]
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        text = ast.literal_eval(statement.value.args[1])
    settings: dict[str, Any] = json.loads(text)
    return settings


def coordinator_of(settings: dict[str, Any]) -> SourceCoordinator:
    """Return the coordinator of a job; most calls need none, and no imports for it."""
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.settings import read_settings
    from airflow_provider_coordination.stores import StoreSettings, open_store

    store = open_store(read_settings(StoreSettings, "store settings", settings["store"]))
    coordinator = SourceCoordinator(store, settings["source"], settings["owner"])
    coordinator.initialize()
    return coordinator


def keep(archive: Path, folder: Path) -> Path:
    """Keep the package archive, which the operator deletes with the job; a hard link costs nothing."""
    kept = folder / f"archive-{time.time_ns()}.zip"
    os.link(archive, kept)
    return kept


def run_pod(arguments: list[str], plan: dict[str, Any]) -> dict[str, Any]:
    """Make the driver's pod, and return what is mounted in it."""
    [mounted] = [a for a in arguments if a.startswith("spark.kubernetes.driver.secrets.")]
    name, _, folder = mounted.removeprefix("spark.kubernetes.driver.secrets.").partition("=")
    [namespace] = [a.partition("=")[2] for a in arguments if a.startswith("spark.kubernetes.namespace=")]
    objects = f"{plan['kubernetes']}/api/v1/namespaces/{namespace}"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": plan["pod"]}, "status": {"phase": "Pending"}}
    with urllib.request.urlopen(urllib.request.Request(f"{objects}/pods", json.dumps(pod).encode(), method="POST")):
        pass
    with urllib.request.urlopen(f"{objects}/secrets/{name}") as answer:
        data = json.load(answer)["data"]
    assert str(Path(arguments[-2]).parent) == folder
    settings = json.loads(base64.b64decode(data[Path(arguments[-2]).name]))
    assert isinstance(settings, dict)
    return settings


def follow(settings: dict[str, Any], plan: dict[str, Any]) -> None:
    """Live as a followed job does, until its time is over or it is requested to stop."""
    from airflow_provider_coordination.coordination.jobs import JobRecord

    coordinator = coordinator_of(settings)
    stopped = threading.Event()
    record = JobRecord(coordinator, lambda why: stopped.set())
    record.begin()
    record.note(application_id="local-1", ui_url="http://driver:4040")
    record.note_reading()
    deadline = time.monotonic() + plan.get("sleep", 0)
    while time.monotonic() < deadline and not stopped.wait(0.1):
        record.renew_due()
    record.end(plan["outcome"])


def deliver(coordinator: SourceCoordinator, settings: dict[str, Any], payloads: list[str]) -> None:
    """Land a batch of each shard, or find it landed, and deliver it as a job does whose word is not the last."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
    from airflow_provider_coordination.settings import read_settings
    from airflow_provider_coordination.sources.kinesis.progress import ShardBatches, ShardProgress, new_batch_id
    from airflow_provider_coordination.sources.landed import LandedBatch
    from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings

    sets, timeout = AcknowledgmentSets(coordinator, ShardBatches()), timedelta(seconds=3600)
    for partition in coordinator.leases.acquire(100):
        key, progress = partition.partition_key, ShardProgress.from_mapping(partition.progress)
        if not progress.landed:
            start, end = progress.checkpoint, f"{time.time_ns()}"
            progress = progress.landing(
                LandedBatch(
                    batch_id=new_batch_id(key),
                    start=start,
                    end=end,
                    file="landed.parquet",
                    file_bytes=0,
                    records=len(payloads),
                    bytes=0,
                    is_last=False,
                    read_until=datetime.now(UTC),
                    fencing_token=1,
                )
            )
        [batch] = progress.landed
        said = read_settings(AcknowledgmentSettings, "acknowledgments", settings["acknowledgments"])
        handles = ["main", *said.handles]
        details = {"records": batch.records}
        made = sets.begin(
            key, batch.batch_id, handles, sinks=["main"], timeout=timeout, progress=progress.to_mapping(),
            run=settings["run"], batch=details,
        )  # fmt: skip
        dataset = Path(settings["writes"][0]["location"])
        dataset.mkdir(parents=True, exist_ok=True)
        rows = pa.table({"data": pa.array([payload.encode() for payload in payloads], pa.binary())})
        pq.write_table(rows, dataset / f"{batch.batch_id}.parquet")
        sets.release(made.set_id, "main", positive=True)
        coordinator.leases.await_acknowledgment(key, timeout)


if __name__ == "__main__":
    sys.exit(main())
