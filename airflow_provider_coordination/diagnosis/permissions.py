"""Checks of the AWS credentials and of the permissions that the manual lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from airflow_provider_coordination.aws import AwsSettings, aws_client, aws_session
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.permissions import Permission, Proof, prove

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
