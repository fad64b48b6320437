"""The benchmark of acquiring runs and ends with its figures; what they are is not asserted, since they are timed."""

from __future__ import annotations

import json

import pytest

from benchmarks import acquire_scale
from tests.support.dynamodb_local import DynamoDbLocal
from tests.support.mariadb import MariaDb


def figures_of(stores: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    acquire_scale.main(["--quick", "--stores", stores, "--rounds", "4", "--largest", "1000"])
    figures: dict[str, dict[str, object]] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return figures


def test_it_ends_with_a_line_of_figures(capsys: pytest.CaptureFixture[str]) -> None:
    figures = figures_of("sqlite", capsys)

    assert figures["p50_ms"].keys() == {"sqlite"}
    assert figures["bulk_times_faster"].keys() == {"sqlite"}


@pytest.mark.integration
def test_it_measures_every_server(
    postgres_server: str, mariadb_server: MariaDb, dynamodb: DynamoDbLocal, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = figures_of("postgresql,mariadb,dynamodb", capsys)  # of its own; these here tell that they can be had

    assert figures["p50_ms"].keys() == {"postgresql", "mariadb", "dynamodb"}
