"""What a Spark job says in its output: its summary, its last error, and what its exit code means; no secret."""

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
    """Watches the lines of a job go by, without holding any back.

    :param redaction: hides the secrets that the job was given, in the lines and in what is kept of them.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        self.redaction = redaction or Redaction()
        self.summary: dict[str, Any] = {}
        self.last_error: str | None = None
        self.application_id: str | None = None

    def watched(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines as they come, without secrets, noting what this class keeps."""
        for line in lines:
            self._note(line)
            yield self.redaction.text(line)

    def explained(self, exit_code: int | None) -> AirflowException | None:
        """Return what an exit code means, or None where the provider's own error says all there is to say."""
        from airflow_provider_coordination.spark.application import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_LOST_WORK

        if exit_code == EXIT_CONFIGURATION:
            return AirflowFailException(self.last_error or "the job's configuration is wrong; see its log")
        if exit_code == EXIT_LOST_WORK:
            return AirflowException(
                f"{self.last_error or 'leases were lost'}; no data is lost, a retry continues from there"
            )
        if exit_code == EXIT_FAILED and self.last_error:
            return AirflowException(f"{self.last_error}; what is landed stays, a retry continues from there")
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
                log.warning("the job's summary is not JSON and is left out: %s", self.redaction.text(text.strip()))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
