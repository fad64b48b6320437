"""The command `init`: writes a first spec and a first DAG, from options or from answers on a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from airflow_provider_coordination.cli.access import DEFAULT_CONN_ID, import_airflow
from airflow_provider_coordination.cli.commands import JSON, VERBOSE, CommandContext, reporting_errors
from airflow_provider_coordination.cli.first_ingestion import (
    SINKS,
    SUPERVISED,
    FirstIngestion,
    dag_id,
    dag_text,
    file_name,
    problem_of,
    questions,
    sources,
    spec_text,
)
from airflow_provider_coordination.cli.output import Output, printable
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import Described
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.questions import Question
from airflow_provider_coordination.supervisor.spec_keys import reads_class, writes_class

UNKNOWN_SINK = "parquet", {"path": "/data"}
"""The sink with which a source is checked before the user is asked for the sink."""
SCHEDULE_OF_STREAMS, SCHEDULE_OF_OTHERS = "*/10 * * * *", "@hourly"

SOURCE = Annotated[str | None, typer.Option("--source", metavar="KIND", help="Kind of source, such as s3.")]
STREAM = Annotated[str | None, typer.Option("--stream", help="Stream that is read.")]
OBJECTS = Annotated[str | None, typer.Option("--objects", metavar="PATH", help="Location of objects or files.")]
FORMAT = Annotated[str | None, typer.Option("--format", help="Format of the objects. Default: json.")]
FROM_TABLE = Annotated[str | None, typer.Option("--from-table", help="Table that is read.")]
COLUMN = Annotated[str | None, typer.Option("--column", help="Column that divides a table into ranges.")]
EXPORT = Annotated[str | None, typer.Option("--export", metavar="PATH", help="Folder of an export that is read.")]
INDEX = Annotated[str | None, typer.Option("--index", help="Index that is read.")]
SOURCE_CONN_ID = Annotated[str | None, typer.Option("--source-conn-id", help="Airflow connection to the source.")]
SINK = Annotated[str | None, typer.Option("--sink", metavar="KIND", help=f"Kind of sink: {', '.join(SINKS)}.")]
PATH = Annotated[str | None, typer.Option("--path", help="Folder of a Parquet dataset or a Delta table.")]
TO_TABLE = Annotated[str | None, typer.Option("--to-table", help="Table that is written, of Iceberg or a database.")]
FUNCTION = Annotated[str | None, typer.Option("--function", help="module:function that receives the rows.")]
STAGING = Annotated[str | None, typer.Option("--staging-path", help="Folder where rows wait for a database.")]
LANDING = Annotated[str | None, typer.Option("--landing-path", help="Folder where batches wait for Iceberg.")]
SINK_CONN_ID = Annotated[str | None, typer.Option("--sink-conn-id", help="Airflow connection to the sink.")]
NAME = Annotated[str | None, typer.Option("--name", help="Name of the source. Default: named for what is read.")]
SCHEMA = Annotated[str | None, typer.Option("--schema", help="Columns of the payload as DDL.")]
SCHEDULE = Annotated[str | None, typer.Option("--schedule", help="When the DAG runs, such as '*/10 * * * *'.")]
IS_SUPERVISED = Annotated[bool, typer.Option("--supervised", help="Let jobs run all the time, without a schedule.")]
COORDINATION = Annotated[str, typer.Option("--coordination-conn-id", help="Airflow connection to the store.")]
SPARK = Annotated[str, typer.Option("--spark-conn-id", help="Airflow connection that submits jobs.")]
DAG_FILE = Annotated[Path | None, typer.Option("--dag-file", help="File of the DAG. Default: dags/NAME.py.")]
SPEC_FILE = Annotated[
    Path | None, typer.Option("--spec-file", help="File of the spec. Default: specs/NAME.yaml beside the DAG.")
]
FORCE = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("init")(init)


def init(
    ctx: typer.Context,
    *,
    source: SOURCE = None,
    stream: STREAM = None,
    objects: OBJECTS = None,
    format: FORMAT = None,
    from_table: FROM_TABLE = None,
    column: COLUMN = None,
    export: EXPORT = None,
    index: INDEX = None,
    source_conn_id: SOURCE_CONN_ID = None,
    sink: SINK = None,
    path: PATH = None,
    to_table: TO_TABLE = None,
    function: FUNCTION = None,
    staging_path: STAGING = None,
    landing_path: LANDING = None,
    sink_conn_id: SINK_CONN_ID = None,
    name: NAME = None,
    schema: SCHEMA = None,
    schedule: SCHEDULE = None,
    supervised: IS_SUPERVISED = False,
    coordination_conn_id: COORDINATION = DEFAULT_CONN_ID,
    spark_conn_id: SPARK = "spark_default",
    dag_file: DAG_FILE = None,
    spec_file: SPEC_FILE = None,
    force: FORCE = False,
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Write a first spec and a first DAG. Asks for what no option gives. Needs no store."""
    context: CommandContext = ctx.obj or CommandContext()
    given = {
        "stream": stream,
        "objects": objects,
        "format": format,
        "from-table": from_table,
        "column": column,
        "export": export,
        "index": index,
        "source-conn-id": source_conn_id,
        "path": path,
        "to-table": to_table,
        "function": function,
        "staging-path": staging_path,
        "landing-path": landing_path,
        "sink-conn-id": sink_conn_id,
    }
    output = Output(as_json=as_json)
    with reporting_errors(verbose=verbose):
        import_airflow()
        interview = Interview(
            {option: answer for option, answer in given.items() if answer is not None},
            is_interactive=context.is_interactive(),
            output=output,
        )
        if supervised and schedule is not None:
            raise ConfigurationError(f"--schedule is {schedule!r}, and --supervised is given; give one of them")
        first = interview.ingestion(
            source,
            sink,
            name=name,
            schema=schema,
            coordination_conn_id=coordination_conn_id,
            spark_conn_id=spark_conn_id,
        )
        spec = first.spec()
        first = replace(first, name=spec.source)
        is_endless = spec.ingestion.reads.is_endless
        when = interview.schedule(SUPERVISED if supervised else schedule, is_endless=is_endless)
        written = file_name(spec.source)
        dag_path = interview.file("dag-file", dag_file, Path("dags", f"{written}.py"), (".py",), force=force)
        spec_path = spec_file or dag_path.parent / "specs" / f"{written}.yaml"
        check_file("spec-file", spec_path, (".yaml", ".yml"), force=force)
        relative = Path(os.path.relpath(spec_path, dag_path.parent)).as_posix()
        write_files(
            {
                spec_path: spec_text(first.mapping()),
                dag_path: dag_text(spec_path.stem, relative, when),
            },
            force=force,
        )
    _report(output, first, spec_path, dag_path, dag_id(spec_path.stem, when), is_supervised=when == SUPERVISED)


class Interview:
    """Finds the answers to questions: in the options, else from the user, else their defaults.

    :param given: the answers that options give, by option.
    :param is_interactive: whether there is a user to ask.
    :param output: where errors of answers are shown.
    """

    def __init__(self, given: Mapping[str, str], *, is_interactive: bool, output: Output) -> None:
        self._given = dict(given)
        self._is_interactive = is_interactive
        self._output = output

    def ingestion(
        self,
        source_kind: str | None,
        sink_kind: str | None,
        *,
        name: str | None,
        schema: str | None,
        coordination_conn_id: str,
        spark_conn_id: str,
    ) -> FirstIngestion:
        """Return what is to be ingested.

        :param source_kind: the kind of source; None to ask.
        :param sink_kind: the kind of sink; None to ask.
        :param name: the source's name; None for its default.
        :param schema: the columns of payloads; None for none.
        :raises ConfigurationError: naming the option or the field, the value and the remedy.
        """

        def made(
            source_kind: str, source: Mapping[str, str], sink_kind: str, sink: Mapping[str, str]
        ) -> FirstIngestion:
            return FirstIngestion(
                source_kind=source_kind,
                source=source,
                sink_kind=sink_kind,
                sink=sink,
                name=name,
                schema=schema,
                coordination_conn_id=coordination_conn_id,
                spark_conn_id=spark_conn_id,
            )

        source_kind = self._kind("source", "Kind of source", source_kind, sources())
        if sink_kind is not None or not self._is_interactive:
            sink_kind = self._kind("sink", "Kind of sink", sink_kind, SINKS)
            self._check_used(source_kind, sink_kind)
        source = self._section(
            sources()[source_kind],
            reads_class(source_kind),
            lambda answers: made(source_kind, answers, *UNKNOWN_SINK),
        )
        sink_kind = self._kind("sink", "Kind of sink", sink_kind, SINKS)
        self._check_used(source_kind, sink_kind)
        sink = self._section(
            SINKS[sink_kind],
            writes_class(sink_kind),
            lambda answers: made(source_kind, source, sink_kind, answers),
        )
        return made(source_kind, source, sink_kind, sink)

    def schedule(self, given: str | None, *, is_endless: bool) -> str:
        """Return when the DAG runs; `SUPERVISED` if jobs run all the time.

        :param is_endless: whether the source has no end.
        :raises ConfigurationError: if the given schedule is not valid.
        """
        question = Question(
            option="schedule",
            text=f"Schedule of the DAG, or {SUPERVISED!r} for jobs that run all the time",
            field="",
            default=SCHEDULE_OF_STREAMS if is_endless else SCHEDULE_OF_OTHERS,
        )
        return self._answer(question, given, problem_of_schedule)

    def file(self, option: str, given: Path | None, default: Path, suffixes: Sequence[str], *, force: bool) -> Path:
        """Return a file that may be written.

        :raises ConfigurationError: if it exists, and `force` is not given, or its name does not fit.
        """
        question = Question(option=option, text="File of the DAG", field="", default=str(default))

        def problem(answer: str) -> str | None:
            return problem_of_file(Path(answer), suffixes, force=force)

        return Path(self._answer(question, None if given is None else str(given), problem))

    def _kind(self, option: str, text: str, given: str | None, kinds: Mapping[str, object]) -> str:
        known = ", ".join(kinds)
        question = Question(option=option, text=f"{text} ({known})", field="")

        def problem(answer: str) -> str | None:
            return None if answer in kinds else f"must be one of {known}; got {answer!r}"

        return self._answer(question, given, problem)

    def _section(
        self,
        asked: Sequence[Question],
        described: type[Described],
        made: Callable[[Mapping[str, str]], FirstIngestion],
    ) -> Mapping[str, str]:
        """Return the answers about a source or a sink: each is checked alone, then all together.

        :param described: the class of the source or the sink.
        :param made: returns the ingestion with the answers.
        :raises ConfigurationError: for the first wrong one, if there is no user to correct it.
        """
        while True:
            answers: dict[str, str] = {}
            for each in asked:
                if each in questions([each], answers):
                    answers[each.option] = self._answer(
                        each, self._given.get(each.option), partial(problem_of, question=each, described=described)
                    )
            try:
                made(answers).spec()
            except ConfigurationError as error:
                if not self._is_interactive:
                    raise
                self._output.info(printable(f"error: {error}"))
                self._given = {option: each for option, each in self._given.items() if option not in answers}
                continue
            return answers

    def _answer(self, question: Question, given: str | None, problem: Callable[[str], str | None]) -> str:
        option = f"--{question.option}"
        if given is None and not self._is_interactive:
            if question.default is None:
                raise ConfigurationError(f"{option} is missing, and there is no terminal to ask: {question.text}")
            given = question.default
        if given is not None:
            if (wrong := problem(given)) is not None:
                raise ConfigurationError(f"{option} {wrong}")
            return given

        def checked(answer: str) -> str:
            if (wrong := problem(answer)) is not None:
                raise typer.BadParameter(wrong)
            return answer

        answer: str = typer.prompt(question.text, default=question.default, err=True, value_proc=checked)
        return answer

    def _check_used(self, source_kind: str, sink_kind: str) -> None:
        """Check that each given option belongs to the source or to the sink.

        :raises ConfigurationError: naming the first one that does not, and to what it belongs.
        """
        used = {each.option for each in (*sources()[source_kind], *SINKS[sink_kind])}
        for option, answer in self._given.items():
            if option in used:
                continue
            kinds = [
                f"--{part} {kind}"
                for part, asked in (("source", sources()), ("sink", SINKS))
                for kind, several in asked.items()
                if option in {each.option for each in several}
            ]
            raise ConfigurationError(
                f"--{option} is {answer!r}, but it belongs to {' or '.join(kinds)}, and not to --source {source_kind} "
                f"--sink {sink_kind}; remove it, or correct the kind"
            )


def problem_of_schedule(schedule: str) -> str | None:
    """Return what is wrong with a schedule; None if Airflow accepts it, or is not installed."""
    if schedule == SUPERVISED:
        return None
    try:
        from airflow.timetables.trigger import CronTriggerTimetable
    except ModuleNotFoundError:
        return None
    try:
        CronTriggerTimetable(schedule, timezone="UTC").validate()
    except Exception as error:  # its class is elsewhere in each Airflow
        return f"must be a cron expression, a preset such as @hourly, or {SUPERVISED!r}; got {schedule!r}: {error}"
    return None


def problem_of_file(path: Path, suffixes: Sequence[str], *, force: bool) -> str | None:
    """Return why a file cannot be written; None if it can."""
    if path.suffix not in suffixes:
        return f"must end with {' or '.join(suffixes)}; got {str(path)!r}"
    if path.is_dir():
        return f"must be a file; got the folder {str(path)!r}"
    if path.exists() and not force:
        return f"is {str(path)!r}, which exists; give another file, or --force to overwrite it"
    return None


def check_file(option: str, path: Path, suffixes: Sequence[str], *, force: bool) -> None:
    """Check that a file may be written.

    :raises ConfigurationError: naming the option, the file and the remedy.
    """
    if (wrong := problem_of_file(path, suffixes, force=force)) is not None:
        raise ConfigurationError(f"--{option} {wrong}")
    if file_name(path.stem) != path.stem:
        raise ConfigurationError(
            f"--{option} is {str(path)!r}, but a DAG is named for it; use letters, digits, '_', '-' and '.'"
        )


def write_files(texts: Mapping[Path, str], *, force: bool) -> None:
    """Write files, and the folders that they need.

    :param texts: the content by file.
    :param force: whether to overwrite a file that appeared since it was checked.
    :raises ConfigurationError: if one cannot be written.
    """
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w" if force else "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise ConfigurationError(
                f"file {str(path)!r} cannot be written: {error.strerror}; give another --dag-file or --spec-file"
            ) from None


def _look_at(first: FirstIngestion, spec_path: Path) -> tuple[str, str]:
    """Return how to look at the source: by a preview, if its kind has one."""
    if get_kind(first.source_kind).has_preview:
        return (
            "look at a few records, which also checks that the source exists",
            f"airflow-coordination preview {spec_path}",
        )
    return "check that the connection to the source exists", f"airflow-coordination spec check {spec_path} --connect"


def _report(
    output: Output, first: FirstIngestion, spec_path: Path, dag_path: Path, dag: str, *, is_supervised: bool
) -> None:
    run = f"airflow dags unpause {dag}" if is_supervised else f"airflow dags test {dag}"
    steps = [
        ("define these connections in Airflow, if they are missing", ", ".join(first.connections)),
        (
            "create the store's table, once for each store",
            f"airflow-coordination init-store --conn-id {first.coordination_conn_id}",
        ),
        (
            "check versions, connections and permissions",
            f"airflow-coordination doctor --spec {spec_path} --conn-id {first.coordination_conn_id}",
        ),
        _look_at(first, spec_path),
        (f"with {dag_path} and {spec_path} in Airflow's folder of DAGs, run it", run),
    ]
    if output.as_json:
        output.record(
            {
                "dag_file": str(dag_path),
                "spec_file": str(spec_path),
                "dag_id": dag,
                "connections": first.connections,
                "next": [{"step": step, "what": what} for step, what in steps],
            }
        )
        return
    output.line(printable(f"written: {spec_path}: what is ingested"))
    output.line(printable(f"written: {dag_path}: the DAG {dag}"))
    output.line("next:")
    for number, (step, what) in enumerate(steps, 1):
        output.line(printable(f"  {number}. {step}:"))
        output.line(printable(f"       {what}"))
