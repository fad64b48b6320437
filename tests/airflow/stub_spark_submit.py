"""Stands in for spark-submit: notes how it was called, then does what `plan.json` in its folder says.

`acquire`: lease so many partitions; `complete`: and complete them; `child`: leave a process behind;
`lines`: print these; `sleep`: so many seconds; `exit`: with this code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.settings import read_settings
from airflow_provider_coordination.stores import StoreSettings, open_store


def main() -> int:
    folder, arguments = Path(sys.argv[1]), sys.argv[2:]
    plan = json.loads((folder / "plan.json").read_text())
    settings_file = Path(arguments[-1])
    if not settings_file.is_absolute():  # cluster mode: it would travel in --files
        settings_file = Path(arguments[arguments.index("--files") + 1].split(",")[-1])
    settings = json.loads(settings_file.read_text())
    archive = Path(arguments[arguments.index("--py-files") + 1].split(",")[-1])
    call = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "settings": settings,
        "settings_file": str(settings_file),
        "mode": oct(settings_file.stat().st_mode & 0o777),
        "folder_mode": oct(settings_file.parent.stat().st_mode & 0o777),
        "archive": archive.read_bytes().hex(),
    }
    if plan.get("acquire"):
        store = open_store(read_settings(StoreSettings, "store settings", settings["store"]))
        coordinator = SourceCoordinator(store, settings["source"], settings["owner"])
        coordinator.initialize()
        for partition in coordinator.acquire(plan["acquire"]):
            if plan.get("complete"):
                coordinator.complete(partition.partition_key, partition.progress)
    if plan.get("child"):
        child = subprocess.Popen(["/bin/sh", "-c", "sleep 60; true", "driver", str(settings_file)])
        call["child"] = child.pid
    for line in plan.get("lines", []):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()
    written = folder / "call.json"
    written.write_text(json.dumps(call))
    written.rename(folder / f"call-{time.time_ns()}.json")
    time.sleep(plan.get("sleep", 0))
    return int(plan.get("exit", 0))


if __name__ == "__main__":
    sys.exit(main())
