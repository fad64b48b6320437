"""The benchmark of acquisitions runs and prints its results; the times are not asserted."""

from __future__ import annotations

import json

import pytest

from benchmarks import acquire_scale
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.mariadb import MariaDb


def results_of(stores: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    acquire_scale.main(["--quick", "--stores", stores, "--rounds", "4", "--largest", "1000"])
    figures: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return figures


def test_last_line_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    figures = results_of("sqlite", capsys)

    assert figures["p50_ms"].keys() == {"sqlite"}
    assert figures["bulk_times_faster"].keys() == {"sqlite"}


@pytest.mark.only_deep
@pytest.mark.integration
def test_every_server_is_measured(
    postgres_server: str, mariadb_server: MariaDb, dynamodb: DynamoDbServer, capsys: pytest.CaptureFixture[str]
) -> None:
    # It starts its own servers; the fixtures skip this test if there are none.
    figures = results_of("postgresql,mariadb,dynamodb", capsys)

    assert figures["p50_ms"].keys() == {"postgresql", "mariadb", "dynamodb"}
