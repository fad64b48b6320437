"""The store of a command: found without Airflow where possible, and without printing a password."""

from __future__ import annotations

import importlib
import json
import os
import pty
import subprocess
import sys
import textwrap
import threading
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

# Airflow's logging holds on to the streams that are there when it is imported, and those of one command are closed.
import airflow_provider_coordination.hooks.coordination  # noqa: F401
from airflow_provider_coordination import __version__
from airflow_provider_coordination.cli.access import STORE_VARIABLE
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.redaction import without_secrets
from tests.cli.conftest import Clicks, Shell
from tests.support.waiting import PATIENCE_SECONDS

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = "wJalrXUtnFEMI-not-for-anyones-eyes"
WITHOUT_AIRFLOW = """
    import sys

    class NoAirflow:
        def find_spec(self, name, path=None, target=None):
            if name == "airflow" or name.startswith("airflow."):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, NoAirflow())
"""
MAIN = """
    from airflow_provider_coordination.cli.app import main

    main()
"""


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer is not asked again."""
    assert open_store.__kwdefaults__ is not None
    monkeypatch.setitem(open_store.__kwdefaults__, "retry_deadline_seconds", 0.0)


def run(*args: str, environment: Mapping[str, str] | None = None, before: str = "") -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(before) + textwrap.dedent(MAIN)
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_commands_run_without_airflow(clicks: Clicks, store_url: str) -> None:
    clicks.waiting("p")
    ended = run("partitions", "clicks", "--json", "--store", store_url, before=WITHOUT_AIRFLOW)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["partition_key"] == "p"


def test_connection_lookup_needs_airflow() -> None:
    ended = run("sources", before=WITHOUT_AIRFLOW)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "error: connection 'coordination_default' cannot be looked up because Airflow is not installed here; "
        f"give --store, or set {STORE_VARIABLE}\n"
    )


def connection(store_url: str) -> str:
    extra = {"store": "sql", "url": store_url, "table": "coordination_partition", "prefix": "staging"}
    return json.dumps({"conn_type": "coordination", "extra": extra})


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_default_connection_is_used_if_none_is_named(clicks: Clicks, store_url: str) -> None:
    clicks.owner("b", prefix="staging").create_partitions({"p": {}})
    environment = {"AIRFLOW_CONN_COORDINATION_DEFAULT": connection(store_url)}
    ended = run("partitions", "clicks", "--json", environment=environment)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["source_identifier"] == "staging|clicks|PARTITION"


def test_connection_names_store_and_prefix_unless_given(
    shell: Shell, clicks: Clicks, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MINE", connection(store_url))
    clicks.owner("b", prefix="staging").create_partitions({"p": {}})
    clicks.owner("b", prefix="live").create_partitions({"q": {}})
    for options, key in (([], "p"), (["--prefix", "live"], "q")):
        ended = shell("partitions", "clicks", "--json", "--conn-id", "mine", *options, store=False)
        assert [record["partition_key"] for record in ended.records] == [key]


def test_missing_connection_is_wrong_usage(shell: Shell) -> None:
    ended = shell("sources", "--conn-id", "absent", store=False)
    assert (ended.exit_code, ended.out) == (2, "")
    assert "error: connection 'absent' is not defined; create it" in ended.err


def test_environment_names_the_store(shell: Shell, clicks: Clicks, store_url: str) -> None:
    clicks.waiting("p")
    shell.environment = {STORE_VARIABLE: store_url}
    assert [record["source"] for record in shell("sources", "--json", store=False).records] == ["clicks"]


def test_command_line_wins_over_the_environment(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    shell.environment = {STORE_VARIABLE: "nonsense"}
    assert shell("sources").exit_code == 0
    assert "'absent' is not defined" in shell("sources", "--conn-id", "absent", store=False).err


def test_version_is_shown_without_a_store(shell: Shell) -> None:
    ended = shell("--version", store=False)
    assert (ended.exit_code, ended.out) == (0, f"airflow-coordination {__version__}\n")


def test_connection_and_store_exclude_each_other(shell: Shell) -> None:
    ended = shell("sources", "--conn-id", "mine")
    assert (ended.exit_code, ended.err) == (2, "error: --conn-id and --store exclude each other; give one of them\n")


def test_table_option_names_another_table(shell: Shell, clicks: Clicks, store_url: str) -> None:
    settings = StoreSettings.from_url(store_url, "mine")
    coordinator = SourceCoordinator(open_store(settings), "orders", "b")
    coordinator.initialize()
    coordinator.create_partitions({"o": {}})
    assert [record["source"] for record in shell("sources", "--json", "--table", "mine").records] == ["orders"]


def test_inspecting_a_missing_file_creates_none(shell: Shell, tmp_path: Path) -> None:
    shell.url = f"sqlite:///{tmp_path}/typo.db"
    ended = shell("sources")
    assert ended.exit_code == 2
    assert "typo.db' does not exist; check its path, or create it with init-store" in ended.err
    assert not (tmp_path / "typo.db").exists()


@pytest.mark.usefixtures("short_timeout")
def test_missing_table_points_to_init_store(shell: Shell, clicks: Clicks) -> None:
    ended = shell("sources", "--table", "absent")
    assert ended.exit_code == 1
    assert "no such table: absent; if the store is new, run 'airflow-coordination init-store'" in ended.err


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{SECRET}@127.0.0.1:1/db",
        f"postgresql://ann:{SECRET}@x@127.0.0.1:1/db",
        f"postgresql://ann:x@{SECRET}@127.0.0.1:1/db",
        f"postgresql://ann:%2F{SECRET}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?password={SECRET}",
        f"mysql://ann:{SECRET}@127.0.0.1:1/db",
        f"oracle://ann:{SECRET}@127.0.0.1:1/db",
        f"dynamodb://ann:{SECRET}@table?colour=red",
    ],
)
@pytest.mark.usefixtures("short_timeout")
def test_password_is_never_shown(shell: Shell, url: str) -> None:
    shell.environment = {STORE_VARIABLE: url}
    for args in (["sources"], ["sources", "--verbose"], ["partitions", "a|b"]):
        ended = shell(*args, store=False)
        assert ended.exit_code in (1, 2)
        assert "error: " in ended.err
        assert SECRET not in ended.out + ended.err


def test_misplaced_url_does_not_show_its_password(shell: Shell) -> None:
    ended = shell("partitions", "clicks", f"postgresql://ann:{SECRET}@host/db")
    assert ended.exit_code == 2
    assert SECRET not in ended.out + ended.err


def test_help_does_not_show_the_environment(shell: Shell) -> None:
    shell.environment = {STORE_VARIABLE: f"postgresql://ann:{SECRET}@host/db"}
    ended = shell("sources", "--help", store=False)
    assert STORE_VARIABLE in ended.out
    assert SECRET not in ended.out


def test_password_is_removed_in_every_spelling() -> None:
    settings = StoreSettings.from_url("postgresql://ann:p%40ss%2Fword@host/db")
    text = "no ann with p@ss/word, p%40ss%2Fword at postgresql://ann:p%40ss%2Fword@host/db"
    assert "ss" not in without_secrets(text, settings).replace("postgresql", "")


def _read_all(terminal: int, shown: bytearray) -> None:
    try:
        while read := os.read(terminal, 65536):
            shown += read
    except OSError:  # how a closed terminal is reported
        pass


class Terminal:
    """Runs a command at a terminal of 80 columns and types an answer."""

    def run(self, *args: str, answer: str = "") -> tuple[int, str, str]:
        """Return the exit code, what went to standard output, a pipe, and what the terminal showed."""
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(MAIN), *args],
            cwd=REPOSITORY,
            env=environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = bytearray()
        # Read all the while: a terminal that nobody reads stands still.
        reader = threading.Thread(target=_read_all, args=(ours, shown), daemon=True)
        reader.start()
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
        reader.join(PATIENCE_SECONDS)
        os.close(ours)
        return process.returncode, out.decode(), shown.decode()


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
@pytest.mark.parametrize(("answer", "exit_code"), [("y\n", 0), ("n\n", 1)])
def test_prompt_is_not_mixed_with_the_results(clicks: Clicks, store_url: str, answer: str, exit_code: int) -> None:
    clicks.leased("p")
    code, out, shown = Terminal().run("release", "clicks", "p", "--json", "--store", store_url, answer=answer)
    assert code == exit_code
    assert "Release this partition of clicks? [y/N]:" in shown
    records: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()]
    assert [record["partition_key"] for record in records] == (["p"] if exit_code == 0 else [])


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_results_stay_apart_from_the_progress_bar(clicks: Clicks, store_url: str) -> None:
    keys = [f"p{number:02}" for number in range(40)]
    clicks.leased(*keys)
    options = ["release", "clicks", "--owner", "host:a", "--json", "--store", store_url]
    code, out, shown = Terminal().run(*options, answer="y\n")
    assert code == 0
    assert [json.loads(line)["partition_key"] for line in out.splitlines()] == keys
    assert "100%" in shown and "source_identifier" not in shown


def test_command_is_installed_under_its_name() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["airflow-coordination"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("args", [[], ["--help"], ["partitions", "--help"]])
def test_help_is_shown(shell: Shell, args: list[str]) -> None:
    ended = shell(*args, store=False)
    assert ended.exit_code == (0 if args else 2)
    assert "Usage: " in ended.out + ended.err
    assert "error" not in ended.err


def test_unexpected_error_is_one_line_without_a_traceback(shell: Shell, clicks: Clicks, tmp_path: Path) -> None:
    import sqlite3

    with sqlite3.connect(tmp_path / "coordination.db") as connection:
        connection.execute(
            "INSERT INTO coordination_partition (source_identifier, partition_key, status, progress,"
            " closed_count, version, priority) VALUES ('clicks|PARTITION', 'p', 'LOST', '', 0, 0, 'x')"
        )
    ended = shell("show", "clicks", "p")
    assert (ended.exit_code, ended.out) == (1, "")
    assert ended.err.startswith("error: unexpected ValueError: ") and ended.err.count("\n") == 1
    assert "Traceback" in shell("show", "clicks", "p", "--verbose").err


@pytest.mark.integration
def test_every_command_works_on_postgresql(shell: Shell, postgres_url: str) -> None:
    shell.url = postgres_url

    def records(*args: str) -> list[dict[str, Any]]:
        ended = shell(*args, "--json")
        assert ended.exit_code == 0, ended.err
        return ended.records

    assert "if the store is new, run 'airflow-coordination init-store'" in shell("sources").err
    assert records("init-store") == [{"store": "postgresql", "table": "coordination_partition"}]
    store = open_store(StoreSettings.from_url(postgres_url))
    clicks = Clicks(store, shell.clock)
    clicks.leased("p")
    assert [record["source"] for record in records("sources")] == ["clicks"]
    assert [record["owner"] for record in records("partitions", "clicks")] == ["host:a"]
    assert records("metrics", "clicks")[0]["owners"] == {"host:a": 1}
    assert [record["status"] for record in records("release", "clicks", "p", "--yes")] == ["UNASSIGNED"]
    clicks.parked("q")
    assert [record["attempts"] for record in records("reopen", "clicks", "q")] == [0]
    assert [record["progress"] for record in records("reset", "clicks", "q", "--progress", '{"n": 0}', "--yes")] == [
        {"n": 0}
    ]
    assert records("show", "clicks", "q")[0]["progress"] == {"n": 0}
    assert [record["partition_key"] for record in records("delete", "clicks", "p", "q", "--yes")] == ["p", "q"]
    assert records("sources") == []
    store.close()
