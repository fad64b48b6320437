"""The dashboard and the alert rules in `monitoring/` name what the package exports, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from airflow_provider_coordination.coordination.metrics import (
    PARTITIONS,
    WATERMARK_SECONDS,
    WORKERS,
    CoordinationMetric,
)
from airflow_provider_coordination.sources.kinesis.sync_state import ShardSyncMetric
from airflow_provider_coordination.spark.job_reporting import IngestionMetric

REPOSITORY = Path(__file__).resolve().parents[1]
DASHBOARD = json.loads((REPOSITORY / "monitoring" / "grafana-dashboard.json").read_text())
RULES = yaml.safe_load((REPOSITORY / "monitoring" / "prometheus-rules.yaml").read_text())
TESTED_ALERTS = REPOSITORY / "tests" / "integration" / "alerts.yaml"

GAUGES = {
    PARTITIONS,
    WORKERS,
    WATERMARK_SECONDS,
    IngestionMetric.MILLIS_BEHIND_LATEST,
    IngestionMetric.FRESHNESS_SECONDS,
}
OF_JOBS_ALONE = {*IngestionMetric, WORKERS}
"""What no task of Airflow reports."""
OF_TASKS_ALONE = {PARTITIONS, WATERMARK_SECONDS}
OWN_LABELS = {
    PARTITIONS: {"status"},
    IngestionMetric.SINK_RECORDS: {"sink"},
    IngestionMetric.SINK_BATCHES_HELD: {"sink"},
    IngestionMetric.FRESHNESS_SECONDS: {"sink"},
}
METRICS = {str(name) for name in (*CoordinationMetric, *ShardSyncMetric, *IngestionMetric, *GAUGES)}
ALARMING = {
    CoordinationMetric.PARTITIONS_PARKED,
    CoordinationMetric.DATA_LOSS,
    CoordinationMetric.ATTEMPTS_FAILED,
    CoordinationMetric.ACKNOWLEDGMENT_SETS_EXPIRED,
    CoordinationMetric.PARTITION_NOT_OWNED_ERRORS,
    CoordinationMetric.SAVE_STATE_UPDATE_ERRORS,
    CoordinationMetric.SUPPLIER_FAILURES,
    ShardSyncMetric.FAILURES,
    IngestionMetric.MILLIS_BEHIND_LATEST,
    IngestionMetric.RECORDS_LANDED,
    IngestionMetric.RECORDS_DELIVERED,
    IngestionMetric.PARSE_EXCEPTIONS,
    IngestionMetric.ITEMS_SET_ASIDE,
    IngestionMetric.FRESHNESS_SECONDS,
    IngestionMetric.SINK_BATCHES_HELD,
    WORKERS,
    WATERMARK_SECONDS,
}
"""What docs/operations.md asks to watch, and how late data is."""


def series_of(metric: str) -> set[str]:
    """The names of a metric in Prometheus: of jobs and tasks, by OpenTelemetry, and of tasks by StatsD."""
    name = metric.replace(".", "_")
    by_otlp = name if metric in GAUGES else f"{name}_total"
    of_jobs = set() if metric in OF_TASKS_ALONE else {by_otlp}
    of_tasks = set() if metric in OF_JOBS_ALONE else {f"airflow_{by_otlp}", f"airflow_{name}"}
    return of_jobs | of_tasks


@dataclass(frozen=True)
class Selector:
    """One selector of series in an expression.

    :param name: the name of the series, or a pattern of names.
    :param labels: the labels that it compares.
    """

    name: str
    labels: frozenset[str]

    @property
    def metrics(self) -> set[str]:
        """The metrics of which it selects every series; a part of a metric's series is an error."""
        found = {metric: {name for name in series_of(metric) if re.fullmatch(self.name, name)} for metric in METRICS}
        for metric, names in found.items():
            assert names in (set(), series_of(metric)), f"{self.name} omits {sorted(series_of(metric) - names)}"
        return {metric for metric, names in found.items() if names}


def parsed(expression: str) -> promql.Expr:
    """Parse an expression, with Grafana's variables replaced by values."""
    return promql.parse(re.sub(r"\$__(rate_)?interval", "5m", expression))


def nodes(expression: promql.Expr) -> list[promql.Expr]:
    """All parts of an expression; the selector of a range in its place."""
    found: list[promql.Expr] = []
    promql.walk(expression, lambda node: found.append(node))
    return [node.vector_selector if isinstance(node, promql.MatrixSelector) else node for node in found]


def selectors(expression: promql.Expr) -> list[Selector]:
    found = []
    for node in nodes(expression):
        if isinstance(node, promql.VectorSelector):
            labels = {matcher.name: matcher.value for matcher in node.matchers.matchers}
            found.append(Selector(node.name or labels.pop("__name__"), frozenset(labels)))
    return found


def grouping(expression: promql.Expr) -> set[str]:
    """The labels by which an expression groups."""
    grouped = [node.modifier for node in nodes(expression) if isinstance(node, promql.AggregateExpr)]
    return {label for modifier in grouped if modifier is not None for label in modifier.labels}


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in DASHBOARD["panels"] if panel["type"] != "row")


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def rules(kind: str) -> list[dict[str, Any]]:
    """The rules that alert, or those that record."""
    return [rule for group in RULES["groups"] for rule in group["rules"] if kind in rule]


RECORDED = {rule["record"]: rule["expr"] for rule in rules("record")}
EXPRESSIONS = [*queries(), *(rule["expr"] for rule in [*rules("record"), *rules("alert")])]


def read_by(expression: str) -> set[str]:
    """The metrics that an expression reads, also by what the rules record."""
    found: set[str] = set()
    for selector in selectors(parsed(expression)):
        found |= read_by(RECORDED[selector.name]) if selector.name in RECORDED else selector.metrics
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_reads_exported_metrics_by_their_labels(expression: str) -> None:
    for selector in selectors(parsed(expression)):
        metrics = read_by(RECORDED[selector.name]) if selector.name in RECORDED else selector.metrics
        assert len(metrics) == 1, selector.name
        labels = {"source", "store"} | OWN_LABELS.get(metrics.copy().pop(), set())
        assert selector.labels | grouping(parsed(expression)) <= labels


def test_selector_of_unknown_series_reads_no_metric() -> None:
    assert Selector("coordination_partition_parked_total", frozenset()).metrics == set()


def test_selector_of_half_the_series_is_an_error() -> None:
    with pytest.raises(AssertionError, match=r"omits \['airflow_coordination_data_loss'"):
        _ = Selector("coordination_data_loss_total", frozenset()).metrics


def test_every_metric_is_on_a_panel() -> None:
    assert {metric for expression in queries() for metric in read_by(expression)} == METRICS


def test_alarming_metrics_have_a_rule() -> None:
    alarmed = {metric for rule in rules("alert") for metric in read_by(rule["expr"])}
    assert {str(metric) for metric in ALARMING} - alarmed == set()


def test_recorded_growth_is_used_and_named_for_its_metric() -> None:
    used = {selector.name for rule in rules("alert") for selector in selectors(parsed(rule["expr"]))}
    assert set(RECORDED) <= used
    for name, expression in RECORDED.items():
        grouped, metric, window = name.split(":")
        assert {f"coordination.{metric.removeprefix('coordination_')}"} == read_by(expression)
        assert set(grouped.split("_")) == grouping(parsed(expression))
        assert set(re.findall(r"\[(\w+)\]|offset (\w+)", expression)) == {
            (window.removeprefix("growth"), ""),
            ("", window.removeprefix("growth")),
        }


@pytest.mark.parametrize("rule", rules("alert"), ids=lambda rule: rule["alert"])
def test_alert_says_what_happened_and_what_to_do(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["labels"]["severity"] in {"critical", "warning"}
    texts = rule["annotations"]
    assert set(texts) == {"summary", "description", "action", "manual"}
    assert all(text.strip() for text in texts.values())
    assert texts["description"].endswith(".") and texts["action"].endswith(".")
    labels = grouping(parsed(rule["expr"])) or set(selectors(parsed(rule["expr"]))[0].name.partition(":")[0].split("_"))
    named = set(re.findall(r"\$labels\.(\w+)", "".join(texts.values())))
    assert named == labels
    page, _, anchor = texts["manual"].partition("#")
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / page).read_text(), re.MULTILINE)
    assert not anchor or anchor in {re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-")) for heading in headings}


def test_alerts_have_names_of_their_own_and_cases() -> None:
    names = [rule["alert"] for rule in rules("alert")]
    assert len(set(names)) == len(names)
    assert set(names) == set(re.findall(r'alertname="(\w+)"', TESTED_ALERTS.read_text()))


def test_alerts_are_documented_with_their_severity() -> None:
    text = (REPOSITORY / "docs" / "metrics.md").read_text()
    documented = re.findall(r"^\| `(Coordination\w+)` \| (\w+) \|", text, re.MULTILINE)
    assert documented == [(rule["alert"], rule["labels"]["severity"]) for rule in rules("alert")]


def test_dashboard_asks_for_its_data_source_and_the_sources() -> None:
    datasource, source = DASHBOARD["templating"]["list"]
    assert (datasource["type"], datasource["query"]) == ("datasource", "prometheus")
    assert source["multi"] and source["includeAll"]
    [named] = re.findall(r"label_values\((.+), source\)", source["query"]["query"])
    [selector] = selectors(parsed(named))
    assert all(re.fullmatch(selector.name, name) for metric in METRICS for name in series_of(metric))
    assert all(
        entry["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for panel in panels()
        for entry in (panel, *panel["targets"])
    )
    assert all("source" in selector.labels for query in queries() for selector in selectors(parsed(query)))


def test_panels_have_texts_and_lie_beside_each_other() -> None:
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        assert panel["title"] and (panel["type"] == "row" or panel["description"])
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken
        taken |= cells
