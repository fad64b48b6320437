"""The options by which the Delta library reaches a table, made from an AWS connection. They hold secrets."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_coordination.aws import AwsSettings, aws_session
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import Access, is_s3


def storage_options(uri: str, access: Access) -> Callable[[], dict[str, str]]:
    """Return a function that makes the options each time a table is opened, since credentials may expire.

    :param uri: the folder of the table.
    :param access: how to reach S3.
    :raises ConfigurationError: if there are no credentials for S3.
    """
    if not is_s3(uri):
        return dict
    aws = access.of(uri) or AwsSettings()
    session = aws_session(aws)
    credentials = session.get_credentials()
    if credentials is None:
        raise ConfigurationError(
            f"table {uri}: no connection has credentials for it, and the AWS SDK finds none where the job runs; name a "
            "connection in 'aws_conn_id' of DeltaTable, or give this machine an instance role"
        )

    def present() -> dict[str, str]:
        frozen = credentials.get_frozen_credentials()  # fetches them again if they are about to expire
        options = {
            "AWS_ACCESS_KEY_ID": frozen.access_key,
            "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
            "AWS_SESSION_TOKEN": frozen.token,
            "AWS_REGION": aws.region or session.region_name,
            "AWS_ENDPOINT_URL": aws.endpoint_url,
            "AWS_ALLOW_HTTP": "true" if (aws.endpoint_url or "").startswith("http://") else None,
            "AWS_CONDITIONAL_PUT": "etag",  # only the first writer can create a version
        }
        return {name: value for name, value in options.items() if value}

    return present
