"""Hundreds of worker processes killed and stopped at random, over a database that crashes time and again.

`KILLED_FLEET_SIGNALS` sets the number of signals, 500 without it; `KILLED_FLEET_SEED` repeats a run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.killed_fleet import Harm, check, conduct, seed_of_today

SIGNALS = int(os.environ.get("KILLED_FLEET_SIGNALS", "500"))
SIGNALS_A_CRASH = 50


@pytest.mark.timeout(300 + 6 * SIGNALS)
def test_killed_and_stopped_processes_lose_and_double_nothing(own_postgres: Any, tmp_path: Path) -> None:
    harm = Harm(
        url=own_postgres.get_uri(driver="psycopg"),
        postgres=str(own_postgres.pgdata),
        folder=str(tmp_path),
        signals=SIGNALS,
        crashes=max(1, SIGNALS // SIGNALS_A_CRASH),
        every_seconds=0.8,
        seed=seed_of_today(),
    )

    check(harm, conduct(harm, timeout=180 + 5 * SIGNALS))
