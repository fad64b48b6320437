"""Credentials of AWS, and the permissions that the documentation names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from airflow_provider_coordination.aws import AwsSettings, aws_client, aws_session
from airflow_provider_coordination.diagnosis.findings import Finding, error, ok, unchecked, warning
from airflow_provider_coordination.permissions import Permission, Proof, prove

TRIES = 2
CREDENTIALS_REMEDY = "give the AWS connection keys or a role, or set the SDK's environment variables"


def permission_findings(settings: AwsSettings, permissions: Sequence[Permission]) -> Iterator[Finding]:
    """Yield who asks, and which of the permissions are there.

    :param settings: where the service is and who asks.
    """
    identity = _Identity(settings)
    yield identity.finding()
    for permission in permissions:
        proof, said = (Proof.UNKNOWN, "no call proves it without doing harm")
        if permission.call is not None:
            proof, said = prove(permission.call)
        if proof is Proof.UNKNOWN and permission.resource.startswith("arn:"):
            proof, said = identity.simulated(permission, said)
        yield _finding(permission, proof, said)


def _finding(permission: Permission, proof: Proof, said: str) -> Finding:
    what = f"{permission.action} on {permission.resource}"
    if proof is Proof.ALLOWED:
        return ok("permission", what)
    if proof is Proof.UNKNOWN:
        return unchecked("permission", f"{what}: {_first_line(said)}")
    remedy = f"allow {permission.action} in the policy of these credentials"
    return (error if permission.is_needed else warning)("permission", f"{what} is denied", remedy)


class _Identity:
    """Who asks, as AWS names it, and what AWS says of their policies."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        # Another place for the service is none for those of AWS that tell of accounts.
        self._elsewhere = replace(settings, endpoint_url=None, max_attempts=TRIES)
        self.arn: str | None = None

    def finding(self) -> Finding:
        """Ask AWS who the credentials belong to."""
        from botocore.exceptions import BotoCoreError

        try:
            if aws_session(self._settings).get_credentials() is None:
                return error("credentials", "there are no AWS credentials", CREDENTIALS_REMEDY)
        except BotoCoreError as failure:
            return error("credentials", _first_line(str(failure)), CREDENTIALS_REMEDY)
        if self._settings.endpoint_url and not self._asks_sts:
            return unchecked("credentials", f"whose they are: calls go to {self._settings.endpoint_url}")
        proof, said = prove(self._ask)
        if proof is Proof.DENIED:
            return error("credentials", f"AWS refuses the credentials: {_first_line(said)}", CREDENTIALS_REMEDY)
        if self.arn is None:
            return unchecked("credentials", f"whose they are: {_first_line(said) or 'AWS did not say'}")
        return ok("credentials", self.arn)

    @property
    def _asks_sts(self) -> bool:
        return bool(self._settings.role_arn)

    def _ask(self) -> None:
        self.arn = str(aws_client(self._elsewhere, "sts").get_caller_identity()["Arn"])

    def simulated(self, permission: Permission, otherwise: str) -> tuple[Proof, str]:
        """Ask AWS whether the policies allow an action, which needs `iam:SimulatePrincipalPolicy`.

        :param otherwise: what to say if AWS does not.
        """
        if self.arn is None:
            return Proof.UNKNOWN, otherwise
        decisions: list[str] = []
        proof, _ = prove(lambda: decisions.append(self._decision(permission)))
        if proof is not Proof.ALLOWED or not decisions:
            return Proof.UNKNOWN, f"{otherwise}, and these credentials may not ask iam:SimulatePrincipalPolicy"
        return (Proof.ALLOWED if decisions == ["allowed"] else Proof.DENIED), ""

    def _decision(self, permission: Permission) -> str:
        answer: Any = self._iam().simulate_principal_policy(
            PolicySourceArn=_policy_source(self.arn or ""),
            ActionNames=[permission.action],
            ResourceArns=[permission.resource],
        )
        return str(answer["EvaluationResults"][0]["EvalDecision"])

    def _iam(self) -> Any:
        return _cached(self._elsewhere, aws_client)


@cache
def _cached(settings: AwsSettings, make: Callable[..., Any]) -> Any:
    return make(settings, "iam")


def _policy_source(arn: str) -> str:
    """Return the role of a session that assumed it; others are their own."""
    found = re.match(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/", arn)
    return arn if found is None else f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}"


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
