"""A MariaDB server on this machine, for the tests and the benchmarks.

It is Debian's, which `make servers` installs without its service. The server keeps its data in a temporary directory,
listens on the loopback interface alone, and cannot outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from demo.server_process import Server, ending_with_its_input, free_ports, start_server, stop_server

USER = "coordination"

# Administrators' programs are not on everybody's PATH.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])


class MariaDbError(Exception):
    """MariaDB is not installed or does not start; the message says what to do."""


class MariaDb(Server):
    """A running MariaDB server, as a context manager; it may be stopped and started again with its data.

    :param options: further options of the server, such as ``--innodb-buffer-pool-size=1G``.
    """

    def __init__(self, *options: str) -> None:
        self._options = options
        self._directory: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process knows the address of the server, and cannot stop it."""
        return self.__dict__ | {"_process": None, "_directory": None}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self, database: str = "") -> str:
        """The SQLAlchemy URL of a database, for a user who may do everything."""
        return f"mariadb://{USER}@127.0.0.1:{self._port}/{database}"

    def connect(self, database: str | None = None) -> Any:
        """A PyMySQL connection, which commits each statement."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=self._port, user=USER, database=database, autocommit=True, connect_timeout=5
        )

    @contextlib.contextmanager
    def database(self) -> Iterator[str]:
        """The name of an empty database, dropped afterwards."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with self.connect() as connection, connection.cursor() as cursor:
            # The widest trap there is: texts compare without regard to case, accents and trailing spaces by default.
            cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")
        try:
            yield name
        finally:
            with self.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"DROP DATABASE {name}")

    def start(self) -> Self:
        """Start the server, with the data it had before if it ran, and wait until it answers.

        :raises MariaDbError: if it is not installed or does not come up.
        """
        if self._directory is None:
            self._directory = _new_data(_program("mariadb-install-db", "mysql_install_db"))
            (self._port,) = free_ports(1)
        command = [
            _program("mariadbd", "mysqld"),
            "--no-defaults",
            *_as_root(),
            f"--datadir={self._directory / 'data'}",
            f"--socket={self._directory / 'socket'}",
            f"--pid-file={self._directory / 'pid'}",
            f"--init-file={self._directory / 'init.sql'}",
            f"--port={self._port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--innodb-log-file-size=64M",
            *self._options,
        ]
        try:
            self._process = start_server(
                "MariaDB",
                ending_with_its_input("mariadb", command),
                answers=self._answers,
                log=self._directory / "log",
                error=MariaDbError,
            )
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> None:
        """Stop the server and keep its data. Harmless if it does not run."""
        process, self._process = self._process, None
        stop_server(process)

    def close(self) -> None:
        """Stop the server and forget its data."""
        self.stop()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def _answers(self) -> bool:
        import pymysql

        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True


def _program(*names: str) -> str:
    for name in names:
        if found := shutil.which(name, path=_PATH):
            return found
    raise MariaDbError(f"{names[0]} was not found: run `make servers`, or install a MariaDB server")


def _new_data(install: str) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="coordination-mariadb-"))
    made = subprocess.run(
        [
            install,
            "--no-defaults",
            *_as_root(),
            f"--datadir={directory / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        shutil.rmtree(directory, ignore_errors=True)
        raise MariaDbError(f"MariaDB's data could not be made: {(made.stdout + made.stderr)[-2000:]}")
    (directory / "init.sql").write_text(
        f"CREATE USER IF NOT EXISTS {USER}@'127.0.0.1';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
    )
    return directory


def _as_root() -> list[str]:
    # It refuses to run as root without this option.
    return ["--user=root"] if os.geteuid() == 0 else []
