"""What `init` asks, and the texts that it writes: a spec, and a DAG that reads it.

The spec says what is ingested, and the DAG when. So each value is in one file, and commands that take a spec fit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from airflow_provider_coordination.settings import Described, FieldError
from airflow_provider_coordination.sources.kinds import KINDS
from airflow_provider_coordination.sources.questions import Question, aws_question, place_question
from airflow_provider_coordination.spark.access import is_s3
from airflow_provider_coordination.supervisor.spec import VERSION, IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import write_spec_text

SUPERVISED = "supervised"
"""The answer in place of a schedule: jobs run all the time."""
_FOLDER = place_question("path", "Folder of the dataset, such as s3://lake/clicks", "path")
_STAGING = place_question("staging-path", "Folder where rows wait for their transaction", "staging_path")
_AWS = aws_question("sink-conn-id", only_on_s3="path")
SINKS: Mapping[str, Sequence[Question]] = {
    "parquet": (_FOLDER, _AWS),
    "delta": (_FOLDER, _AWS),
    "iceberg": (
        Question(option="to-table", text="Iceberg table, such as lake.clicks", field="table"),
        Question(option="sink-conn-id", text="Airflow connection to its catalog", field="catalog_conn_id"),
        place_question("landing-path", "Folder where raw batches wait for delivery", "/landing_path"),
    ),
    "sql": (
        Question(option="to-table", text="Table, with its schema", field="table"),
        Question(option="sink-conn-id", text="Airflow connection to the database", field="conn_id"),
        _STAGING,
    ),
    "foreach_batch": (
        Question(option="function", text="Function that receives the rows, as module:function", field="function"),
        _STAGING,
    ),
}
"""The questions for each kind of sink."""


@cache
def sources() -> Mapping[str, Sequence[Question]]:
    """Return the questions for each kind of source that has some."""
    found = {name: KINDS.load(name).questions for name in KINDS.names()}
    return {name: asked for name, asked in found.items() if asked}


def problem_of(answer: str, question: Question, described: type[Described]) -> str | None:
    """Return what is wrong with an answer alone; None if nothing is. Answers are checked together afterwards.

    :param described: the class of the source or the sink.
    """
    if (wrong := question.problem(answer)) is not None or question.field.startswith("/"):
        return wrong
    alone = described.__new__(described)
    setattr(alone, question.field, answer)
    try:
        alone.converted(question.field)
    except FieldError as error:
        return error.problem
    return None


def questions(asked: Sequence[Question], answers: Mapping[str, str]) -> Sequence[Question]:
    """Return the questions that the answers so far leave to be asked."""
    return [
        each
        for each in asked
        if each.only_on_s3 is None or is_s3(answers.get(each.only_on_s3, ""))
    ]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FirstIngestion:
    """What `init` was answered.

    :param source_kind: the kind of source.
    :param source: the answers about it, by option.
    :param sink_kind: the kind of sink.
    :param sink: the answers about it, by option.
    :param name: the source's name; None for the one that the source provides.
    :param schema: the columns of the payload as DDL; None to keep payloads as they are.
    :param coordination_conn_id: the connection of type `coordination`.
    :param spark_conn_id: the Spark connection.
    """

    source_kind: str
    source: Mapping[str, str]
    sink_kind: str
    sink: Mapping[str, str]
    name: str | None = None
    schema: str | None = None
    coordination_conn_id: str
    spark_conn_id: str

    def spec(self) -> IngestionSpec:
        """Return the checked spec.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        return IngestionSpec.read(self.mapping())

    def mapping(self) -> dict[str, Any]:
        """Return the spec as a JSON object; it contains every answer, also where it is the default."""
        values: dict[str, Any] = {
            "version": VERSION,
            "source": self.name,
            "reads": {self.source_kind: self._fields(sources()[self.source_kind], self.source)},
            "writes": [{self.sink_kind: self._fields(SINKS[self.sink_kind], self.sink)}],
            "schema": self.schema,
            **{
                each.field[1:]: self.sink[each.option]
                for each in SINKS[self.sink_kind]
                if each.field.startswith("/") and each.option in self.sink
            },
            "tuning": {"coordination_conn_id": self.coordination_conn_id, "spark": {"conn_id": self.spark_conn_id}},
        }
        return {name: value for name, value in values.items() if value is not None}

    @property
    def connections(self) -> list[str]:
        """The Airflow connections that it needs, each once."""
        named = [
            answers[each.option]
            for asked, answers in ((sources()[self.source_kind], self.source), (SINKS[self.sink_kind], self.sink))
            for each in asked
            if each.field.endswith("conn_id") and each.option in answers
        ]
        return list(dict.fromkeys([self.coordination_conn_id, self.spark_conn_id, *named]))

    @staticmethod
    def _fields(asked: Sequence[Question], answers: Mapping[str, str]) -> dict[str, str]:
        return {
            each.field: answers[each.option]
            for each in asked
            if each.option in answers and not each.field.startswith("/")
        }


def spec_text(mapping: Mapping[str, Any]) -> str:
    """Return the file of a spec."""
    return f"# What is ingested. docs/specs.md explains the keys.\n{write_spec_text(mapping)}"


def dag_text(name: str, spec_path: str, schedule: str) -> str:
    """Return the file of the DAG.

    :param name: the DAG's name, if it has a schedule; a supervised one is named for the spec's file.
    :param spec_path: the spec's file, relative to the folder of the DAG's file.
    :param schedule: when the DAG runs; `SUPERVISED` for jobs that run all the time.
    """
    if schedule == SUPERVISED:
        return SUPERVISED_DAG.format(spec=_quoted(spec_path))
    return SCHEDULED_DAG.format(name=_quoted(name), spec=_quoted(spec_path), schedule=_quoted(schedule))


def dag_id(name: str, schedule: str) -> str:
    """Return the name of the DAG that the file contains.

    :param name: the name of the spec's file, without its suffix.
    """
    return f"supervise_{name}" if schedule == SUPERVISED else name


def file_name(source: str) -> str:
    """Return the name of the files of a source, without suffixes: what a DAG may be called."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", source).strip("_.-") or "ingestion"


def _quoted(text: str) -> str:
    return json.dumps(text)


SCHEDULED_DAG = '''\
"""Ingests what the spec describes, at each run what has arrived since the last one."""

from datetime import datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

SPEC_FILE = Path(__file__).parent / {spec}
SPEC = IngestionSpec.read(read_spec_file(SPEC_FILE)[0])

with DAG(
    {name},
    schedule={schedule},
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
):
    coordinated_ingestion(
        SPEC.ingestion,
        workers="auto",
        coordination_conn_id=SPEC.tuning.coordination_conn_id,
        **SPEC.tuning.spark.arguments(),
    )
'''
SUPERVISED_DAG = '''\
"""Supervises the source that the spec describes: jobs run all the time, and a changed spec hands over to new jobs."""

from airflow_provider_coordination.task_groups.supervised import supervised_ingestion

dags = supervised_ingestion({spec})  # the file is relative to this one; this is a DAG of Airflow
'''
