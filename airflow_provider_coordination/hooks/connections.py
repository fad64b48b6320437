"""Airflow's connections, also as portable settings: what a Spark driver needs to create the same client elsewhere.

Airflow skips a connection that it cannot read, and reports that there is none. This module gives the reason.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow.sdk import BaseHook, Connection

from airflow_provider_coordination.airflow_names import AirflowException, AirflowNotFoundException
from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.connections import ConnectionResolver, ConnectionValues

FIELDS = ("conn_type", "description", "login", "password", "host", "port", "schema", "extra")


def airflow_connection(conn_id: str, name: str, remedy: str) -> Connection:
    """Return a connection.

    :param name: how error messages name it, such as `connection 'x'`.
    :param remedy: what to do if it is not defined, such as `create it`.
    :raises ConfigurationError: if it is not defined, or the environment variable that defines it cannot be read.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        check_readable(conn_id, name)
        raise ConfigurationError(f"{name} is not defined; {remedy}") from None
    if not connection.conn_type:
        check_readable(conn_id, name)
    return connection


def check_readable(conn_id: str, name: str) -> None:
    """Check that the environment variable of a connection, if there is one, is a JSON object or a URI.

    :param name: how error messages name the connection.
    :raises ConfigurationError: naming the variable and the error, but nothing of its value, which may hold a password.
    """
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    value = os.environ.get(variable)
    if value is None:
        return
    error = _value_error(value.strip(), conn_id)
    if error is not None:
        raise ConfigurationError(
            f"{name}: the environment variable {variable} {error}; give a JSON object such as "
            '{"conn_type": "…", "login": "…", "password": "…", "extra": {…}}, or a URI'
        )


def _value_error(value: str, conn_id: str) -> str | None:
    if not value:
        return "is empty"
    if not value.startswith("{"):
        if "://" not in value:
            return "is neither a JSON object nor a URI"
        try:
            extra = Connection.from_uri(value, conn_id).extra
        except Exception:  # any error of Airflow: its text may quote a password
            return "is not a URI that Airflow can read"
        return _extra_error(extra)
    try:
        fields = json.loads(value)
    except ValueError as error:
        position = f": {error.msg}, at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        return f"is not JSON{position}"
    for field in fields:
        if field not in FIELDS:
            return f"has the unknown field {field!r}; the known fields are {', '.join(FIELDS)}"
    if fields.get("port") and not str(fields["port"]).isdecimal():
        return "has a 'port' that is not a whole number"
    return _extra_error(fields.get("extra"))


def _extra_error(extra: object) -> str | None:
    try:
        values = json.loads(extra) if isinstance(extra, str) and extra else extra or {}
    except ValueError:
        return "has an 'extra' that is not JSON"
    return None if isinstance(values, dict) else "has an 'extra' that is not a JSON object"


@dataclass(frozen=True)
class AirflowConnections(ConnectionResolver):
    """Resolves what a source names by Airflow's connections; see `sources.connections.ConnectionResolver`.

    :param default_region: the AWS region to use if nothing else names one.
    """

    default_region: str | None = None

    @override
    def aws(self, conn_id: str | None, region_name: str | None, service: str) -> AwsSettings:
        return aws_settings(conn_id, region_name, service=service, default_region=self.default_region)

    @override
    def values(self, conn_id: str, name: str) -> ConnectionValues:
        connection = airflow_connection(conn_id, name, "create it")
        try:
            extra = connection.extra_dejson
        except ValueError as error:
            raise ConfigurationError(f"{name}: its extra is not JSON: {error}") from None
        return ConnectionValues(
            conn_type=connection.conn_type or None,
            host=connection.host or None,
            port=connection.port,
            schema=connection.schema or None,
            login=connection.login or None,
            password=connection.password or None,
            extra=extra,
        )

    @override
    def from_python(self, conn_id: str) -> Callable[[], Any] | None:
        try:
            hook: Any = airflow_connection(conn_id, f"connection {conn_id!r}", "create it").get_hook()  # type: ignore[no-untyped-call]
        except (AirflowException, ImportError):  # the provider of this type is not installed
            return None
        return hook.get_conn if hasattr(hook, "get_records") else None


def aws_settings(
    aws_conn_id: str | None, region_name: str | None = None, *, service: str, default_region: str | None = None
) -> AwsSettings:
    """Return the settings of an AWS service from an AWS connection.

    They include its keys, `role_arn` with `assume_role_kwargs.ExternalId`, `region_name`, `endpoint_url` (from
    `service_config.<service>` first), and the number of attempts from `config_kwargs.retries`. Keys are only included
    if the connection holds them. Otherwise every process uses the AWS default credential chain on its own machine. A
    connection that is not defined counts as empty, as in the Amazon provider.

    :param aws_conn_id: the connection; None for the AWS default credential chain everywhere.
    :param region_name: overrides the region of the connection.
    :param service: the name of the service in boto3, such as `kinesis`.
    :param default_region: the region if neither of them names one.
    :raises ConfigurationError: if there is no region, or a setting of the connection is not portable.
    """
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    name = f"AWS connection {aws_conn_id!r}"
    try:
        hook: AwsGenericHook[Any] = AwsGenericHook(
            aws_conn_id=aws_conn_id or None, region_name=region_name or None, client_type=service
        )
        connection = hook.conn_config
        if aws_conn_id and not isinstance(connection.conn_id, str):  # not found, possibly because it is malformed
            check_readable(aws_conn_id, name)
        endpoint_url = connection.get_service_endpoint_url(service)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}: {error}; check its extra") from None
    if connection.profile_name:
        raise ConfigurationError(
            f"{name}: 'profile_name' {connection.profile_name!r} refers to files of one machine; remove it "
            "and set AWS_PROFILE where tasks and Spark run, or give keys or a role_arn"
        )
    if connection.role_arn and connection.assume_role_method not in (None, "assume_role"):
        raise ConfigurationError(
            f"{name}: 'assume_role_method' {connection.assume_role_method!r} is not supported; use 'assume_role'"
        )
    region = connection.region_name or default_region
    if not region:
        undefined = "" if aws_conn_id is None or isinstance(connection.conn_id, str) else "it is not defined, and "
        raise ConfigurationError(
            f"{name}: {undefined}no region is known; set region_name in the task, 'region_name' in the extra of the "
            "AWS connection, or 'region' in the coordination connection"
        )
    assuming = connection.assume_role_kwargs if connection.role_arn else {}
    try:
        return AwsSettings(
            region=region,
            endpoint_url=endpoint_url or None,
            role_arn=connection.role_arn or None,
            external_id=assuming.get("ExternalId") or None,
            role_session_name=assuming.get("RoleSessionName") or None,
            access_key_id=connection.aws_access_key_id or None,
            secret_access_key=connection.aws_secret_access_key or None,
            session_token=connection.aws_session_token or None,
            **_attempts(connection.botocore_config),
        )
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _attempts(config: Any) -> dict[str, int]:
    """Return the maximum number of attempts of a call, if a botocore configuration sets it."""
    retries = (config.retries if config is not None else None) or {}
    if "total_max_attempts" in retries:
        return {"max_attempts": retries["total_max_attempts"]}
    return {"max_attempts": retries["max_attempts"] + 1} if "max_attempts" in retries else {}
