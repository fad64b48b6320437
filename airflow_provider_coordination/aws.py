"""How to reach an AWS service: serializable settings, the clients made from them, and a harmless test of permissions.

boto3 is imported only when a client is made, so that code without AWS calls runs without it.

A call without permission is refused before AWS checks anything else. So a call that cannot succeed, such as a write
whose condition never holds, proves its permission by the error that it returns.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_provider_coordination.coordination.errors import ConfigurationError

if TYPE_CHECKING:
    import boto3
    import botocore.session
    from botocore.credentials import Credentials
    from botocore.loaders import Loader


CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 30.0
CONNECTIONS_PER_CLIENT = 50
"""One client serves the threads of a whole process."""

ACCESS_CODES = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""The error codes of any service if the credentials are refused, or do not allow the call."""
NAME_CREDENTIALS = (
    "name an AWS connection in 'aws_conn_id', or provide credentials in the AWS default credential chain (environment, "
    "shared file, instance role)"
)
"""The remedy if a task finds no credentials for an AWS service."""
CLOCK_CODES = frozenset(
    {
        "InvalidSignatureException",
        "RequestExpired",
        "RequestInTheFuture",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
    }
)
"""The error codes of a service if the time of a signature differs from its own, among other causes."""
CLOCK_DIFFERENCE = timedelta(minutes=4)
"""From this difference on, the clock may cause a refusal: most services allow 5 minutes, S3 allows 15."""


@dataclass(frozen=True, kw_only=True)
class AwsSettings:
    """The endpoint of a service, and the credentials.

    The AWS SDK finds missing values with its default credential chain (environment, shared files, instance role).

    :param region: the region, such as `eu-west-1`.
    :param endpoint_url: an alternative endpoint, such as a local server.
    :param role_arn: a role to assume; its credentials are renewed before they expire.
    :param external_id: the external id, if the role's trust policy requires one.
    :param role_session_name: the session name of the assumed role in AWS logs; by default botocore generates one.
    :param access_key_id: with `secret_access_key`, the credentials.
    :param secret_access_key: never shown.
    :param session_token: for temporary credentials; never shown.
    :param max_attempts: the maximum number of attempts of a call, including the first one, before a throttled or
        transient error surfaces; waits between them grow exponentially with jitter, up to 20 seconds.
    :raises ConfigurationError: if a field is invalid.
    """

    region: str | None = None
    endpoint_url: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    max_attempts: int = 10
    role_session_name: str | None = None

    def __post_init__(self) -> None:
        if self.endpoint_url and not self.endpoint_url.startswith(("http://", "https://")):
            raise _invalid("endpoint_url", repr(self.endpoint_url), "must begin with http:// or https://")
        if self.role_arn and not self.role_arn.startswith("arn:"):
            raise _invalid(
                "role_arn", repr(self.role_arn), "must be an ARN, such as arn:aws:iam::<account>:role/<name>"
            )
        if type(self.max_attempts) is not int or self.max_attempts < 1:
            raise _invalid("max_attempts", repr(self.max_attempts), "must be a whole number, at least 1")
        if bool(self.access_key_id) != bool(self.secret_access_key):
            missing, present = ("secret_access_key", "access_key_id")
            if self.secret_access_key:
                missing, present = present, missing
            raise _invalid(missing, "nothing", f"must be given together with {present}")
        if self.session_token and not self.access_key_id:
            raise _invalid("access_key_id", "nothing", "must be given together with session_token")
        for name in ("external_id", "role_session_name"):
            if getattr(self, name) and not self.role_arn:
                raise _invalid("role_arn", "nothing", f"must be given together with {name}")


def aws_client(
    settings: AwsSettings,
    service: str,
    *,
    read_timeout_seconds: float = READ_TIMEOUT_SECONDS,
    connections: int = CONNECTIONS_PER_CLIENT,
    session: boto3.session.Session | None = None,
) -> Any:
    """Return a client. Threads may share it; it sends nothing until it is used.

    botocore's "standard" retries repeat throttled calls and transient errors: exponential backoff with full jitter,
    bounded by `settings.max_attempts`.

    :param settings: the endpoint and the credentials.
    :param service: boto3's name of the service, such as `kinesis`.
    :param read_timeout_seconds: how long to wait for a response.
    :param connections: the maximum number of connections that are kept open.
    :param session: a session whose credentials are shared; a separate one by default.
    :raises ConfigurationError: if the region is unknown, or the endpoint is not a URL.
    """
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    try:
        return (session or aws_session(settings)).client(  # type: ignore[call-overload]
            service,
            endpoint_url=settings.endpoint_url,
            config=Config(
                retries={"mode": "standard", "total_max_attempts": settings.max_attempts},
                connect_timeout=CONNECT_TIMEOUT_SECONDS,
                read_timeout=read_timeout_seconds,
                max_pool_connections=connections,
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise ConfigurationError(
            f"AWS settings: no client for {service} in region {settings.region!r} at endpoint_url"
            f" {settings.endpoint_url!r}: {error}; give a region such as 'eu-west-1', here or as AWS_REGION"
        ) from error


AwsClients: TypeAlias = Callable[[AwsSettings, str], Any]
"""Returns a client by its settings and the service's name, as `aws_client` does."""


class SharedClients:
    """The clients of a process that watches many sources: those with the same settings share one, for a while.

    :param lifetime: how long, as what the settings do not name (environment, shared files) may change.
    :param monotonic: the time, in seconds.
    """

    def __init__(self, lifetime: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lifetime = lifetime.total_seconds()
        self._monotonic = monotonic
        self._made: dict[tuple[AwsSettings, str], tuple[float, Any]] = {}

    def __call__(self, settings: AwsSettings, service: str) -> Any:
        """Return a client; see `aws_client`."""
        now = self._monotonic()
        self._made = {key: made for key, made in tuple(self._made.items()) if now - made[0] < self._lifetime}
        own = settings, service
        if (made := self._made.get(own)) is None:  # if two threads make one, each has its own for a while
            made = self._made[own] = now, aws_client(settings, service)
        return made[1]

    def clear(self) -> None:
        """Make new clients from now on: a service has refused a client, or does not respond."""
        self._made.clear()


def aws_session(settings: AwsSettings) -> boto3.session.Session:
    """Return a session: credentials and region for code that signs its own requests.

    :param settings: the credentials and the region.
    :raises ConfigurationError: if the AWS configuration of this machine cannot be used.
    """
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.session.Session(
            botocore_session=_fast_session(),
            aws_access_key_id=settings.access_key_id,
            aws_secret_access_key=settings.secret_access_key,
            aws_session_token=settings.session_token,
            region_name=settings.region,
        )
    except BotoCoreError as error:  # such as an AWS_PROFILE that does not exist
        raise ConfigurationError(f"AWS settings: {error}; correct AWS_PROFILE, or the AWS configuration") from error
    return _session_of_role(session, settings) if settings.role_arn else session


def response_time(response: Mapping[str, Any]) -> datetime | None:
    """Return the time of a response by the service's clock (aware, UTC, whole seconds); None if it has none.

    :param response: the response, as boto3 returns it or its errors carry it.
    """
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return parsedate_to_datetime(headers["date"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError):
        return None


def clock_error(response: Mapping[str, Any]) -> str | None:
    """Return how this machine's clock is wrong, if that may be the cause of a refusal; None otherwise.

    :param response: the response, as boto3's errors carry it.
    """
    there, here = response_time(response), datetime.now(UTC)
    code = response.get("Error", {}).get("Code")
    if code not in CLOCK_CODES or there is None or abs(here - there) < CLOCK_DIFFERENCE:
        return None
    which = "ahead of" if here > there else "behind"
    return (
        f"the clock of {socket.gethostname()} is {abs(here - there).total_seconds():.0f} s {which} the clock of "
        f"AWS: there it is {there:%Y-%m-%dT%H:%M:%SZ}, here {here:%Y-%m-%dT%H:%M:%SZ}"
    )


def _session_of_role(source: boto3.session.Session, settings: AwsSettings) -> boto3.session.Session:
    """Return a session with the role's credentials only, fetched on first use and before they expire."""
    import boto3
    from botocore.credentials import CredentialResolver

    session = _fast_session()
    provider = _AssumedRole(source, settings)
    resolver = CredentialResolver(providers=[provider])  # type: ignore[list-item]
    session.register_component("credential_provider", resolver)
    return boto3.session.Session(botocore_session=session, region_name=source.region_name)


@cache
def _service_loader(data_path: str | None) -> Loader:
    """Return the loader of botocore's service descriptions, shared by all sessions: a new one costs 0.1 seconds."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def _fast_session() -> botocore.session.Session:
    """Return a session with shared service descriptions, whose clients parse instants quickly.

    botocore's own parser of instants takes three quarters of the time of listing a bucket.
    """
    import botocore.session
    from botocore.utils import parse_timestamp

    session = botocore.session.Session()
    session.register_component("data_loader", _service_loader(session.get_config_variable("data_path")))

    def parsed(value: Any) -> datetime:
        try:
            instant = datetime.fromisoformat(value)
            if instant.tzinfo is not None:
                return instant
        except (TypeError, ValueError):  # a number, or the format of headers
            pass
        return parse_timestamp(value)

    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parsed)
    return session


class _AssumedRole:
    """A credential provider for botocore; not a subclass, since botocore is not imported yet."""

    METHOD = "assume-role"
    CANONICAL_NAME = None

    def __init__(self, source: boto3.session.Session, settings: AwsSettings) -> None:
        self._source = source
        self._settings = settings

    def load(self) -> Credentials:
        """Return credentials that are fetched on first use, and renew themselves."""
        from botocore.credentials import DeferredRefreshableCredentials

        return DeferredRefreshableCredentials(method=self.METHOD, refresh_using=self._fetch)

    def _fetch(self) -> dict[str, str]:
        from botocore.credentials import AssumeRoleCredentialFetcher
        from botocore.exceptions import NoCredentialsError

        source_credentials = self._source.get_credentials()
        if source_credentials is None:
            raise NoCredentialsError
        assert self._settings.role_arn is not None
        more = {"ExternalId": self._settings.external_id, "RoleSessionName": self._settings.role_session_name}
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=self._create_client,
            source_credentials=source_credentials,
            role_arn=self._settings.role_arn,
            extra_args={name: value for name, value in more.items() if value},
        )
        credentials: dict[str, str] = fetcher.fetch_credentials()
        return credentials

    def _create_client(self, service: str, **arguments: Any) -> Any:
        return self._source.client(service, **arguments)  # type: ignore[call-overload]


def _invalid(name: str, value: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"AWS settings: field '{name}' {remedy}; got {value}")


class Proof(Enum):
    """The result of testing a permission."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Permission:
    """One permission.

    :param action: the action in policies, such as `kinesis:GetRecords`.
    :param resource: the ARN, or a display name if the ARN is unknown.
    :param call: makes a harmless call that needs the permission; None if there is no such call at present.
    :param is_needed: whether jobs fail without it.
    """

    action: str
    resource: str
    call: Callable[[], object] | None = None
    is_needed: bool = True


def prove(call: Callable[[], object]) -> tuple[Proof, str]:
    """Make a call; return its result, and the service's message if the permission is not proven."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        call()
    except ClientError as error:
        details = error.response.get("Error", {})
        if details.get("Code") in ACCESS_CODES:
            return Proof.DENIED, str(details.get("Message", ""))
        if error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500:
            return Proof.UNKNOWN, str(details.get("Message", ""))
        return Proof.ALLOWED, ""
    except BotoCoreError as error:
        return Proof.UNKNOWN, str(error)
    return Proof.ALLOWED, ""
