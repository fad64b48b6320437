"""Tests find known defects: with each fix removed from a copy of the package, a search or a test shows the defect."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Mutation:
    """A fix that is removed.

    :param file: below the package.
    :param fix: the text that is replaced; it must occur once.
    :param without: what stands there instead.
    :param cases: those of the search for struck calls that show it.
    :param kind: the kind of the sinks in them.
    :param tests: tests of pytest of which one fails without the fix, where no case shows it.
    """

    file: str
    fix: str
    without: str
    cases: tuple[str, ...] = ()
    kind: str = "parquet"
    tests: tuple[str, ...] = ()

    @property
    def program(self) -> tuple[str, ...]:
        """The module that looks for the defect, with its arguments."""
        if self.tests:
            return ("pytest", "-q", "-p", "no:cacheprovider", *self.tests)
        return ("tests.deep.first_found", self.kind, *self.cases)


MUTATIONS = {
    "what is staged is listed, and nothing found taken for no rows": Mutation(
        "spark/sinks/parquet.py",
        "        for staged in self._staged(attempt):\n",
        "        self._staged(attempt)\n"
        "        from airflow_provider_coordination.spark.storage import delete_file, files_below\n"
        "        found = [file for file in files_below(self.staging(attempt)) if file.endswith('.parquet')]\n"
        "        if not found:\n"
        "            delete_file(self.file(attempt.batch_id))\n"
        "        names = [file.rsplit('/', 1)[-1] for file in found]\n"
        "        for staged in [StagedFile(name=n, bytes=file_size(join(self.staging(attempt), n)), rows=1) "
        "for n in names]:\n",
        ("transformed-shards", "rejected-then-fixed-shards"),
    ),
    "nobody asks the store before a batch becomes visible": Mutation(
        "spark/deliveries.py",
        "self._confirm_ownership(left, delivered)",
        "pass",
        ("rejected-then-fixed-shards",),
    ),
    "what former owners staged stays": Mutation(
        "spark/staging.py",
        "int(name) < token]",
        "int(name) < 0]",
        ("rejected-then-fixed-shards",),
    ),
    "an empty result deletes what it replaces": Mutation(
        "spark/sinks/parquet.py",
        "        for staged in self._staged(attempt):\n",
        "        if not self._staged(attempt):\n"
        "            from airflow_provider_coordination.spark.storage import delete_file\n"
        "            delete_file(self.file(attempt.batch_id))\n"
        "        for staged in self._staged(attempt):\n",
        ("copy-fixed-items", "copy-fixed-shards"),
    ),
    "what was published is not as good as what was landed": Mutation(
        "spark/sinks/parquet.py",
        "batch_landed_in(published, self.access) != batch.batch_id",
        "True",
        ("sink-added-items", "transform-added-items"),
    ),
    "a batch keeps what was known of it before its set was cancelled": Mutation(
        "spark/deliveries.py",
        "batch=_waiting_batch(self._coordinator.leases.leased(key), batch.batch_id, acknowledgment_set.set_id)",
        "batch=batch",
        tests=("tests/spark/test_deliveries.py::test_batch_is_replaced_if_the_sinks_changed_since_its_delivery",),
    ),
    "landed files keep their names": Mutation(
        "spark/landed_files.py",
        "        location = under_token(batch.file, token)\n",
        "        return batch.file\n        location = under_token(batch.file, token)\n",
        tests=("tests/spark/test_landed_files.py::test_previous_owner_cannot_restore_a_file_under_its_lease",),
    ),
    "a file that batches share becomes visible before anybody knows its name": Mutation(
        "spark/deliveries.py",
        "stored |= leases.change_progress_each(in_files)",
        "stored |= leases.refresh_each([*in_files])",
        ("transformed-shards", "plain-shards"),
    ),
    "the name of a file that batches share is left free": Mutation(
        "spark/shared_files.py",
        "        if not renames(self._root, self._access):\n            claim",
        "        if False:\n            claim",
        ("transformed-shards-s3", "plain-shards-s3"),
    ),
    "a name is given again to a later writer": Mutation(
        "spark/s3_objects.py",
        '            return {"IfNoneMatch": "*"}\n',
        "            return {}\n",
        ("transform-fixed-items-s3", "transform-fixed-shards-s3"),
    ),
    "folders have 32 bits of their keys": Mutation(
        "spark/storage.py",
        "hexdigest()[:32]",
        "hexdigest()[:8]",
        ("plain-items", "transformed-items"),
    ),
    "a lease that is lost while its partition is taken over ends the round": Mutation(
        "spark/ingestion.py",
        '            log.warning("partition %s is left to its next owner: %s", key, error)\n',
        "            raise\n",
        ("plain-items", "plain-shards"),
    ),
    "files that cannot be deleted end the round": Mutation(
        "spark/landed_files.py",
        '    except OSError as error:\n        log.warning("landed files could not be deleted',
        '    except ZeroDivisionError as error:\n        log.warning("landed files could not be deleted',
        ("plain-items", "checked-items"),
    ),
    "overdue sets end in the first round alone": Mutation(
        "spark/deliveries.py",
        "        if expiry is not None and expiry <= self._coordinator.clock.now():\n",
        "        if expiry is None:\n",
        ("check-dropped-items", "check-dropped-shards"),
    ),
    "a Delta table is not looked into again after a commit without an answer": Mutation(
        "spark/sinks/delta/sink.py",
        "            owed = self._owed(table, attempts)\n",
        "            owed = list(attempts)\n",
        ("transformed-items", "rejected-then-fixed-items"),
        "delta",
    ),
    "only the latest commits of a Delta table are searched": Mutation(
        "spark/sinks/delta/log.py",
        "for limit in LATEST:",
        "for limit in LATEST[:-1]:",
        tests=("tests/spark/sinks/test_delta.py::test_batch_is_found_behind_any_number_of_commits",),
    ),
    "a RESTORE of a Delta table is not noticed": Mutation(
        "spark/sinks/delta/log.py",
        'if entry.get("operation") == "RESTORE":',
        "if False:",
        tests=(
            "tests/spark/sinks/test_delta.py::test_batch_undone_by_a_restore_is_redelivered",
            "tests/spark/sinks/test_delta.py::test_restore_is_reported_before_a_rejected_batch_is_replaced",
        ),
    ),
    "a RESTORE is not looked for before a rejected batch is replaced": Mutation(
        "spark/sinks/delta/sink.py",
        "self._log.report_restores(table, [attempt for attempt in owed if attempt.batch.redeliver])",
        "pass",
        tests=("tests/spark/sinks/test_delta.py::test_restore_is_reported_before_a_rejected_batch_is_replaced",),
    ),
    "a rollback of an Iceberg table is not reported": Mutation(
        "spark/sinks/iceberg/sink.py",
        "        self._report_undone(history)\n",
        "",
        tests=("tests/spark/sinks/test_iceberg.py::test_rolled_back_batches_are_reported_once_and_delivered_again",),
    ),
    "a picked snapshot brings no batches": Mutation(
        "spark/sinks/iceberg/history.py",
        "None if snapshot.summary is None else snapshot.summary.get(PICKED_FROM)",
        "None",
        tests=("tests/spark/sinks/test_iceberg.py::test_picked_batch_is_not_delivered_again",),
    ),
    "nobody waits for the locks of an abandoned session": Mutation(
        "spark/sql/locks.py",
        "if now - self._began >= LOCKED_SECONDS:",
        "if self._began:",
        tests=("tests/spark/sinks/test_sql_locks.py::test_abandoned_session_is_waited_for",),
    ),
    "a session that stopped within a COPY keeps its locks": Mutation(
        "spark/sql/locks.py",
        "            self._end(holder)\n",
        "",
        tests=("tests/spark/sinks/test_sql_locks.py::test_abandoned_session_is_waited_for",),
    ),
}
COPIED = ("airflow_provider_coordination", "tests", "demo", "pyproject.toml")
"""What a run of the tests needs beside the environment."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MUTATIONS)
def test_removed_fix_is_missed(name: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]
    for each in COPIED:
        copy = partial(shutil.copytree, ignore=shutil.ignore_patterns("__pycache__", "static"))
        (copy if (REPOSITORY / each).is_dir() else shutil.copy)(REPOSITORY / each, tmp_path / each)
    (tmp_path / ".venv").symlink_to(REPOSITORY / ".venv")
    file = tmp_path / "airflow_provider_coordination" / mutation.file
    source = file.read_text()
    assert source.count(mutation.fix) == 1, "the fixed code has changed; change the mutation with it"
    file.write_text(source.replace(mutation.fix, mutation.without))
    done = subprocess.run(
        [sys.executable, "-m", *mutation.program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    log.warning("%s: %s", name, done.stdout.strip()[-300:])
    if mutation.tests:
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    else:
        assert done.returncode == 0 and done.stdout.strip(), f"{done.stderr[-2000:]}"
