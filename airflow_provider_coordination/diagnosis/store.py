"""Checks of the store: its response time, schema version, clock and permissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.diagnosis.permissions import permission_findings
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.redaction import without_secrets
from airflow_provider_coordination.stores.report import ReportingStore, StoreReport

RETRY_DEADLINE_SECONDS = 5.0
SLOW_ROUND_TRIP = timedelta(milliseconds=100)
CLOCK_REMEDY = "synchronize the clocks of this machine and of the store with NTP"


def store_findings(settings: StoreSettings, margin: timedelta, now: Callable[[], datetime]) -> Iterator[Finding]:
    """Yield the findings for a store. Nothing in it is created or changed.

    :param margin: by how much clocks may differ.
    :param now: the clock of this machine.
    """
    try:
        opened = open_store(replace(settings, history_days=0), retry_deadline_seconds=RETRY_DEADLINE_SECONDS)
        with closing(opened):
            if not isinstance(opened, ReportingStore):
                yield unchecked("store", f"stores of kind {settings.kind!r} do not report their status")
                return
            yield from _report_findings(opened.report(now), margin)
            if (needed := opened.permissions()) is not None:
                yield from permission_findings(*needed)
    except CoordinationError as failure:
        yield error("store", without_secrets(str(failure), settings))
    except Exception as failure:  # the text of an unexpected error may hold a secret
        yield error("store", f"the store failed with {type(failure).__name__}", "run the command again with --verbose")


def _report_findings(report: StoreReport, margin: timedelta) -> Iterator[Finding]:
    took = report.round_trip / timedelta(milliseconds=1)
    message = f"{report.name} responded in {took:.1f} ms"
    if report.round_trip > SLOW_ROUND_TRIP:
        yield warning("store", message, "run the store closer to Airflow and Spark: each round makes several requests")
    else:
        yield ok("store", message)
    if report.schema == 0:
        yield warning("store", "its table does not exist yet", "the first task creates it, or run init-store")
    elif report.schema < report.newest_schema:
        yield error(
            "store",
            f"its table has schema version {report.schema}, but this package needs {report.newest_schema}",
            "run init-store with a role that may alter tables",
        )
    else:
        yield ok("store", f"its table has schema version {report.schema}")
    yield _clock_finding(report.clock_difference, margin)


def _clock_finding(difference: timedelta | None, margin: timedelta) -> Finding:
    if difference is None:
        return unchecked("clock", "the store does not report its time")
    seconds = difference.total_seconds()
    text = f"the clock of this machine is {abs(seconds):.1f} s {'behind' if seconds > 0 else 'ahead of'} the store's"
    if abs(difference) > margin:
        return error("clock", f"{text}; clocks may differ by {margin.total_seconds():g} s", CLOCK_REMEDY)
    if abs(difference) > margin / 2:
        return warning("clock", f"{text}; clocks may differ by {margin.total_seconds():g} s", CLOCK_REMEDY)
    return ok("clock", f"{abs(seconds):.1f} s between the clocks of this machine and of the store")
