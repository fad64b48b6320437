"""The submission of one job by a try of a task: its files, its settings, and what must be undone if it fails."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from copy import copy
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.job_resources import (
    FILE,
    FOLDER,
    SECRET,
    DriverSecrets,
    SettingsLocation,
    end_processes,
    job_processes,
    secret_name,
)
from airflow_provider_coordination.operators.job_follower import JobFollower
from airflow_provider_coordination.operators.job_results import JobOutput
from airflow_provider_coordination.operators.packaging import (
    conf_with_archive,
    driver_options,
    local_environment,
    write_container_program,
    write_package_archive,
)
from airflow_provider_coordination.operators.spark_hook import (
    SubmissionTarget,
    application_to_end,
    before_submitting,
    end_in_cluster,
    submission_target,
    submit_command,
    submit_without_waiting,
    watch_output,
    when_submitted,
)
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import ApplicationSettings
from airflow_provider_coordination.spark.submission import LOG_NAME, command
from airflow_provider_coordination.versions import find_installation, require_versions

log = logging.getLogger(__name__)

FOLDER_PREFIX = "coordination-job-"
LOGS_KEPT = timedelta(days=7)
"""How long the output of a job is kept if no task returned for it."""


class JobSubmission:
    """The job of one try, from the files that it needs to its end or its failure.

    :param settings: the job's settings.
    :param connection: the settings of the store's connection.
    :param folder: a private folder for the job's files.
    :param redaction: hides the secrets of the job in its output.
    :param follower: records the job for later tries; None if no other process may have to find it.
    :param log: the log of the task.
    :param is_waited_for: whether the submission returns once the job has ended, not once it is submitted.
    """

    def __init__(
        self,
        settings: ApplicationSettings,
        connection: ConnectionSettings,
        folder: Path,
        redaction: Redaction,
        follower: JobFollower | None,
        *,
        log: Any,
        is_waited_for: bool,
    ) -> None:
        self.settings = settings
        self.settings_file = folder / f"{folder.name}.json"
        self.output = JobOutput(redaction)
        self.job_log: str | None = None
        self._connection = connection
        self._package_archive = write_package_archive(folder)
        self._follower = follower
        self._log = log
        self._is_waited_for = is_waited_for
        self._secrets: DriverSecrets | None = None
        self._program: Path | None = None
        self._env_vars: Mapping[str, Any] = {}
        self._is_abandoned = False

    def prepared(
        self, task: SparkSubmitOperator, target: SubmissionTarget, *, spark_archive: str | None, kubernetes_conn_id: str
    ) -> SparkSubmitOperator:
        """Return a copy of a task whose arguments have what the job needs; the task's own stay as rendered.

        :param target: the submission target of the task.
        :param spark_archive: the archive of Spark's classes; None for none.
        :param kubernetes_conn_id: the connection that creates Secrets if the driver runs in Kubernetes.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        prepared = copy(task)
        target.check()
        prepared.conf = target.conf_starting_once(conf_with_archive(task.conf, spark_archive, target))
        prepared.py_files = _listed(task.py_files, self._package_archive)
        reference = str(self.settings_file)
        if target.is_in_cluster and target.is_kubernetes:
            self._secrets = DriverSecrets(kubernetes_conn_id, target.namespace)
            prepared.conf[f"spark.kubernetes.driver.secrets.{secret_name(self.settings.owner)}"] = FOLDER
            reference = f"{FOLDER}/{FILE}"
            self.settings_file.unlink()
        elif target.is_in_cluster:
            self._program = write_container_program(self.settings_file, task.application)
            prepared.files = _listed(task.files, task.application)
            reference = self.settings_file.name
        elif target.is_on_this_machine:
            given = task.env_vars or {}
            local = local_environment({**os.environ, **given}, has_executors=not target.is_local)
            prepared.env_vars = {**local, **given}
            environment = {**os.environ, **prepared.env_vars}
            require_versions(find_installation(environment))
            prepared.env_vars |= driver_options(environment, spark_archive)
        prepared.application_args = [reference, self.settings.owner]
        if not self._is_waited_for:
            prepared.conf = target.conf_without_waiting(prepared.conf)
        return prepared

    def attach(self, hook: SparkSubmitHook, env_vars: Mapping[str, Any] | None) -> None:
        """Let a hook record the job when it submits it, and read its output.

        :param hook: the hook of the task that `prepared` returned.
        :param env_vars: the environment variables of that task.
        """
        self._env_vars = env_vars or {}
        if not self._is_waited_for:
            self._return_once_submitted(hook)
        elif self._follower is not None:
            before_submitting(hook, self._announce)
        if self._secrets is not None:
            when_submitted(hook, self._bind_settings)
        watch_output(hook, self.output.observe)

    def abandon(self, hook: SparkSubmitHook | None, end_submission: Callable[[], object]) -> None:
        """End the job's processes, then release its leases; once, and even if a step fails.

        :param hook: the hook that submitted the job; None if there is none.
        :param end_submission: ends the spark-submit of the hook.
        """
        if self._is_abandoned:
            return
        self._is_abandoned = True
        owner = self.settings.owner
        try:
            processes = job_processes(str(self._program or self.settings_file))
            try:
                if hook is not None:
                    application = application_to_end(hook, self._env_vars)
                    end_submission()
                    if application is not None:
                        end_in_cluster(hook, application, self._env_vars)
            finally:
                end_processes(processes)
        except Exception:
            self._log.exception("the job may not have been stopped: owner=%s", owner)
        if self._secrets is not None:
            try:
                self._secrets.delete(owner)
            except Exception as error:
                self._log.warning("the job's settings may remain: owner=%s: %s", owner, error)
        self._release_leases()

    def _release_leases(self) -> None:
        settings, owner = self.settings, self.settings.owner
        try:
            # The coordinator acts for this task, not for the owner, whose leases belong to another process.
            coordinator = self._connection.coordinator(settings.source, f"{owner}:task")
            with closing(coordinator.store):
                keys = coordinator.give_up_owner(owner)
        except Exception as error:
            self._log.warning(
                "leases could not be released, they expire within %g seconds: source=%s owner=%s: %s",
                settings.ownership_timeout.total_seconds(), settings.source, owner, error,
            )  # fmt: skip
        else:
            self._log.info(
                "%d leases released: source=%s owner=%s partitions=%s",
                len(keys), settings.source, owner, ", ".join(keys) or "none",
            )  # fmt: skip

    def _announce(self, application: str) -> str:
        """Record the job that is about to be submitted, then put its settings where its driver finds them.

        :param application: the job's program.
        :returns: the program to submit.
        """
        assert self._follower is not None
        if self._secrets is None:
            self._follower.submit(self.settings, self.job_log)
        else:
            location = SettingsLocation(kind=SECRET, conn_id=self._secrets.conn_id, location=self._secrets.namespace)
            self._follower.submit(self.settings, self.job_log, location)
            self._secrets.make(self.settings)
        return application if self._program is None else str(self._program)

    def _bind_settings(self, pod: str) -> None:
        """Make the driver's pod own the settings, so that they are deleted with it; a failure does no harm."""
        assert self._secrets is not None and self._follower is not None
        owner = self.settings.owner
        if self._is_waited_for:
            self._follower.note_submitted(owner, f"{self._secrets.namespace}:{pod}")
        try:
            self._secrets.belong_to(owner, pod)
        except CoordinationError as error:
            self._log.info("the settings are deleted with this task only, not with pod %s: %s", pod, error)

    def _return_once_submitted(self, hook: SparkSubmitHook) -> None:
        """Make a hook's `submit` return as soon as the job is submitted."""
        assert self._follower is not None
        target, submitted = submission_target(hook), partial(self._follower.note_submitted, self.settings.owner)
        self.job_log = None if target.is_in_cluster else str(self.settings_file.with_name(LOG_NAME))
        variables = {} if target.is_kubernetes else self._env_vars

        def submit_and_return(application: str = "", **kwargs: Any) -> None:
            application = self._announce(application)
            if not target.is_in_cluster:
                _submit_here(submit_command(hook, application), variables, self.settings_file)
            elif (cluster_id := submit_without_waiting(hook, target, application)) is not None:
                submitted(cluster_id)

        hook.submit = submit_and_return  # type: ignore[method-assign]


def _listed(files: str | None, added: Path | str) -> str:
    return f"{files},{added}" if files else str(added)


def job_folder() -> Path:
    """Create a private folder that outlives the task; delete old ones whose tasks never returned."""
    root = Path(tempfile.gettempdir())
    for old in root.glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            kept = [file.stat().st_mtime for file in (old, *old.iterdir())]
            if max(kept) < time.time() - LOGS_KEPT.total_seconds():
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))


def _submit_here(spark_submit: list[str], env_vars: Mapping[str, Any], settings_file: Path) -> None:
    """Start a spark-submit whose driver is on this machine, in its own session, and do not wait for it."""
    process = subprocess.Popen(
        command(settings_file, spark_submit),
        env=os.environ | {name: str(value) for name, value in env_vars.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # ending the task's process group does not end it
    )
    process.returncode = 0  # keeps Popen from warning: no process waits for it, on purpose
    log.info("job submitted: pid=%d log=%s", process.pid, settings_file.with_name(LOG_NAME))
