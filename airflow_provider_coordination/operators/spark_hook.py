"""The Spark provider's hook: the private names that this package uses, and why.

The provider waits for each job in its own way, and does not expose the submission target or the command. These names
are private, so a provider release may change them: `pyproject.toml` bounds its version, and a test fails if one of them
disappears.

| of | name | why |
|---|---|---|
| hook | `_connection` | holds master, deploy mode, namespace and binary, resolved from arguments and connection |
| hook | `_build_spark_submit_command` | starts a job without waiting, in a separate session |
| hook | `_process_spark_submit_log` | only this method sees the output, with the job's summary and last error |
| hook | `_yarn_application_id` | the id by which YARN ends a job that no process waits for |
| hook | `_kubernetes_driver_pod` | the pod by which Kubernetes ends such a job |
| hook | `_spark_exit_code` | unset, it makes a submission to Kubernetes without waiting count as failed |
| hook | `_submit_sp` | its exit code shows whether leases were lost or a user must act |
| operator | `_get_hook` | makes the hook; the needs of a try's job are added to its arguments |
| operator | `_hook` | keeps the hook; the operator makes one only if it is None |
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_coordination.airflow_names import AirflowFailException, accepted
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.job_resources import MISSING

HOOK_ATTRIBUTES = (
    "_build_spark_submit_command",
    "_connection",
    "_kubernetes_driver_pod",
    "_process_spark_submit_log",
    "_spark_exit_code",
    "_submit_sp",
    "_yarn_application_id",
)
KILL_TIMEOUT_SECONDS = 60
"""How long a task waits for the cluster manager to end a job."""
KILLED_BY_SIGNAL = 128
"""The exit codes of a JVM that a signal ended begin here; then spark-submit did not see the end of the application."""
APPLICATION_ID = re.compile(r"application_\d+_\d+")
YARN_CLIENT = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
"""What the command `yarn` runs for applications. It is among the jars of Spark, and `yarn` is not."""
NAMESPACED_POD = re.compile(r"[a-z0-9][a-z0-9.-]*:[a-z0-9][a-z0-9.-]*")
DEFAULT_NAMESPACE = "default"
"""Spark's default Kubernetes namespace."""
OPERATOR_ATTRIBUTES = ("_get_hook", "_hook")
NOT_FOLLOWED = accepted(SparkSubmitOperator, {"track_driver_via_k8s_api": False, "yarn_track_via_rm_api": False})
"""Operator arguments of a job that no process waits for: the store shows its state, on every cluster manager."""


@dataclass(frozen=True, kw_only=True)
class SubmissionTarget:
    """The cluster manager and deploy mode that a hook submits to.

    :param master: Spark's master URL.
    :param deploy_mode: `client`, `cluster`, or None for Spark's default, which is `client`.
    :param namespace: the Kubernetes namespace.
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
    def is_on_this_machine(self) -> bool:
        """Whether the driver runs on this machine, with the Spark and the Python of this machine."""
        return not (self.is_in_cluster or self.is_yarn or self.is_kubernetes)

    def check(self) -> None:
        """Check that the cluster manager can run a job.

        :raises ConfigurationError: if it cannot.
        """
        if self.is_in_cluster and not (self.is_yarn or self.is_kubernetes):
            raise ConfigurationError(
                f"field 'deploy_mode' is 'cluster' with master {self.master!r}, but Spark runs Python drivers in "
                "cluster mode only on YARN and Kubernetes; use 'client'"
            )

    def conf_starting_once(self, conf: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """Return Spark's configuration that makes the cluster manager start the driver once: settings serve one driver.

        :param conf: the configuration of the task.
        """
        once = {"spark.yarn.maxAppAttempts": "1"} if self.is_in_cluster and self.is_yarn else {}
        return {**once, **(conf or {})}

    def check_waits(self, conf: Mapping[Any, Any] | None) -> None:
        """Check that spark-submit waits for the end of the job, as the task does.

        :param conf: the configuration of the task.
        :raises ConfigurationError: if it does not wait.
        """
        if self.is_in_cluster and str((conf or {}).get(self._wait_option, "true")).strip().lower() != "true":
            raise ConfigurationError(
                f"field 'conf': {self._wait_option!r} must be true, or left out; to submit without waiting, give "
                "deferrable=True"
            )

    @property
    def _wait_option(self) -> str:
        return f"spark.{'yarn.submit' if self.is_yarn else 'kubernetes.submission'}.waitAppCompletion"

    def conf_without_waiting(self, conf: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """Return Spark's configuration that makes spark-submit return once the cluster has accepted the job.

        :param conf: the configuration of the task.
        :raises ConfigurationError: if `conf` requests waiting.
        """
        conf = dict(conf or {})
        if not self.is_in_cluster:
            return conf
        option = self._wait_option
        if str(conf.get(option, "false")).strip().lower() != "false":
            raise ConfigurationError(f"field 'conf': {option!r} must be false, or left out, with deferrable=True")
        return {**conf, option: "false"}


def submission_target(hook: SparkSubmitHook) -> SubmissionTarget:
    """Return the submission target of a hook."""
    connection = hook._connection
    return SubmissionTarget(
        master=connection["master"],
        deploy_mode=connection["deploy_mode"],
        namespace=connection["namespace"] or DEFAULT_NAMESPACE,
    )


def watch_output(hook: SparkSubmitHook, watched: Callable[[Iterator[str]], Iterator[str]]) -> None:
    """Pass every line that spark-submit writes through `watched` before the hook handles it."""
    process = hook._process_spark_submit_log
    hook._process_spark_submit_log = lambda itr: process(watched(itr))  # type: ignore[method-assign]


def when_submitted(hook: SparkSubmitHook, submitted: Callable[[str], None]) -> None:
    """Call `submitted` once with the name of the driver's pod, as soon as spark-submit reports it."""
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


def before_submitting(hook: SparkSubmitHook, submitting: Callable[[str], str]) -> None:
    """Call `submitting` with the application right before a hook submits; the hook submits what it returns."""
    submit = hook.submit

    def submit_then(application: str = "", **kwargs: Any) -> Any:
        return submit(submitting(application), **kwargs)

    hook.submit = submit_then  # type: ignore[method-assign]


def exit_code_of(hook: SparkSubmitHook | None) -> int | None:
    """Return the exit code of the spark-submit that a hook started; None if it has none yet."""
    process = None if hook is None else hook._submit_sp
    return None if process is None else process.returncode


def submit_command(hook: SparkSubmitHook, application: str) -> list[str]:
    """Return the command that submits an application."""
    return hook._build_spark_submit_command(application)


def submit_without_waiting(hook: SparkSubmitHook, target: SubmissionTarget, application: str) -> str | None:
    """Submit an application to a cluster, and return once the cluster has accepted it.

    :param hook: a hook made with the result of `SubmissionTarget.conf_without_waiting`.
    :returns: the id by which the cluster manager ends the job: an application id, or namespace and driver pod. None if
        spark-submit did not report it, as with a log level above INFO.
    """
    if target.is_kubernetes:
        hook._spark_exit_code = 0  # the hook would read it from the driver's end, which it does not wait for
    SparkSubmitHook.submit(hook, application)
    if target.is_yarn:
        return hook._yarn_application_id
    pod = hook._kubernetes_driver_pod
    return None if pod is None else f"{target.namespace}:{pod}"


def kill_command(hook: SparkSubmitHook, cluster_id: str) -> list[str]:
    """Return the command that ends a job in a cluster; it needs nothing that spark-submit does not need.

    :param hook: a hook made as for the job's submission.
    :param cluster_id: the id that `submit_without_waiting` returned.
    :raises ConfigurationError: if the id is not one of the cluster manager that the hook submits to.
    """
    target = submission_target(hook)
    if target.is_yarn and APPLICATION_ID.fullmatch(cluster_id):
        return ["spark-class", YARN_CLIENT, "application", "-kill", cluster_id]
    if target.is_kubernetes and NAMESPACED_POD.fullmatch(cluster_id):
        return [*hook._connection["spark_binary"].split(), "--master", target.master, "--kill", cluster_id]
    raise ConfigurationError(
        f"job {cluster_id!r} is not a job of master {target.master!r}; end it with the cluster manager that runs it"
    )


def end_in_cluster(
    hook: SparkSubmitHook, cluster_id: str, env_vars: Mapping[str, Any] | None
) -> subprocess.CompletedProcess[str]:
    """End a job in a cluster; return the command that did so, with its output.

    :param hook: a hook made as for the job's submission.
    :param cluster_id: the id that `submit_without_waiting` returned.
    :param env_vars: the environment variables of the job's task.
    :raises ConfigurationError: if the id is not one of the cluster manager that the hook submits to.
    :raises OSError: if Spark is not installed here.
    :raises subprocess.SubprocessError: if the cluster manager did not end the job.
    """
    return subprocess.run(
        kill_command(hook, cluster_id),
        env=os.environ | {name: str(value) for name, value in (env_vars or {}).items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=KILL_TIMEOUT_SECONDS,
        check=True,
    )


def application_to_end(hook: SparkSubmitHook, env_vars: Mapping[str, Any] | None) -> str | None:
    """Return the id of the YARN application that a hook waits for, if it may still run and the hook would not end it.

    The hook ends it by YARN's REST API, or by the command `yarn` while spark-submit runs. Without that command it would
    fail, so its id is removed from it.

    :param env_vars: the environment variables of the job's task.
    """
    process, application = hook._submit_sp, hook._yarn_application_id
    if process is None or application is None or getattr(hook, "_yarn_track_via_rm_api", False):
        return None
    code = process.poll()
    if code is None and shutil.which("yarn", path=(env_vars or {}).get("PATH")):
        return None
    hook._yarn_application_id = None
    has_ended = code is not None and 0 <= code < KILLED_BY_SIGNAL
    return None if has_ended else application


def plain_hook(get_hook: Callable[[], SparkSubmitHook]) -> SparkSubmitHook:
    """Return the provider's hook.

    :param get_hook: the provider's function.
    :raises AirflowFailException: if it needs the Kubernetes provider, and that is not installed.
    """
    try:
        return get_hook()
    except NameError as error:  # the Spark provider raises it then
        if error.name == "kube_client":
            raise AirflowFailException(MISSING) from None
        raise
