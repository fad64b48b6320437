"""AWS connections as settings that travel: what a Spark driver needs to make the same client elsewhere."""

from __future__ import annotations

from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import check_readable


def aws_settings(
    aws_conn_id: str | None, region_name: str | None = None, *, service: str, default_region: str | None = None
) -> AwsSettings:
    """Return how to reach a service by an AWS connection.

    Taken from it are its keys, `role_arn` with `assume_role_kwargs.ExternalId`, `region_name`, `endpoint_url` (that
    of `service_config.<service>` first), and how often a call is made, from `config_kwargs.retries`. Keys travel only
    if the connection holds them: without, every process asks the AWS SDK's default chain on its own machine. A
    connection that is not defined counts as empty, as in the Amazon provider.

    :param aws_conn_id: the connection; None for the default chain everywhere.
    :param region_name: wins over the connection's region.
    :param service: as boto3 calls it, such as `kinesis`.
    :param default_region: where neither names one.
    :raises ConfigurationError: if there is no region, or the connection holds what cannot travel.
    """
    from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook

    name = f"AWS connection {aws_conn_id!r}"
    try:
        hook: AwsGenericHook[Any] = AwsGenericHook(
            aws_conn_id=aws_conn_id or None, region_name=region_name or None, client_type=service
        )
        connection = hook.conn_config
        if aws_conn_id and not isinstance(connection.conn_id, str):  # not found, which may be a slip of the pen
            check_readable(aws_conn_id, name)
        endpoint_url = connection.get_service_endpoint_url(service)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}: {error}; check its extra") from None
    if connection.profile_name:
        raise ConfigurationError(
            f"{name}: 'profile_name' {connection.profile_name!r} lies in files of one machine; remove it "
            "and set AWS_PROFILE where tasks and Spark run, or give keys or a role_arn"
        )
    if connection.role_arn and connection.assume_role_method not in (None, "assume_role"):
        raise ConfigurationError(
            f"{name}: 'assume_role_method' {connection.assume_role_method!r} cannot travel; use 'assume_role'"
        )
    region = connection.region_name or default_region
    if not region:
        known = "" if aws_conn_id is None or isinstance(connection.conn_id, str) else "it is not defined, and "
        raise ConfigurationError(
            f"{name}: {known}no region is known; give the task region_name, 'region_name' in the extra of the "
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
    """Return how often a call is made at most, if a botocore configuration says so."""
    retries = (config.retries if config is not None else None) or {}
    if "total_max_attempts" in retries:
        return {"max_attempts": retries["total_max_attempts"]}
    return {"max_attempts": retries["max_attempts"] + 1} if "max_attempts" in retries else {}
