"""Every type in every sink is read back as it was sent, or refused with its column."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.depth import at_depth
from tests.support.mariadb import MariaDb
from tests.support.seed import some_of
from tests.support.servers import postgres_database
from tests.support.type_jobs import ReadColumn, TypeJobs, expected
from tests.support.type_table import CASES, OF_ARROW, OF_PARQUET, SINKS, Case, RefusedValues
from tests.support.type_texts import sent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.deep
OBJECTS = [case for case in CASES if case.group == OF_PARQUET]
RECORDS = [case for case in CASES if case.group != OF_PARQUET]
SHARE = at_depth(short=3, deep=1000)
"""How many groups of cases, and how many refused ones, are tried; others each day."""


def chosen(all_of_them: Sequence[Any], most: int = SHARE) -> list[Any]:
    """Return some of many things, others each day."""
    return some_of(all_of_them, most)


def takes(sink: str, case: Case) -> bool:
    """Return whether a sink takes a case, and the test's reader of the sink can read it."""
    if case.lands is None or isinstance(case.cell(sink), RefusedValues):
        return False
    return sink != "iceberg" or case.lands != pa.time64("us")  # Iceberg's Spark reads no table that has times


def by_sinks(cases: Sequence[Case], sinks: Sequence[str]) -> dict[tuple[str, ...], list[Case]]:
    """Return cases by the sinks that take them, the ones that most sinks take first."""
    groups: dict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        groups[tuple(sink for sink in sinks if takes(sink, case))].append(case)
    groups.pop((), None)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))


@dataclass
class TypeDelivery:
    """What was delivered.

    :param jobs: the sinks.
    :param port: where PostgreSQL answers Java.
    """

    jobs: TypeJobs
    spark: SparkSession
    port: int
    columns: dict[str, dict[str, list[Case]]] = field(default_factory=lambda: {sink: {} for sink in SINKS})

    def land(self, cases: Sequence[Case]) -> Any:
        if cases[0].group == OF_PARQUET:
            return self.jobs.land_object(self.spark, cases)
        return self.jobs.land(cases)

    def deliver(self) -> None:
        """Deliver the cases without Spark and through Spark, each group to a table of its own."""
        for way, cases in (("records", [case for case in RECORDS if case.group == OF_ARROW]), ("objects", OBJECTS)):
            for number, (sinks, group) in enumerate(by_sinks(cases, SINKS).items()):
                row = self.land(group)
                for sink in sinks:
                    self._note(sink, f"{way}_{number}", group, self.jobs.deliver_landed(sink, f"{way}_{number}", row))
        for way, cases in (("records", RECORDS), ("objects", OBJECTS)):
            first, *others = by_sinks(cases, SINKS).items()
            for number, (sinks, group) in enumerate([first, *chosen(others, SHARE - 2)]):
                table = f"spark_{way}_{number}"
                error = self.jobs.deliver(self.spark, sinks, table, self.land(group), group)
                for sink in sinks:
                    self._note(sink, table, group, error)

    def _note(self, sink: str, table: str, cases: list[Case], error: Exception | None) -> None:
        assert error is None, f"{sink}, {table}: {error}"
        self.columns[sink][table] = cases

    def read(self, sink: str) -> dict[str, dict[str, ReadColumn]]:
        """Return what somebody else reads in a sink, by table and column."""
        columns = self.columns[sink]
        read: dict[str, Callable[[], dict[str, dict[str, ReadColumn]]]] = {
            "parquet": lambda: self.jobs.read_files(self.spark, columns),
            "delta": lambda: self.jobs.read_delta(columns),
            "iceberg": at_depth(
                short=lambda: self.jobs.read_iceberg(columns),
                deep=lambda: self.jobs.read_iceberg_by_spark(columns, self.port),
            ),
            "postgresql": lambda: self.jobs.read_postgresql(columns),
            "mariadb": lambda: self.jobs.read_mariadb(columns),
        }
        return read[sink]()

    def refusal(self, case: Case, sink: str) -> str:
        """Return why a case is refused; empty if it is delivered."""
        row = self.land([case])
        if row.error is not None:
            return str(row.error)
        error = self.jobs.deliver(self.spark, [sink], f"refused_{case.column}"[:60], row, [case])
        return "" if error is None else str(error)


@pytest.fixture(scope="module")
def types(
    start_spark: Callable[[], SparkSession],
    postgres_server: str,
    postgres_port: int,
    mariadb_server: MariaDb,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TypeDelivery]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("types")
        postgres = stack.enter_context(postgres_database(postgres_server))
        mariadb = mariadb_server.url(stack.enter_context(mariadb_server.database()))
        yield TypeDelivery(TypeJobs(folder, postgres, mariadb), start_spark(), postgres_port)


@pytest.fixture(scope="module")
def delivered_types(types: TypeDelivery) -> TypeDelivery:
    types.deliver()
    return types


@pytest.mark.parametrize(
    "cases", [[case for case in RECORDS if case.group == OF_ARROW], OBJECTS], ids=["arrow", "parquet"]
)
def test_values_are_landed_unchanged(types: TypeDelivery, cases: list[Case]) -> None:
    cases = [case for case in cases if not isinstance(case.lands, RefusedValues)]
    landed = pq.read_table(types.land(cases).file)
    untyped = [case for case in cases if case.lands is None]
    assert all(pa.types.is_null(landed.schema.field(case.column).type) for case in untyped)
    cases = [case for case in cases if case.lands is not None]
    assert [landed.schema.field(case.column).type for case in cases] == [case.lands for case in cases]
    for case in cases:
        assert sent(landed[case.column].combine_chunks()) == expected(case), case.name


@pytest.mark.share(0.34)
@pytest.mark.parametrize("sink", SINKS)
def test_external_readers_get_values_as_sent(delivered_types: TypeDelivery, sink: str) -> None:
    changed = []
    for table, found in delivered_types.read(sink).items():
        for case in delivered_types.columns[sink][table]:
            column = found[case.column]
            if column.type != case.cell(sink):
                changed.append((table, case.name, column.type, case.cell(sink)))
            changed += [
                (table, case.name, value, was)
                for value, was in zip(column.values, expected(case), strict=True)
                if value != was and not (sink == "mariadb" and (value, was) == ("0.0", "-0.0"))  # it has no -0.0
            ]
    assert changed == []


def test_unlandable_value_is_refused_with_its_column(types: TypeDelivery) -> None:
    unlandable = [case for case in CASES if isinstance(case.lands, RefusedValues) and not case.sql]
    assert unlandable
    for case in unlandable:
        assert isinstance(case.lands, RefusedValues)
        error = types.refusal(case, "parquet")
        assert f"'{case.column}" in error and re.search(case.lands.reason, error), (case.name, error)


@pytest.mark.parametrize(
    ("case", "sink"),
    chosen(
        [(case, sink) for case in CASES for sink in SINKS if isinstance(case.refused.get(sink), RefusedValues)]
        + [(case, "parquet") for case in CASES if isinstance(case.lands, RefusedValues) and case.sql]
    ),
    ids=lambda each: each.column if isinstance(each, Case) else each,
)
def test_value_that_a_sink_cannot_hold_names_its_column(types: TypeDelivery, case: Case, sink: str) -> None:
    cell, error = case.cell(sink), types.refusal(case, sink)
    assert isinstance(cell, RefusedValues)
    assert case.column in error and re.search(cell.reason, error), error
