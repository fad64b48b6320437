"""Registries of schemas: the frames of payloads that name a schema, and the schemas, fetched once by each worker."""

from __future__ import annotations

import json
import random
import time
import uuid
import zlib
from base64 import b64encode
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import quote

from airflow_provider_coordination.aws import AwsSettings, aws_client
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.decoding.errors import RegistryUnavailableError, UndecodableError
from airflow_provider_coordination.spark.payload_settings import ConfluentRegistry, GlueRegistry

CONFLUENT_MAGIC = 0
CONFLUENT_BYTES = 5
GLUE_VERSION = 3
GLUE_PLAIN, GLUE_ZLIB = 0, 5
GLUE_BYTES = 18
ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.25
TIMEOUT_SECONDS = 10.0
SCHEMA_NOT_FOUND = 40403
"""The error code of Confluent's API if there is no schema with an id; any other 404 is not the registry's."""

Schemas = tuple[str, ...]
"""The text of a schema, after the texts of those that it refers to."""


def unframed(payload: bytes, registry: ConfluentRegistry | GlueRegistry, max_bytes: int) -> tuple[bytes, Schemas]:
    """Return what a frame has around it: the datum, and the schema with which it was written.

    :param max_bytes: the maximum size of a datum that is compressed within its frame.
    :raises UndecodableError: if the payload has no such frame, or no schema is known for it.
    :raises RegistryUnavailableError: if the registry gives no answer.
    """
    if isinstance(registry, ConfluentRegistry):
        if len(payload) < CONFLUENT_BYTES or payload[0] != CONFLUENT_MAGIC:
            raise UndecodableError("the payload does not begin with Confluent's frame: a zero byte and a schema id")
        number = int.from_bytes(payload[1:CONFLUENT_BYTES], "big")
        schemas = _of_confluent(tuple(registry.url), registry.login, registry.password, number)
        return payload[CONFLUENT_BYTES:], schemas
    if len(payload) < GLUE_BYTES or payload[0] != GLUE_VERSION or payload[1] not in (GLUE_PLAIN, GLUE_ZLIB):
        raise UndecodableError("the payload does not begin with the header of AWS Glue: version 3 and a schema version")
    schemas = _of_glue(registry.aws, str(uuid.UUID(bytes=payload[2:GLUE_BYTES])))
    datum = payload[GLUE_BYTES:]
    return (datum if payload[1] == GLUE_PLAIN else _inflated(datum, max_bytes)), schemas


def _inflated(data: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, max_bytes + 1)
    except zlib.error:
        raise UndecodableError("the payload is not complete zlib behind its header of AWS Glue") from None
    if len(plain) > max_bytes:
        raise UndecodableError(f"the payload has more than {max_bytes} bytes once it is decompressed")
    if not stream.eof:
        raise UndecodableError("the payload is not complete zlib behind its header of AWS Glue")
    return plain


# Confluent


@cache
def _of_confluent(urls: tuple[str, ...], login: str | None, password: str | None, number: int) -> Schemas:
    found = _fetched(urls, login, password, f"/schemas/ids/{number}", f"schema {number}")
    kind = found.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise UndecodableError(f"schema {number} of the registry is of type {kind}, and not AVRO")
    references: dict[str, str] = {}
    for each in found.get("references") or ():
        _add_reference(urls, login, password, each, references)
    return (*references.values(), str(found["schema"]))


def _add_reference(
    urls: tuple[str, ...], login: str | None, password: str | None, reference: Any, found: dict[str, str]
) -> None:
    """Add a schema that another one refers to, after those that it refers to itself."""
    subject, version = str(reference["subject"]), int(reference["version"])
    name = f"{subject}:{version}"
    if name in found:
        return
    path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
    answer = _fetched(urls, login, password, path, f"version {version} of subject {subject!r}")
    for each in answer.get("references") or ():
        _add_reference(urls, login, password, each, found)
    found[name] = str(answer["schema"])


def _fetched(urls: tuple[str, ...], login: str | None, password: str | None, path: str, what: str) -> Any:
    """Return the answer of a registry.

    :raises UndecodableError: if the registry has no such schema.
    :raises RegistryUnavailableError: if it gives no answer.
    """
    from urllib3.exceptions import HTTPError

    problem = ""
    for attempt, url in enumerate(_hosts(urls)):
        if attempt:
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * random.uniform(0.5, 1))
        try:
            response = _pool().request("GET", url.rstrip("/") + path, headers=_headers(login, password))
        except (HTTPError, OSError) as error:
            problem = f"the schema registry at {url} does not respond: {type(error).__name__}"
            continue
        try:
            body = json.loads(response.data)
        except ValueError:
            problem = f"the schema registry at {url} responds with HTTP status {response.status} and no JSON"
            continue
        if response.status == 200:
            return body
        if isinstance(body, dict) and body.get("error_code") == SCHEMA_NOT_FOUND and attempt + 1 >= ATTEMPTS:
            raise UndecodableError(f"the schema registry at {url} has no {what}")
        problem = (
            f"the schema registry at {url} responds with HTTP status {response.status} to a request for {what}; check "
            "'url' and the login and password of 'registry_conn_id'"
        )
    raise RegistryUnavailableError(problem)


def _hosts(urls: tuple[str, ...]) -> Iterator[str]:
    """Yield where to send each attempt."""
    first = random.randrange(len(urls))
    for attempt in range(max(ATTEMPTS, len(urls))):
        yield urls[(first + attempt) % len(urls)]


def _headers(login: str | None, password: str | None) -> dict[str, str]:
    accept = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if login is None:
        return accept
    return {**accept, "Authorization": f"Basic {b64encode(f'{login}:{password or str()}'.encode()).decode()}"}


@cache
def _pool() -> Any:
    import urllib3

    return urllib3.PoolManager(retries=False, timeout=TIMEOUT_SECONDS)


# AWS Glue


@cache
def _of_glue(aws: AwsSettings, version: str) -> Schemas:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        found = _glue(aws).get_schema_version(SchemaVersionId=version)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "EntityNotFoundException":
            raise UndecodableError(f"the AWS Glue Schema Registry has no schema version {version}") from None
        raise RegistryUnavailableError(
            f"the AWS Glue Schema Registry refuses a request for schema version {version}: {error}"
        ) from None
    except (BotoCoreError, ConfigurationError) as error:
        raise RegistryUnavailableError(f"the AWS Glue Schema Registry does not respond: {error}") from None
    if (kind := found.get("DataFormat", "AVRO")) != "AVRO":
        raise UndecodableError(f"schema version {version} of AWS Glue is of the format {kind}, and not AVRO")
    return (str(found["SchemaDefinition"]),)


@cache
def _glue(aws: AwsSettings) -> Any:
    return aws_client(aws, "glue")
