"""The checks of `airflow-coordination doctor`: connections, software, the store, AWS permissions, folders of outputs.

Each check yields findings. The checks of a path in a bucket have their own module.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from airflow_provider_coordination import __version__
from airflow_provider_coordination.aws import AwsSettings, Permission, Proof, aws_client, aws_session, prove
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kind import StoreReport
from airflow_provider_coordination.stores.redaction import without_likely_secrets, without_secrets
from airflow_provider_coordination.versions import (
    INSTALL_SPARK,
    JAVA_REMEDY,
    find_installation,
    find_java,
    incompatibilities,
    untested_airflow,
)


class CheckStatus(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNCHECKED = "not checked"


@dataclass(frozen=True)
class Finding:
    """One line of a diagnosis.

    :param status: the result of the check.
    :param topic: the topic in one word, such as `store`.
    :param text: what was found; holds no secret.
    :param remedy: what to do about it; empty if nothing.
    """

    status: CheckStatus
    topic: str
    text: str
    remedy: str = ""


def ok(topic: str, text: str) -> Finding:
    """Return the finding that a check succeeded."""
    return Finding(CheckStatus.OK, topic, text)


def warning(topic: str, text: str, remedy: str) -> Finding:
    """Return the finding of a possible problem."""
    return Finding(CheckStatus.WARNING, topic, text, remedy)


def error(topic: str, text: str, remedy: str = "") -> Finding:
    """Return the finding of an error. A text that names the remedy needs no separate one."""
    return Finding(CheckStatus.ERROR, topic, text, remedy)


def unchecked(topic: str, text: str, remedy: str = "") -> Finding:
    """Return the finding that a check was not possible, or not without side effects."""
    return Finding(CheckStatus.UNCHECKED, topic, text, remedy)


MAX_ATTEMPTS = 2
CREDENTIALS_REMEDY = "give the AWS connection keys or a role, or set the AWS SDK's environment variables"


def permission_findings(settings: AwsSettings, permissions: Sequence[Permission]) -> Iterator[Finding]:
    """Yield the identity of the credentials, and which of the permissions they have.

    :param settings: the endpoint and the credentials.
    """
    identity = _Identity(settings)
    yield identity.finding()
    for permission in permissions:
        proof, message = (Proof.UNKNOWN, "no call can check it without side effects")
        if permission.call is not None:
            proof, message = prove(permission.call)
        if proof is Proof.UNKNOWN and permission.resource.startswith("arn:"):
            proof, message = identity.simulate(permission, message)
        yield _finding(permission, proof, message)


def _finding(permission: Permission, proof: Proof, message: str) -> Finding:
    what = f"{permission.action} on {permission.resource}"
    if proof is Proof.ALLOWED:
        return ok("permission", what)
    if proof is Proof.UNKNOWN:
        return unchecked("permission", f"{what}: {_first_line(message)}")
    remedy = f"allow {permission.action} in the policy of these credentials"
    return (error if permission.is_needed else warning)("permission", f"{what} is denied", remedy)


class _Identity:
    """The identity of the credentials, and the simulation of its policies."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        # STS and IAM have other endpoints than the service.
        self._aws_settings = replace(settings, endpoint_url=None, max_attempts=MAX_ATTEMPTS)
        self.arn: str | None = None

    def finding(self) -> Finding:
        """Return the finding for the identity of the credentials."""
        from botocore.exceptions import BotoCoreError

        try:
            if aws_session(self._settings).get_credentials() is None:
                return error("credentials", "no AWS credentials were found", CREDENTIALS_REMEDY)
        except BotoCoreError as failure:
            return error("credentials", _first_line(str(failure)), CREDENTIALS_REMEDY)
        if self._settings.endpoint_url and not self._uses_sts:
            return unchecked("credentials", f"the identity is unknown: requests go to {self._settings.endpoint_url}")
        proof, message = prove(self._read_identity)
        if proof is Proof.DENIED:
            return error("credentials", f"AWS refuses the credentials: {_first_line(message)}", CREDENTIALS_REMEDY)
        if self.arn is None:
            return unchecked("credentials", f"the identity is unknown: {_first_line(message) or 'AWS gave no reason'}")
        return ok("credentials", self.arn)

    @property
    def _uses_sts(self) -> bool:
        return bool(self._settings.role_arn)

    def _read_identity(self) -> None:
        self.arn = str(aws_client(self._aws_settings, "sts").get_caller_identity()["Arn"])

    def simulate(self, permission: Permission, reason: str) -> tuple[Proof, str]:
        """Return whether the policies allow an action. Needs `iam:SimulatePrincipalPolicy`.

        :param reason: the reason to return if the simulation is not possible.
        """
        if self.arn is None:
            return Proof.UNKNOWN, reason
        decisions: list[str] = []
        proof, _ = prove(lambda: decisions.append(self._decision(permission)))
        if proof is not Proof.ALLOWED or not decisions:
            return Proof.UNKNOWN, f"{reason}, and these credentials lack iam:SimulatePrincipalPolicy"
        return (Proof.ALLOWED if decisions == ["allowed"] else Proof.DENIED), ""

    def _decision(self, permission: Permission) -> str:
        response: Any = self._iam().simulate_principal_policy(
            PolicySourceArn=_policy_source(self.arn or ""),
            ActionNames=[permission.action],
            ResourceArns=[permission.resource],
        )
        return str(response["EvaluationResults"][0]["EvalDecision"])

    def _iam(self) -> Any:
        return _cached(self._aws_settings, aws_client)


@cache
def _cached(settings: AwsSettings, make: Callable[..., Any]) -> Any:
    return make(settings, "iam")


def _policy_source(arn: str) -> str:
    """Return the ARN of the role if the identity is the session of an assumed role, otherwise the ARN itself."""
    found = re.match(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/", arn)
    return arn if found is None else f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}"


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")


def spark_finding(conn_id: str) -> Finding:
    """Return the finding for the connection that submits jobs."""
    name = f"connection {conn_id!r}"
    try:
        from airflow_provider_coordination.hooks.connections import airflow_connection

        connection = airflow_connection(conn_id, name, "create it with type 'spark'")
    except ConfigurationError as failure:
        return warning("connection", str(failure), "without it, jobs are submitted to YARN")
    except Exception as failure:  # Airflow or its database is missing; the text of the error may hold a secret
        return unchecked("connection", f"{name} cannot be looked up: {type(failure).__name__}")
    port = f":{connection.port}" if connection.port else ""
    mode = connection.extra_dejson.get("deploy-mode") or "client"
    return ok("connection", f"{name}: {connection.host or connection.conn_type}{port}, deploy mode {mode}")


AIRFLOW_PACKAGES = ("apache-airflow", "apache-airflow-providers-apache-spark", "apache-airflow-providers-amazon")


def software_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the versions that were found, and those that do not match.

    :param environment: the environment variables with which jobs are started.
    """
    yield from _package_findings()
    installation = find_installation(environment)
    problems = incompatibilities(installation)
    if not problems:
        yield ok("versions", str(installation))
    for misfit in problems:
        yield (error if misfit.is_fatal else warning)("versions", misfit.problem, misfit.remedy)
    if installation.spark_home is None:
        yield warning("versions", "Spark is not installed on this machine", f"set SPARK_HOME, or {INSTALL_SPARK}")
    yield _java_finding(environment, installation.spark)


def _package_findings() -> Iterator[Finding]:
    versions = {"airflow-provider-coordination": __version__}
    for name in AIRFLOW_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield unchecked("versions", f"{name} is not installed here")
    yield ok("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))
    if (airflow := versions.get("apache-airflow")) and (misfit := untested_airflow(airflow)):
        yield warning("versions", misfit.problem, misfit.remedy)


def _java_finding(environment: Mapping[str, str], spark: str | None) -> Finding:
    try:
        java = find_java(environment, spark)
    except ConfigurationError as failure:
        return error("java", str(failure), JAVA_REMEDY)
    return ok("java", f"Java {java.version} in {java.path}")


def output_findings(path: str, access: Access = DEFAULT_ACCESS) -> Iterator[Finding]:
    """Yield whether a path can be written. The files of the check are deleted.

    :param path: a path or URI.
    :param access: the AWS settings, for a path on S3.
    """
    from airflow_provider_coordination.spark.storage import (
        PROBES,
        absolute,
        delete_file,
        join,
        new_probe,
        publish,
        read_text,
        remove_if_empty,
        write_text,
    )

    root = absolute(path)
    existed = "://" in root or Path(root).exists()
    name = secrets.token_hex(8)
    probe, renamed = new_probe(root), new_probe(root)
    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("write", lambda: write_text(probe, name, access)),
        ("read", lambda: _same(read_text(probe, access), name)),
        ("rename", lambda: publish(probe, renamed, access=access)),
        ("delete", lambda: delete_file(renamed, access)),
    )
    try:
        for step, run in steps:
            try:
                run()
            except (CoordinationError, OSError, ValueError) as failure:
                message = without_likely_secrets(" ".join(str(failure).split()))
                remedy = "grant write access to the user that runs Spark's driver, or use another path"
                yield error("output", f"{path}: cannot {step} a file: {message}", remedy)
                return
    finally:
        for left in (probe, renamed):
            with suppress(CoordinationError, OSError, ValueError):
                delete_file(left, access)
        with suppress(OSError, CoordinationError, ValueError):
            remove_if_empty(join(root, PROBES), access)
        if not existed:
            with suppress(OSError):
                Path(root).rmdir()
    yield ok("output", f"{path}: a file can be written, read, renamed and deleted from this machine")


def _same(read: str, written: str) -> None:
    if read != written:
        raise OSError("its content differs from what was written")


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
            kind = settings.loaded_kind
            if (report := kind.report(opened, now)) is None:
                yield unchecked("store", f"stores of kind {settings.kind!r} do not report their status")
                return
            yield from _report_findings(report, margin)
            if (needed := kind.permissions(opened)) is not None:
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
