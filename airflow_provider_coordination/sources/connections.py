"""The connections that a source names, and what resolves them: Airflow, in a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from airflow_provider_coordination.aws import AwsSettings


@dataclass(frozen=True, kw_only=True)
class ConnectionValues:
    """The fields of an Airflow connection; None for empty ones.

    :param password: never shown.
    :param extra: never shown.
    """

    conn_type: str | None = None
    host: str | None = None
    port: int | None = None
    schema: str | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


class ConnectionResolver(Protocol):
    """Resolves the connections that a source names; see `hooks.connections.AirflowConnections`."""

    def aws(self, conn_id: str | None, region_name: str | None, service: str) -> AwsSettings:
        """Return the settings of an AWS service.

        :param conn_id: the AWS connection; None for the AWS default credential chain.
        :param region_name: overrides the region of the connection.
        :param service: the name of the service in boto3, such as `s3`.
        :raises ConfigurationError: if no region is known, or a setting of the connection is not portable.
        """
        ...

    def values(self, conn_id: str, name: str) -> ConnectionValues:
        """Return the fields of a connection.

        :param name: how error messages name it, such as `connection 'search'`.
        :raises ConfigurationError: if it is not defined, or cannot be read.
        """
        ...

    def from_python(self, conn_id: str) -> Callable[[], Any] | None:
        """Return what opens a connection to a database, as PEP 249 describes it; None if no provider is installed."""
        ...
