"""OpenTelemetry in a job: metrics and spans go to the collector that the driver's environment configures.

The variables are those of OpenTelemetry's specification, for one signal or for all. Its packages are imported only if a
collector is configured. A problem is reported in one warning: telemetry never fails a job.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""How long the end of a job waits, at most, for a collector to accept the remaining metrics or spans."""
SERVICE_NAME = "coordination-ingest"
PROTOCOLS = {
    "http/protobuf": "opentelemetry.exporter.otlp.proto.http",
    "grpc": "opentelemetry.exporter.otlp.proto.grpc",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Signal:
    """One kind of telemetry.

    :param name: its name in environment variables.
    :param label: its name in messages.
    :param exporter: `module:class` of its exporter, below the package of a protocol.
    """

    name: str
    label: str
    exporter: str

    @property
    def endpoints(self) -> tuple[str, str]:
        """The variables that name its collector; the first one that is set wins."""
        return f"OTEL_EXPORTER_OTLP_{self.name}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"

    @property
    def protocols(self) -> tuple[str, str]:
        """The variables that name the protocol; the first one that is set wins."""
        return f"OTEL_EXPORTER_OTLP_{self.name}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"

    @property
    def switch(self) -> str:
        """The variable that disables it, with the value `none`."""
        return f"OTEL_{self.name}_EXPORTER"


METRICS = Signal("METRICS", "metrics", "metric_exporter:OTLPMetricExporter")
TRACES = Signal("TRACES", "spans", "trace_exporter:OTLPSpanExporter")


def make_sender(signal: Signal, make: Callable[[Any], T]) -> T | None:
    """Return the sender of a signal to its collector; None if the environment configures none, or it cannot work.

    :param make: makes the sender from OpenTelemetry's exporter.
    """
    endpoint = next((name for name in signal.endpoints if os.environ.get(name)), None)
    if endpoint is None or os.environ.get(signal.switch, "otlp").strip() == "none":
        return None
    protocol = next((value for name in signal.protocols if (value := os.environ.get(name))), "http/protobuf")
    if protocol not in PROTOCOLS:
        log.warning(
            "%s are not exported: protocol %r of OpenTelemetry is not supported; set %s to one of %s",
            signal.label, protocol, signal.protocols[-1], ", ".join(PROTOCOLS),
        )  # fmt: skip
        return None
    module, _, name = signal.exporter.partition(":")
    try:
        return make(getattr(importlib.import_module(f"{PROTOCOLS[protocol]}.{module}"), name)())
    except ImportError as error:
        log.warning(
            "%s are not exported: %s is set, but OpenTelemetry is not installed (%s); install "
            "airflow-provider-coordination[otlp] where the Spark driver runs, or unset it",
            signal.label, endpoint, error,
        )  # fmt: skip
    except Exception as error:
        log.warning("%s are not exported: %s: %s; check the OTEL_ variables", signal.label, type(error).__name__, error)
    return None


def resource_of(owner: str) -> Resource:
    """Return the OpenTelemetry resource: the service, with the job as its instance.

    :param owner: the job's owner.
    """
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = Resource.create({"service.name": SERVICE_NAME, "service.instance.id": owner})
    return ours.merge(OTELResourceDetector().detect())  # the environment's values win
