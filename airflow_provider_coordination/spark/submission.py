"""Runs a spark-submit whose driver is on this machine, if no task waits for it: a process beside Airflow's own.

It writes the output to a file, and deletes the files that were made for the job. If the job could not record its own
outcome, because it was killed, ran out of memory or never started, this process records it in the store and gives back
the leases at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_coordination.spark.redaction import Redaction

TAIL_LINES = 20
TAIL_BYTES = 64 * 1024
LOG_NAME = "job.log"


def command(settings_file: Path, spark_submit: list[str]) -> list[str]:
    """Return the command that runs a spark-submit in this way.

    :param settings_file: the job's settings; its output goes beside it.
    :param spark_submit: the whole command.
    """
    # Not `-m`: that would need a PYTHONPATH, which the job would inherit.
    root = Path(__file__).parents[2]
    start = f"import sys; sys.path.insert(0, {str(root)!r}); from {__name__} import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", start, str(settings_file), *spark_submit]


def main(arguments: list[str]) -> int:
    """Run a spark-submit to its end; return its exit code.

    :param arguments: the path of the settings file, and the command.
    """
    settings_file, log = Path(arguments[0]), Path(arguments[0]).with_name(LOG_NAME)
    settings = settings_file.read_text(encoding="utf-8")  # the job deletes it
    try:
        with log.open("ab") as output:
            # The job reads no input, and its output is not a terminal that may be closed.
            code = subprocess.call(arguments[1:], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    except OSError as error:
        log.write_text(f"{arguments[1]}: {error.strerror}\n")
        code = 127
    for left in settings_file.parent.iterdir():
        if left != log:
            left.unlink(missing_ok=True)
    with log.open("a", encoding="utf-8") as output:
        try:
            _report(settings, code, log, arguments)
        except Exception as error:  # only the log can report it
            output.write(f"the job's outcome could not be stored: {type(error).__name__}: {error}\n")
    return code


def tail_of(log: Path, redaction: Redaction) -> str:
    """Return the last lines of a log, without secrets; empty if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return redaction.text("\n".join(text.splitlines()[-TAIL_LINES:]))


def _report(settings_text: str, code: int, log: Path, arguments: list[str]) -> None:
    # Imported here, so that this process is small while the job runs.
    from airflow_provider_coordination.coordination.groups import GroupRequests
    from airflow_provider_coordination.coordination.jobs import Jobs
    from airflow_provider_coordination.settings import read_settings
    from airflow_provider_coordination.spark.group_settings import GroupSettings, refusal
    from airflow_provider_coordination.spark.outcome import Outcome, coordinating
    from airflow_provider_coordination.spark.redaction import Redaction
    from airflow_provider_coordination.spark.settings import ApplicationSettings, IngestSettings

    values = json.loads(settings_text)
    kind: type[ApplicationSettings] = GroupSettings if "group" in values else IngestSettings
    settings = read_settings(kind, "ingest settings", values)
    tail = tail_of(log, Redaction(settings, dict(os.environ), arguments))
    outcome = Outcome(exit_code=code, tail=tail)
    with coordinating(settings, f"{settings.owner}:submission") as coordinator:
        if Jobs(coordinator.view).end(settings.owner, outcome.to_mapping()):
            coordinator.give_up_owner(settings.owner)
            if isinstance(settings, GroupSettings):  # otherwise their supervisors would wait for nothing
                GroupRequests(coordinator.view).refuse(refusal(settings.group, outcome).to_mapping())
