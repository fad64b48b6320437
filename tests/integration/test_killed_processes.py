"""Worker processes that are killed and stopped at random, over a database that crashes; `tests/deep` has a long run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.killed_fleet import Harm, check, conduct, seed_of_today


def test_twenty_signals_and_a_crash_of_the_database_lose_and_double_nothing(own_postgres: Any, tmp_path: Path) -> None:
    harm = Harm(
        url=own_postgres.get_uri(driver="psycopg"),
        postgres=str(own_postgres.pgdata),
        folder=str(tmp_path),
        signals=20,
        crashes=1,
        every_seconds=0.3,
        seed=seed_of_today(),
    )

    check(harm, conduct(harm, timeout=180))
