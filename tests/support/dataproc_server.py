"""A server for Google's client of Dataproc: it takes jobs and batches over gRPC, by Google's own message types."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import google.auth
import google.auth.credentials
import grpc
import pytest
from google.api_core import grpc_helpers
from google.cloud.dataproc_v1 import (
    BatchOperationMetadata,
    CreateBatchRequest,
    Job,
    SubmitJobRequest,
)
from google.longrunning.operations_pb2 import Operation

SERVICES = "google.cloud.dataproc.v1"


class DataprocServer:
    """What it understood, and what it does with a submitted job."""

    def __init__(self) -> None:
        self.jobs: list[SubmitJobRequest] = []
        self.batches: list[CreateBatchRequest] = []
        self.run: Callable[[Job], None] = lambda job: None

    def submit_job(self, request: SubmitJobRequest, _: grpc.ServicerContext) -> Job:
        self.jobs.append(request)
        self.run(request.job)
        return Job(request.job, reference={"job_id": "job-1"})

    def create_batch(self, request: CreateBatchRequest, _: grpc.ServicerContext) -> Operation:
        self.batches.append(request)
        operation = Operation(name="operation-1")
        operation.metadata.Pack(BatchOperationMetadata.pb(BatchOperationMetadata(batch=f"{request.parent}/batches/1")))
        return operation


@contextmanager
def dataproc_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[DataprocServer]:
    """Run a server, to which every client of Google connects, without credentials."""
    dataproc = DataprocServer()
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.add_generic_rpc_handlers(
        (
            _handler("JobController", "SubmitJob", dataproc.submit_job, SubmitJobRequest.deserialize, Job.serialize),
            _handler(
                "BatchController",
                "CreateBatch",
                dataproc.create_batch,
                CreateBatchRequest.deserialize,
                Operation.SerializeToString,
            ),
        )
    )
    anonymous = google.auth.credentials.AnonymousCredentials()
    monkeypatch.setattr(google.auth, "default", lambda **_: (anonymous, "project"))
    monkeypatch.setattr(grpc_helpers, "create_channel", lambda *_, **__: grpc.insecure_channel(f"127.0.0.1:{port}"))
    server.start()
    try:
        yield dataproc
    finally:
        server.stop(None).wait()


def _handler(service: str, method: str, answer: Any, read: Any, write: Any) -> grpc.GenericRpcHandler:
    handler = grpc.unary_unary_rpc_method_handler(answer, request_deserializer=read, response_serializer=write)
    return grpc.method_handlers_generic_handler(f"{SERVICES}.{service}", {method: handler})
