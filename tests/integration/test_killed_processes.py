"""Worker processes are killed and stopped at random while their database crashes repeatedly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.depth import at_depth
from tests.support.killed_fleet import FleetFaults, check, conduct
from tests.support.seed import SEED

SIGNALS = at_depth(short=20, deep=500)
CRASHES = at_depth(short=1, deep=10)


@pytest.mark.deep
@pytest.mark.timeout(300 + 6 * SIGNALS)
def test_killed_and_stopped_processes_lose_and_double_nothing(own_postgres: Any, tmp_path: Path) -> None:
    harm = FleetFaults(
        url=own_postgres.get_uri(driver="psycopg"),
        postgres=str(own_postgres.pgdata),
        folder=str(tmp_path),
        signals=SIGNALS,
        crashes=CRASHES,
        every_seconds=at_depth(short=0.3, deep=0.8),
        seed=SEED,
    )

    check(harm, conduct(harm, timeout=180 + 5 * SIGNALS))
