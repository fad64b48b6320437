"""What a task makes of its job's results: the job's output, and the events of its outlets.

Output is read without secrets. An asset event reports what was delivered, and checkpoints are mirrored for display;
nothing reads them back: only the store knows how far a partition is.
"""

from __future__ import annotations

import json
import logging
import re
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow.sdk import Asset, Context

from airflow_provider_coordination.airflow_names import AirflowException, AirflowFailException
from airflow_provider_coordination.spark.outcome import (
    APPLICATION_MARK,
    EXIT_CONFIGURATION,
    EXIT_FAILED,
    EXIT_LOST_WORK,
    SUMMARY_MARK,
)
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.versions import refusal_of_java

log = logging.getLogger(__name__)

OUR_ERROR = re.compile(r" ERROR (?:airflow_provider_coordination[\w.]*|__main__): (?P<message>.*)")

SUBMITTED = re.compile(r" Submitted application (?P<id>application_\d+_\d+)")
"""How spark-submit reports an application on YARN."""
DRIVER_EXIT = re.compile(r"User application exited with (?:status )?(?P<code>\d+)")
"""How YARN reports the exit code of a driver in a container; the exit code of spark-submit is then 1."""
SUBMIT_FAILED = "Cannot execute: "
"""How the Spark provider begins the error of a spark-submit that failed."""
SIGNAL_CODES = 128
"""A process that a signal killed has the exit code 128 plus the signal's number."""
LINES_EXPLAINING = 20
"""How many lines of its output explain such an error."""


class JobOutput:
    """Reads the lines of a job's output as they pass, without delaying any.

    :param redaction: hides the secrets of the job, in the lines and in what is kept of them.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        self.redaction = redaction or Redaction()
        self.summary: dict[str, Any] = {}
        self.last_error: str | None = None
        self.application_id: str | None = None
        self.driver_exit_code: int | None = None
        self._tail: deque[str] = deque(maxlen=LINES_EXPLAINING)

    def observe(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines as they come, without secrets, and keep the facts that this class collects."""
        for line in lines:
            self._note(line)
            shown = self.redaction.text(line)
            if shown.strip():
                self._tail.append(shown.strip())
            yield shown

    def exception_for(self, exit_code: int | None) -> AirflowException | None:
        """Return the exception for an exit code; None if the provider's own error explains it."""
        if self.driver_exit_code is not None:
            return self._unrecorded_end(self.driver_exit_code)
        if exit_code == EXIT_CONFIGURATION:
            return AirflowFailException(self.last_error or "the job's configuration is wrong; see the job's log")
        if exit_code == EXIT_LOST_WORK:
            return AirflowException(
                f"{self.last_error or 'leases were lost'}; no data is lost, a retry continues from there"
            )
        if exit_code == EXIT_FAILED and self.last_error:
            return AirflowException(f"{self.last_error}; landed data is kept, a retry continues from there")
        if exit_code is not None and exit_code < 0:
            return AirflowException(
                f"the job was killed by {_signal_name(-exit_code)}; no data is lost, a retry continues from there"
            )
        return None

    def explained(self, error: BaseException) -> BaseException:
        """Return an error of spark-submit with its cause and the remedy, or with the last lines of its output."""
        if problem := refusal_of_java("\n".join(self._tail)):
            return AirflowFailException(problem)
        if not (isinstance(error, AirflowException) and str(error).startswith(SUBMIT_FAILED) and self._tail):
            return error
        if self._tail[-1] in str(error):
            return error
        return AirflowException("\n".join([str(error), "The last lines of its output:", *self._tail]))

    def _unrecorded_end(self, code: int) -> AirflowException:
        """Return the exception for a driver that ended in a container of YARN, and recorded no outcome in the store."""
        logs = f"its log, as by 'yarn logs -applicationId {self.application_id}'"
        if code == EXIT_CONFIGURATION:
            return AirflowFailException(f"the driver refused to begin, exit code {code}; the reason is in {logs}")
        by = f" ({_signal_name(code - SIGNAL_CODES)})" if code > SIGNAL_CODES else ""
        return AirflowException(
            f"the driver ended with exit code {code}{by} and recorded no outcome; read {logs}; no data is lost, a "
            "retry continues from there"
        )

    def _note(self, line: str) -> None:
        _, mark, text = line.partition(APPLICATION_MARK)
        if mark:
            self.application_id = text.partition(" ")[0].strip() or None
        elif submitted := SUBMITTED.search(line):
            self.application_id = submitted["id"]
        if driver := DRIVER_EXIT.search(line):
            self.driver_exit_code = int(driver["code"])
        error = OUR_ERROR.search(line)
        if error:
            self.last_error = self.redaction.text(error["message"].strip())
        _, mark, text = line.partition(SUMMARY_MARK)
        if mark:
            try:
                summary = json.loads(text)
                self.summary = self.redaction.mapping(summary) if isinstance(summary, dict) else {}
            except ValueError:
                log.warning("the job's summary is ignored, it is not JSON: %s", self.redaction.text(text.strip()))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


RANGES_LISTED = 20
"""How many partitions an event lists with their range, and how many checkpoints are mirrored."""


StreamOf = Callable[[str], str | None]
"""Returns the name of the endless stream that a partition key belongs to; see `SourceKind.stream_of`."""


def no_stream(partition_key: str) -> None:
    """Return None: the partition belongs to no stream, because its kind is not known."""
    return


def report_to_outlets(
    context: Context, outlets: Sequence[Any], source: str, result: Mapping[str, Any], stream_of: StreamOf
) -> None:
    """Add what a job delivered to the events of a task's outlets, and mirror its checkpoints.

    A job that delivered nothing adds zero counts to the event that Airflow emits for every successful task.

    :param context: the task's context.
    :param outlets: the task's outlets; those that are not assets, such as aliases, are skipped.
    :param source: the source's name.
    :param result: the task's result: the job's summary, with its `owner`.
    :param stream_of: the stream lookup of the kind of source.
    """
    assets = [outlet for outlet in outlets if isinstance(outlet, Asset)]
    if not assets:
        return
    report = delivered_range(source, result, stream_of)
    for asset in assets:
        context["outlet_events"][asset].extra.update(report)
    _mirror(context, assets, source, result, stream_of)


def delivered_range(source: str, result: Mapping[str, Any], stream_of: StreamOf) -> dict[str, Any]:
    """Return what an asset event reports about a job; its size is bounded.

    :param source: the source's name.
    :param result: see `report_to_outlets`.
    :param stream_of: the stream lookup of the kind of source.
    """
    ranges: Mapping[str, Mapping[str, Any]] = result.get("ranges") or {}
    arrivals = [
        partition_range["last_arrival"] for partition_range in ranges.values() if partition_range.get("last_arrival")
    ]
    streams: dict[str, str] = {}
    for key, partition_range in ranges.items():
        if (stream := stream_of(key)) is not None and (arrived := partition_range.get("last_arrival")):
            streams[stream] = max(arrived, streams.get(stream, ""))
    return {
        "source": source,
        "owner": result.get("owner"),
        "partitions": result.get("partitions_delivered", 0),
        "batches": result.get("batches_delivered", 0),
        "records": result.get("records_delivered", 0),
        "bytes": result.get("bytes_delivered", 0),
        "last_arrival": max(arrivals, default=None),
        "streams": streams,
        "ranges": {key: dict(partition_range) for key, partition_range in list(ranges.items())[:RANGES_LISTED]},
    }


def _mirror(
    context: Context, assets: Sequence[Asset], source: str, result: Mapping[str, Any], stream_of: StreamOf
) -> None:
    """Store the checkpoints of endless partitions with the assets. Finite partitions have no useful checkpoint."""
    checkpoints = {
        key: {
            "source": source,
            "checkpoint": found["to"],
            "last_arrival": found.get("last_arrival") or "",
            "owner": result.get("owner") or "",
        }
        for key, found in (result.get("ranges") or {}).items()
        if stream_of(key) is not None
    }
    stores: Any = context.get("asset_state_store")
    if not checkpoints or stores is None:
        return
    try:
        for asset in assets:
            for key, checkpoint in list(checkpoints.items())[:RANGES_LISTED]:
                stores[asset].set(key, checkpoint)
    except Exception as error:  # the data is delivered, and the store has the checkpoints
        log.warning("checkpoints are not mirrored to Airflow: source=%s: %s: %s", source, type(error).__name__, error)
