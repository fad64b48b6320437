"""The Spark provider's hook: everything that is used of it beyond its public interface, and why.

The provider waits for each job in its own way, and keeps to itself where it submits a job to, and by which command.
These names are private, so a release of the provider may change them: `pyproject.toml` bounds its version, and a test
fails once one of them is gone.

| of | name | why |
|---|---|---|
| hook | `_connection` | master, deploy mode, namespace and binary are resolved there, out of arguments and connection |
| hook | `_build_spark_submit_command` | a job that nobody waits for is started in a session of its own |
| hook | `_process_spark_submit_log` | only this method sees the output, with the job's summary and its last error |
| hook | `_yarn_application_id` | what YARN ends a job by that nobody waits for |
| hook | `_kubernetes_driver_pod` | what Kubernetes ends such a job by |
| hook | `_spark_exit_code` | without one, a submission to Kubernetes that nobody waits for counts as failed |
| hook | `_submit_sp` | the exit code says whether leases were lost, or a person is needed |
| operator | `_get_hook` | makes the hook; what a try's job needs is added to its arguments |
| operator | `_hook` | the hook is kept there, and made only if there is none |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_coordination.coordination.errors import ConfigurationError

HOOK_ATTRIBUTES = (
    "_build_spark_submit_command",
    "_connection",
    "_kubernetes_driver_pod",
    "_process_spark_submit_log",
    "_spark_exit_code",
    "_submit_sp",
    "_yarn_application_id",
)
APPLICATION_ID = re.compile(r"application_\d+_\d+")
NAMESPACED_POD = re.compile(r"[a-z0-9][a-z0-9.-]*:[a-z0-9][a-z0-9.-]*")
DEFAULT_NAMESPACE = "default"
"""Spark's, where nobody names one."""
OPERATOR_ATTRIBUTES = ("_get_hook", "_hook")
NOT_FOLLOWED = {"track_driver_via_k8s_api": False, "yarn_track_via_rm_api": False}
"""Arguments of the operator: the store says what becomes of a job that nobody waits for, on every cluster manager."""


@dataclass(frozen=True, kw_only=True)
class SubmissionTarget:
    """Where a hook submits a job to.

    :param master: Spark's name for the cluster manager.
    :param deploy_mode: `client`, `cluster`, or None for Spark's default, which is `client`.
    :param namespace: that of Kubernetes.
    """

    master: str
    deploy_mode: str | None
    namespace: str = DEFAULT_NAMESPACE

    @property
    def is_in_cluster(self) -> bool:
        """Whether the driver runs in the cluster, not on this machine."""
        return self.deploy_mode == "cluster"

    @property
    def is_yarn(self) -> bool:
        """Whether YARN runs the job."""
        return "yarn" in self.master

    @property
    def is_kubernetes(self) -> bool:
        """Whether Kubernetes runs the job."""
        return "k8s" in self.master

    @property
    def is_local(self) -> bool:
        """Whether the driver is the only JVM of the job."""
        return self.master.startswith("local") and not self.master.startswith("local-cluster")

    @property
    def is_here(self) -> bool:
        """Whether the driver runs on this machine, with the Spark and the Python of this machine."""
        return not (self.is_in_cluster or self.is_yarn or self.is_kubernetes)

    def check(self) -> None:
        """Check that the cluster manager can run a job.

        :raises ConfigurationError: if it cannot, with the remedy.
        """
        if self.is_in_cluster and not (self.is_yarn or self.is_kubernetes):
            raise ConfigurationError(
                f"field 'deploy_mode' is 'cluster' with master {self.master!r}: Spark runs Python drivers "
                "in cluster mode on YARN and Kubernetes alone; use 'client'"
            )

    def once(self, conf: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """Return Spark's configuration with which the cluster manager starts the driver once: settings serve one.

        :param conf: what the task configures.
        """
        once = {"spark.yarn.maxAppAttempts": "1"} if self.is_in_cluster and self.is_yarn else {}
        return {**once, **(conf or {})}

    def waiting(self, conf: Mapping[Any, Any] | None) -> None:
        """Check that spark-submit waits for the job that the task waits for.

        :param conf: what the task configures.
        :raises ConfigurationError: if it does not.
        """
        if self.is_in_cluster and str((conf or {}).get(self._wait_option, "true")).strip().lower() != "true":
            raise ConfigurationError(
                f"field 'conf': {self._wait_option!r} must be true, or left out; to submit without waiting, give "
                "deferrable=True"
            )

    @property
    def _wait_option(self) -> str:
        return f"spark.{'yarn.submit' if self.is_yarn else 'kubernetes.submission'}.waitAppCompletion"

    def without_waiting(self, conf: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """Return Spark's configuration with which spark-submit returns once the cluster has accepted the job.

        :param conf: what the task configures.
        :raises ConfigurationError: if `conf` asks to wait for it.
        """
        conf = dict(conf or {})
        if not self.is_in_cluster:
            return conf
        option = self._wait_option
        if str(conf.get(option, "false")).strip().lower() != "false":
            raise ConfigurationError(f"field 'conf': {option!r} must be false, or left out, with deferrable=True")
        return {**conf, option: "false"}


def submission_target(hook: SparkSubmitHook) -> SubmissionTarget:
    """Return where a hook submits to."""
    connection = hook._connection
    return SubmissionTarget(
        master=connection["master"],
        deploy_mode=connection["deploy_mode"],
        namespace=connection["namespace"] or DEFAULT_NAMESPACE,
    )


def watch_output(hook: SparkSubmitHook, watched: Callable[[Iterator[str]], Iterator[str]]) -> None:
    """Let every line that spark-submit writes pass through `watched` before the hook handles it."""
    process = hook._process_spark_submit_log
    hook._process_spark_submit_log = lambda itr: process(watched(itr))  # type: ignore[method-assign]


def when_submitted(hook: SparkSubmitHook, submitted: Callable[[str], None]) -> None:
    """Have something called once with the name of a driver's pod, as soon as spark-submit names it."""
    process = hook._process_spark_submit_log
    is_known = False

    def watched(lines: Iterator[str]) -> Iterator[str]:
        nonlocal is_known
        for line in lines:
            yield line
            if not is_known and (pod := hook._kubernetes_driver_pod) is not None:  # the hook has handled the line
                is_known = True
                submitted(pod)

    hook._process_spark_submit_log = lambda itr: process(watched(itr))  # type: ignore[method-assign]


def before_submitting(hook: SparkSubmitHook, submitting: Callable[[], None]) -> None:
    """Have something called right before a hook submits."""
    submit = hook.submit

    def submit_then(application: str = "", **kwargs: Any) -> Any:
        submitting()
        return submit(application, **kwargs)

    hook.submit = submit_then  # type: ignore[method-assign]


def exit_code_of(hook: SparkSubmitHook | None) -> int | None:
    """Return the exit code of the spark-submit that a hook started; None if there is none (yet)."""
    process = None if hook is None else hook._submit_sp
    return None if process is None else process.returncode


def submit_command(hook: SparkSubmitHook, application: str) -> list[str]:
    """Return the command that submits an application."""
    return hook._build_spark_submit_command(application)


def submit_without_waiting(hook: SparkSubmitHook, target: SubmissionTarget, application: str) -> str | None:
    """Submit an application to a cluster, and return once the cluster has accepted it.

    :param hook: made with what `SubmissionTarget.without_waiting` returns.
    :returns: what the cluster manager ends it by: an application's id, or a namespace and a driver's pod; None if
        spark-submit did not say, as with a log level above INFO.
    """
    if target.is_kubernetes:
        hook._spark_exit_code = 0  # it would be read from the driver's end, which nobody waits for
    SparkSubmitHook.submit(hook, application)
    if target.is_yarn:
        return hook._yarn_application_id
    pod = hook._kubernetes_driver_pod
    return None if pod is None else f"{target.namespace}:{pod}"


def kill_command(hook: SparkSubmitHook, cluster_id: str) -> list[str]:
    """Return the command that ends a job in a cluster.

    :param hook: made as for its submission.
    :param cluster_id: as `submit_without_waiting` returned it.
    :raises ConfigurationError: if it is none of the cluster manager that the hook submits to.
    """
    target = submission_target(hook)
    if target.is_yarn and APPLICATION_ID.fullmatch(cluster_id):
        return ["yarn", "application", "-kill", cluster_id]
    if target.is_kubernetes and NAMESPACED_POD.fullmatch(cluster_id):
        return [*hook._connection["spark_binary"].split(), "--master", target.master, "--kill", cluster_id]
    raise ConfigurationError(
        f"job {cluster_id!r} is not one of master {target.master!r}: end it where it was submitted"
    )
