"""How the library of Delta tables reaches a place: options made of an AWS connection. They hold secrets."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_coordination.aws import AwsSettings, aws_session
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.access import Access, is_s3


def storage_options(uri: str, access: Access) -> Callable[[], dict[str, str]]:
    """Return what makes the options by which a table is opened, whenever it is: credentials may expire.

    :param uri: the table's folder.
    :param access: how S3 is reached.
    """
    if not is_s3(uri):
        return dict
    aws = access.of(uri) or AwsSettings()
    session = aws_session(aws)
    credentials = session.get_credentials()
    if credentials is None:
        raise ConfigurationError(
            f"table {uri}: no connection holds keys for it, and the AWS SDK finds none where the job runs; name one in "
            "'aws_conn_id' of DeltaTable, or give this machine an instance role"
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
            "AWS_CONDITIONAL_PUT": "etag",  # who writes a version first has it
        }
        return {name: value for name, value in options.items() if value}

    return present
