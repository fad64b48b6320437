"""Reads the output of a Spark job: its summary, its last error and the meaning of its exit code, without secrets."""

from __future__ import annotations

import json
import logging
import re
import signal
from collections.abc import Iterable, Iterator
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_provider_coordination.spark.redaction import Redaction

log = logging.getLogger(__name__)

OUR_ERROR = re.compile(r" ERROR (?:airflow_provider_coordination[\w.]*|__main__): (?P<message>.*)")


class JobOutput:
    """Reads the lines of a job's output as they pass, without delaying any.

    :param redaction: hides the secrets of the job, in the lines and in what is kept of them.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        self.redaction = redaction or Redaction()
        self.summary: dict[str, Any] = {}
        self.last_error: str | None = None
        self.application_id: str | None = None

    def observe(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines as they come, without secrets, and keep the facts that this class collects."""
        for line in lines:
            self._note(line)
            yield self.redaction.text(line)

    def exception_for(self, exit_code: int | None) -> AirflowException | None:
        """Return the exception for an exit code; None if the provider's own error explains it."""
        from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_LOST_WORK

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

    def _note(self, line: str) -> None:
        from airflow_provider_coordination.spark.application import APPLICATION_MARK, SUMMARY_MARK

        _, mark, text = line.partition(APPLICATION_MARK)
        if mark:
            self.application_id = text.partition(" ")[0].strip() or None
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
