"""The assumptions of a plan are the measured results in `benchmarks/RESULTS.md`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.supervisor.assumptions import Assumptions

RESULTS = (Path(__file__).resolve().parents[2] / "benchmarks" / "RESULTS.md").read_text()
SMALL, LARGE = 200, 1024


def section(heading: str) -> str:
    return RESULTS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.fixture(scope="module")
def measured_figures() -> dict[str, Any]:
    [line] = re.findall(r"^```json\n(.*)\n```", section("What a record costs a job"), re.MULTILINE)
    figures: dict[str, Any] = json.loads(line)
    return figures


def line_through(small: float, large: float) -> tuple[float, float]:
    """Return the cost of a record and of each KiB, from the costs of records of two sizes."""
    per_byte = (large - small) / (LARGE - SMALL)
    return small - SMALL * per_byte, per_byte * 1024


def test_landing_and_transform_costs_match_measurements(measured_figures: dict[str, Any]) -> None:
    assumed = Assumptions()
    for name, figures in (
        ("landing, aggregated", (assumed.landing_us_per_record, assumed.landing_us_per_kib)),
        ("transforming", (assumed.transforming_us_per_record, assumed.transforming_us_per_kib)),
    ):
        of = measured_figures["microseconds"][name]
        assert figures == pytest.approx(line_through(of[str(SMALL)], of[str(LARGE)]), abs=0.051)


def test_parsing_costs_match_measurements() -> None:
    row = re.search(r"our handler \(msgspec\) \| ([\d.]+) \| ([\d.]+) \|", section("What user records cost"))
    assert row is not None
    figures = (Assumptions().parsing_us_per_record, Assumptions().parsing_us_per_kib)
    assert figures == pytest.approx(line_through(float(row[1]), float(row[2])), abs=0.051)


def test_memory_matches_measurements(measured_figures: dict[str, Any]) -> None:
    memory = measured_figures["memory_mib"]
    assert Assumptions().python_mib == pytest.approx(memory["at rest"], abs=5)
    assert Assumptions().memory_factor == pytest.approx(memory["a partition"] / 32, abs=0.051)


def test_store_reads_of_a_round_match_the_count(measured_figures: dict[str, Any]) -> None:
    few, many = measured_figures["store"]["4"], measured_figures["store"]["16"]
    assert [few["reads"], many["reads"]] == pytest.approx(2 * [Assumptions().store_reads_per_round], abs=0.051)
    assert Assumptions().store_writes_per_batch == pytest.approx(many["items written"] / many["batches"], abs=0.051)


def test_death_detection_time_matches_measurements() -> None:
    row = re.search(r"noticed: every shard \| ([\d.]+) s", section("How long shards stay unread when a worker dies"))
    assert row is not None and Assumptions().takeover_s == float(row[1])
