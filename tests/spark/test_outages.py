"""Errors are classified as those of a sink or of a batch."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from botocore.exceptions import EndpointConnectionError
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import (
    DeliveryError,
    SinkLockedError,
    SinkUnavailableError,
    by_halves,
)
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.outages import OUTAGE_MARK, error_of_task, is_outage, translating_outages
from airflow_provider_coordination.spark.spark_errors import DriverGoneError, is_of_gateway, running_on_executors
from airflow_provider_coordination.spark.storage import file_size, write_text


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


OUTAGES = [
    ConnectionRefusedError("nobody listens"),
    TimeoutError("no answer"),
    PermissionError("s3://lake/clicks: An error occurred (403) when calling the PutObject operation: Forbidden"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EROFS, "Read-only file system"),
    OSError("When reading information for key 'x' in bucket 'y': AWS Error NETWORK_CONNECTION during HeadObject"),
    OSError("When initiating multiple part upload: AWS Error ACCESS_DENIED during CreateMultipartUpload operation"),
    OSError("When uploading part: AWS Error UNKNOWN (HTTP status 503) during UploadPart operation: SlowDown"),
    OSError("s3://lake/x: Could not connect to the endpoint URL: 'http://127.0.0.1:9/lake'"),
    EndpointConnectionError(endpoint_url="http://127.0.0.1:9/lake"),
    SinkUnavailableError("its catalog does not answer"),
    caused(DeliveryError("3 batches were not committed"), OSError("Generic S3 error: error sending request for url")),
]
OF_A_BATCH = [
    DeliveryError("column 'at' has two types; it says: connection refused"),
    FileNotFoundError("s3://lake/x does not exist"),
    MissingFileError("file /lake/x is gone"),
    IsADirectoryError(errno.EISDIR, "Is a directory"),
    pa.ArrowInvalid("Failed to parse string: 'timed out' as a scalar of type int64"),
    ValueError("access denied"),
    KeyError("forbidden"),
    caused(DeliveryError("damaged"), ValueError("service unavailable")),
    RuntimeError("the function raised"),
    OSError("When reading information for key 'forbidden/timed out' in bucket 'access-denied': it is damaged"),
    OSError("s3://lake/forbidden/x is damaged"),
    PySparkException("OSError: file x cannot be read: ConnectionError: said by a record"),
]


@pytest.mark.parametrize("error", OUTAGES, ids=repr)
def test_sink_error_independent_of_its_input_is_an_outage(error: Exception) -> None:
    assert is_outage(error)
    with (
        pytest.raises(SinkUnavailableError, match=r"^sink 'copy' is unavailable: ") as raised,
        translating_outages("copy"),
    ):
        raise error
    assert raised.value.sink == "copy"


@pytest.mark.parametrize("error", OF_A_BATCH, ids=repr)
def test_errors_about_files_columns_and_values_are_no_outage(error: Exception) -> None:
    assert not is_outage(error)
    with pytest.raises(type(error)) as raised, translating_outages("copy"):
        raise error
    assert raised.value is error


def call_dead_jvm() -> None:
    """Call Java as Spark does, where nobody listens."""
    in_background = PythonParameters(port=0, daemonize=True, daemonize_connections=True)
    gateway = ClientServer(JavaParameters(port=9), in_background)
    gateway.jvm.java.lang.System.currentTimeMillis()


def raise_unanswered() -> None:
    raise Py4JError("An error occurred while calling o39.collectToPython")


@pytest.mark.parametrize("call", [call_dead_jvm, raise_unanswered])
def test_dead_jvm_is_no_sink_outage(call: Callable[[], None]) -> None:
    with (
        pytest.raises(DriverGoneError, match="JVM of the Spark driver does not respond") as raised,
        translating_outages("scratch"),
        translating_outages("main"),
    ):
        call()
    assert not is_outage(raised.value)


@pytest.mark.parametrize("call", [call_dead_jvm, raise_unanswered])
def test_dead_jvm_is_no_batch_error(call: Callable[[], None]) -> None:
    tried: list[int] = []

    def act(batches: object) -> None:
        tried.append(1)
        with running_on_executors():
            call()

    with pytest.raises(DriverGoneError):
        list(by_halves(["a", "b"], act, "preparation"))  # type: ignore[list-item]
    assert tried == [1]


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("An error occurred while calling o1.f. Trace:\npy4j.Py4JException: Method f([]) does not exist"),
        Py4JError("x does not exist in the JVM"),
        ConnectionRefusedError("by a catalog"),
    ],
    ids=repr,
)
def test_other_errors_are_no_dead_jvm(error: Exception) -> None:
    assert not is_of_gateway(error)


def test_outage_reported_by_a_task_is_an_outage() -> None:
    said = error_of_task(ConnectionResetError("by peer"), "file x cannot be read", OUTAGE_MARK)
    with pytest.raises(SinkUnavailableError) as raised, translating_outages("copy"):
        raise PySparkException(f'\n  File "task.py", line 1\nOSError: {said}')
    reason = "file x cannot be read: ConnectionResetError: by peer"
    assert str(raised.value) == f"sink 'copy' is unavailable: {reason}"
    said = error_of_task(FileNotFoundError("x"), "file x cannot be read", OUTAGE_MARK)
    assert not is_outage(PySparkException(f'\n  File "task.py", line 1\nOSError: {said}'))


@pytest.mark.parametrize("named", [SinkLockedError("by session 7"), caused(DeliveryError("7"), SinkLockedError("7"))])
def test_lock_is_not_called_an_outage(named: Exception) -> None:
    with (
        pytest.raises(SinkLockedError, match=r"^sink 'copy' waits for a lock: ") as raised,
        translating_outages("copy"),
    ):
        raise named
    assert raised.value.sink == "copy"


def test_outage_keeps_its_sink_name() -> None:
    with pytest.raises(SinkUnavailableError) as raised, translating_outages("main"), translating_outages("copy"):
        raise TimeoutError("no answer")
    assert raised.value.sink == "copy"


def test_unreachable_bucket_is_an_outage() -> None:
    nobody = AwsSettings(
        region="us-east-1",
        endpoint_url="http://127.0.0.1:9",
        access_key_id="test",
        secret_access_key="test",
        max_attempts=1,
    )
    with pytest.raises(OSError, match="connect") as raised:
        file_size("s3://lake/clicks", Access((("s3://lake", nobody),)))
    assert is_outage(raised.value)


def test_file_in_place_of_a_folder_is_no_outage(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("")
    with pytest.raises(OSError, match="there") as raised:
        write_text(str(tmp_path / "there" / "file"), "")
    assert not is_outage(raised.value)
