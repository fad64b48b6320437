"""The benchmark of browsing runs and prints its results; the times are not asserted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import browsing
from tests.support.depth import at_depth
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.mariadb import MariaDb

PAGES = 13
PARTITIONS = at_depth(short=300, deep=20_000)


def results_of(stores: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    browsing.main(["--quick", "--stores", stores, "--rounds", "2", "--largest", str(PARTITIONS)])
    figures: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return figures


def test_last_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    figures = results_of("sqlite", capsys)

    assert figures.keys() == {"partitions", "median_ms", "p95_ms", "slowest_p95_to_aim"}
    assert figures["partitions"] == {"sqlite": PARTITIONS}
    assert figures["median_ms"]["sqlite"].keys() == figures["p95_ms"]["sqlite"].keys()
    assert len(figures["median_ms"]["sqlite"]) == PAGES
    assert figures["slowest_p95_to_aim"].keys() == {"sqlite"}


@pytest.mark.only_deep
@pytest.mark.integration
def test_every_server_is_measured(
    postgres_server: str, mariadb_server: MariaDb, dynamodb: DynamoDbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    # It starts its own servers; the fixtures skip this test if there are none.
    figures = results_of("postgresql,mariadb,dynamodb", capsys)

    assert figures["median_ms"].keys() == {"postgresql", "mariadb", "dynamodb"}
