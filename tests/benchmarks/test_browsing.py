"""The benchmark of browsing runs and ends with its figures; what they are is not asserted, since they are timed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import browsing
from tests.support.depth import at_depth
from tests.support.dynamodb_local import DynamoDbLocal
from tests.support.mariadb import MariaDb

PAGES = 13
PARTITIONS = at_depth(short=300, deep=20_000)


def figures_of(stores: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    browsing.main(["--quick", "--stores", stores, "--rounds", "2", "--largest", str(PARTITIONS)])
    figures: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return figures


def test_it_ends_with_a_line_of_figures(capsys: pytest.CaptureFixture[str]) -> None:
    figures = figures_of("sqlite", capsys)

    assert figures.keys() == {"partitions", "median_ms", "p95_ms", "slowest_p95_to_aim"}
    assert figures["partitions"] == {"sqlite": PARTITIONS}
    assert figures["median_ms"]["sqlite"].keys() == figures["p95_ms"]["sqlite"].keys()
    assert len(figures["median_ms"]["sqlite"]) == PAGES
    assert figures["slowest_p95_to_aim"].keys() == {"sqlite"}


@pytest.mark.integration
@pytest.mark.deep
def test_it_measures_every_server(
    postgres_server: str, mariadb_server: MariaDb, dynamodb: DynamoDbLocal, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = figures_of("postgresql,mariadb,dynamodb", capsys)  # of its own; these here tell that they can be had

    assert figures["median_ms"].keys() == {"postgresql", "mariadb", "dynamodb"}
