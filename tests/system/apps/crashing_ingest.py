"""The ingestion application, killing itself with SIGKILL when it passes the phase in CRASH_AT, such as `recorded:1`."""

from __future__ import annotations

import os
import signal
import sys
import threading

from airflow_provider_coordination.spark.application import main

phase, _, count = os.environ["CRASH_AT"].partition(":")
lock, left = threading.Lock(), [int(count)]


def crash(passed: str) -> None:
    with lock:
        if passed == phase:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(observer=crash))
