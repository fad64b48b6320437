"""Whether a spec can be carried out: asked of its connections and of the source itself, before anything runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.writes.writes import landing_path_of, sinks_of
from airflow_provider_coordination.sources.kinds import Settings, SourceKind
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.settings import access_of, check_sinks
from airflow_provider_coordination.supervisor.operations import SourceCheck
from airflow_provider_coordination.supervisor.schema_check import check_fits
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_kinds import reads_kind_of

ANSWER_SECONDS = 20.0
"""A source that takes longer counts as one that does not answer: a person waits, or a turn."""

T = TypeVar("T")


def _service(kind: SourceKind, settings: Settings) -> Any:
    return kind.service(settings)


def check_against_source(
    spec: IngestionSpec,
    default_region: str | None = None,
    service: Callable[[SourceKind, Settings], Any] = _service,
    answer_seconds: float = ANSWER_SECONDS,
) -> int:
    """Check that sinks have places of their own, that the source is there, and that its data fits the schema.

    Nothing is leased or written: of a stream, a few records are read.

    :param default_region: the AWS region where nothing else names one; by default that of the spec's coordination
        connection, if it is defined here.
    :param service: returns what asks the source.
    :param answer_seconds: for how long the source is waited for.
    :returns: how many records were looked at; 0 where there are none, or the kind of source shows none.
    :raises ConfigurationError: naming the field, the value and the remedy.
    :raises SourceError: if the source does not answer.
    """
    sinks = sinks_of(spec.writes_objects())
    landing_path = spec.tuning.landing_path or landing_path_of(spec.writes_objects())
    check_sinks(sinks, spec.on_bad_records, spec.acknowledgments, landing_path)
    reads = spec.reads_object().connect(default_region or _region_of_jobs(spec)).reads
    kind: SourceKind = reads.found()
    reads.check()
    try:
        payloads = _within(answer_seconds, lambda: kind.sample(service(kind, reads.settings), reads.settings))
    except ConfigurationError as error:
        raise ConfigurationError(f"spec: field 'reads.{reads_kind_of(spec.reads)}': {error}") from error
    if spec.schema is not None:
        check_fits(spec.schema, payloads)
    return len(payloads)


def checks_against_source(default_region: str | None = None, *, connect: bool = True) -> SourceCheck | None:
    """Return what a submission checks a spec with; None if it is not to ask.

    :param default_region: the AWS region where nothing else names one.
    :param connect: whether the source and its connections are asked.
    """
    return partial(check_against_source, default_region=default_region) if connect else None


def places_of(spec: IngestionSpec) -> tuple[list[str], Access]:
    """Return where jobs of a spec write files, without what lies below another place, and how that is reached.

    :raises ConfigurationError: naming the field, the value and the remedy.
    """
    sinks = sinks_of(spec.writes_objects())
    landing_path = spec.tuning.landing_path or landing_path_of(spec.writes_objects())
    dead_letter_path = spec.on_bad_records.dead_letter_path
    places = [*(sink.files or sink.location for sink in sinks), landing_path, dead_letter_path or landing_path]
    apart = [path for path in dict.fromkeys(places) if not any(path.startswith(f"{each}/") for each in places)]
    return apart, access_of(sinks)


def _region_of_jobs(spec: IngestionSpec) -> str | None:
    with suppress(ConfigurationError):  # who has the store's URL needs no connection to it
        return CoordinationHook(spec.tuning.coordination_conn_id).settings.region
    return None


def _within(seconds: float, ask: Callable[[], T]) -> T:
    """Return what a call returns.

    :raises SourceError: if that takes too long; the call goes on in a thread, and nobody waits for it.
    """
    answer: Future[T] = Future()

    def asked() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=asked, name="spec-check", daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():  # the call itself raised it, or it came just now
            return answer.result()
        raise SourceError(f"the source did not answer within {seconds:g} s") from None
