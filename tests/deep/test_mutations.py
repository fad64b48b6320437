"""Tests find known defects: with each fix removed from a copy of the package, the fix's test fails."""

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
    :param test: the test that fails without the fix, below `tests`.
    """

    file: str
    fix: str
    without: str
    test: str


MUTATIONS = {
    "messages are deleted before their objects are recorded": Mutation(
        "sources/s3/announcements.py",
        "            if taken:\n                yield page_of(taken, self._limits)\n",
        "            self._settle(reading)\n            if taken:\n"
        "                yield page_of(taken, self._limits)\n",
        "sources/s3/test_announcements.py::test_struck_run_loses_and_doubles_nothing[killed-recorded]",
    ),
    "a kept message is deleted although its object was set aside": Mutation(
        "sources/kept_messages.py",
        "partition if index is None else self._split(each, index)",
        "partition",
        "sources/s3/test_announcements.py::test_message_of_undeliverable_object_goes_to_the_dead[unreadable]",
    ),
    "staged files are listed, and none is an empty result": Mutation(
        "spark/sinks/parquet.py",
        "        for staged in files:\n",
        "        from airflow_provider_coordination.spark.storage import delete_file, file_size, files_below\n"
        "        found = [file for file in files_below(self.staging(attempt)) if file.endswith('.parquet')]\n"
        "        if not found:\n"
        "            delete_file(self.file(attempt.batch_id))\n"
        "        names = [file.rsplit('/', 1)[-1] for file in found]\n"
        "        for staged in [{'name': n, 'bytes': file_size(join(self.staging(attempt), n))} for n in names]:\n",
        "spark/sinks/test_parquet.py::test_missing_staged_file_publishes_nothing",
    ),
    "nobody asks the store before a batch becomes visible": Mutation(
        "spark/deliveries.py",
        "self._confirm_ownership(left, delivered)",
        "pass",
        "spark/test_deliveries.py::test_lost_lease_excludes_only_its_batch",
    ),
    "what previous owners staged stays": Mutation(
        "spark/staging.py",
        "int(name) < token]",
        "int(name) < 0]",
        "spark/sinks/test_contract.py::test_sweep_removes_only_files_of_previous_owners[parquet-one batch]",
    ),
    "an empty result deletes what it replaces": Mutation(
        "spark/sinks/parquet.py",
        "        for staged in files:\n",
        "        if not files:\n"
        "            from airflow_provider_coordination.spark.storage import delete_file\n"
        "            delete_file(self.file(attempt.batch_id))\n"
        "        for staged in files:\n",
        "spark/sinks/test_parquet.py::test_late_commit_without_rows_leaves_the_next_file",
    ),
    "what was published is not as good as what was landed": Mutation(
        "spark/landed_files.py",
        "batch_landed_in(published, access) != batch.batch_id",
        "True",
        "spark/sinks/test_publishing_landed.py::test_rejected_delivery_is_replaced_despite_its_renamed_file",
    ),
    "a batch keeps its state from before its set was cancelled": Mutation(
        "spark/deliveries.py",
        "batch=_waiting_batch(leased, batch.batch_id, waiting.set_id)",
        "batch=batch",
        "spark/test_deliveries.py::test_batch_is_replaced_if_the_sinks_changed_since_its_delivery",
    ),
    "landed files keep their names": Mutation(
        "spark/landed_files.py",
        "        location = under_token(batch.file, token)\n",
        "        return batch.file\n        location = under_token(batch.file, token)\n",
        "spark/test_landed_files.py::test_previous_owner_cannot_restore_a_file_under_its_lease",
    ),
    "a file that batches share becomes visible before anybody knows its name": Mutation(
        "spark/deliveries.py",
        "stored |= leases.change_progress_each(in_files)",
        "stored |= leases.refresh_each([*in_files])",
        "spark/test_deliveries.py::test_shared_file_name_is_recorded_before_the_file_exists",
    ),
    "the name of a file that batches share is left free": Mutation(
        "spark/shared_files.py",
        "        if not renames(self._root, self._access):\n            claim",
        "        if False:\n            claim",
        "spark/test_shared_files.py::test_late_request_finds_its_name_taken",
    ),
    "a name is given again to a later writer": Mutation(
        "spark/s3_objects.py",
        '            return {"IfNoneMatch": "*"}\n',
        "            return {}\n",
        "spark/test_shared_files.py::test_late_request_finds_its_name_taken",
    ),
    "folders have 32 bits of their keys": Mutation(
        "spark/storage.py",
        "hexdigest()[:32]",
        "hexdigest()[:8]",
        "spark/test_storage.py::test_safe_names_differ_in_other_scripts_and_stay_short",
    ),
    "a lease that is lost while its partition is taken over ends the round": Mutation(
        "spark/active_partitions.py",
        '            log.warning("partition %s is left to its next owner: %s", key, error)\n',
        "            raise\n",
        "spark/test_struck_jobs.py::test_lease_lost_within_a_round_does_not_end_it",
    ),
    "files that cannot be deleted end the round": Mutation(
        "spark/landed_files.py",
        '    except OSError as error:\n        log.warning("landed files could not be deleted',
        '    except ZeroDivisionError as error:\n        log.warning("landed files could not be deleted',
        "spark/test_landed_files.py::test_undeletable_files_end_no_takeover",
    ),
    "overdue sets end in the first round alone": Mutation(
        "spark/job_sets.py",
        "        if expiry is not None and expiry <= self._coordinator.clock.now():\n",
        "        if expiry is None:\n",
        "spark/test_downstream.py::test_job_expires_overdue_sets_without_a_watcher",
    ),
    "a Delta table is not looked into again after a commit without a response": Mutation(
        "spark/sinks/delta/sink.py",
        "            owed = self._owed(table, attempts)\n",
        "            owed = self._owed(table, attempts) if failed is None else list(attempts)\n",
        "spark/sinks/test_delta.py::test_commit_with_a_lost_response_is_made_once",
    ),
    "only the latest commits of a Delta table are searched": Mutation(
        "spark/sinks/delta/log.py",
        "for limit in LATEST:",
        "for limit in LATEST[:-1]:",
        "spark/sinks/test_delta.py::test_batch_is_found_behind_any_number_of_commits",
    ),
    "a commit to a Delta table names no tombstones": Mutation(
        "spark/sinks/delta/log.py",
        "        if tombstones is not None:\n",
        "        if tombstones == 0:\n",
        "spark/sinks/test_ordered_merging.py::test_late_change_does_not_restore_a_deleted_key",
    ),
    "a Delta table that nothing changed gets no commit": Mutation(
        "spark/sinks/delta/log.py",
        '    if not done["num_target_files_added"] and not done["num_target_files_removed"]:',
        "    if done is None:",
        "spark/sinks/test_ordered_merging.py::test_batch_of_late_changes_counts_as_delivered",
    ),
    "a RESTORE of a Delta table is not noticed": Mutation(
        "spark/sinks/delta/log.py",
        'if entry.get("operation") == "RESTORE":',
        "if False:",
        "spark/sinks/test_delta.py::test_batch_undone_by_a_restore_is_redelivered",
    ),
    "a RESTORE is not looked for before a rejected batch is replaced": Mutation(
        "spark/sinks/delta/sink.py",
        "self._log.report_restores(table, [attempt for attempt in owed if attempt.batch.redeliver])",
        "pass",
        "spark/sinks/test_delta.py::test_restore_is_reported_before_a_rejected_batch_is_replaced",
    ),
    "a rollback of an Iceberg table is not reported": Mutation(
        "spark/sinks/iceberg/sink.py",
        "        self._report_undone(history)\n",
        "",
        "spark/sinks/test_iceberg.py::test_rolled_back_batches_are_reported_once_and_delivered_again",
    ),
    "a picked snapshot brings no batches": Mutation(
        "spark/sinks/iceberg/snapshots.py",
        "None if snapshot.summary is None else snapshot.summary.get(PICKED_FROM)",
        "None",
        "spark/sinks/test_iceberg.py::test_picked_batch_is_not_delivered_again",
    ),
    "the deleted positions of an Iceberg file are shifted by one": Mutation(
        "spark/sinks/iceberg/data_files.py",
        "at = positions(rows, first)",
        "at = positions(rows, first + 1)",
        "spark/sinks/test_position_deletes.py::test_merge_adds_deletes_and_keeps_the_data_files",
    ),
    "the rows that an Iceberg table has deleted are compared with changes": Mutation(
        "spark/sinks/iceberg/data_files.py",
        "yield rows.filter(pc.invert(pc.is_in(at, gone))) if len(gone) else rows",
        "yield rows",
        "spark/sinks/test_position_deletes.py::test_merge_counts_positions_beside_foreign_deletes",
    ),
    "the deletes of an Iceberg table are older than its rows": Mutation(
        "spark/sinks/iceberg/position_deletes.py",
        "snapshot_id=self._snapshot_id, data_file=file",
        "snapshot_id=self._snapshot_id, data_file=file, sequence_number=0",
        "spark/sinks/test_position_deletes.py::test_merge_adds_deletes_and_keeps_the_data_files",
    ),
    "new deletes of an Iceberg file forget the previous ones": Mutation(
        "spark/sinks/iceberg/position_deletes.py",
        "pa.chunked_array([rows.positions, rows.deleted])",
        "pa.chunked_array([rows.positions])",
        "spark/sinks/test_position_deletes.py::test_second_merge_supersedes_the_first_deletes",
    ),
    "deletes that name rows of several Iceberg files are superseded": Mutation(
        "spark/sinks/iceberg/position_deletes.py",
        "        if (file.lower_bounds or {}).get(PATH_ID) == (file.upper_bounds or {}).get(PATH_ID) == bound\n",
        "",
        "spark/sinks/test_position_deletes.py::test_merge_counts_positions_beside_foreign_deletes",
    ),
    "maintenance of an Iceberg table drops deletes and keeps their rows": Mutation(
        "spark/sinks/iceberg/maintenance.py",
        "if not (is_small or has_deleted(task)):",
        "if not is_small:",
        "spark/sinks/test_position_deletes.py::test_maintenance_folds_deletes_into_data_files",
    ),
    "a refused commit to an Iceberg table leaves its deletes": Mutation(
        "spark/sinks/iceberg/snapshots.py",
        ", *(file.file_path for file in self._added_deletes)",
        ",",
        "spark/sinks/test_position_deletes.py::test_deletes_of_a_refused_commit_are_removed",
    ),
    "a merge into an Iceberg table ignores tombstones": Mutation(
        "spark/sinks/iceberg/sink.py",
        "            changes = tombstones.without_late(number, changes)\n",
        "",
        "spark/sinks/test_position_deletes.py::test_maintenance_folds_deletes_into_data_files",
    ),
    "nobody waits for the locks of an abandoned session": Mutation(
        "spark/sinks/sql/database.py",
        "if now - self._began >= LOCKED_SECONDS:",
        "if self._began:",
        "spark/sinks/test_lock_wait.py::test_lock_is_waited_for_until_sessions_have_ended",
    ),
    "simultaneous merges do not wait for deletes that are not committed": Mutation(
        "spark/sinks/sql/__init__.py",
        "            self._taken.lock_target(connection)\n",
        "            pass\n",
        "spark/sinks/test_sql_merging.py::test_older_change_waits_for_an_uncommitted_delete[postgresql-absent key]",
    ),
    "a session that stopped within a COPY keeps its locks": Mutation(
        "spark/sinks/sql/database.py",
        "            self._end(holder)\n",
        "",
        "spark/sinks/test_lock_wait.py::test_session_stalled_in_a_copy_is_ended_once_abandoned",
    ),
}
COPIED = ("airflow_provider_coordination", "tests", "demo", "pyproject.toml")
"""What a run of the tests needs beside the environment."""


@pytest.mark.parametrize("name", MUTATIONS)
def test_removed_fix_fails_its_test(name: str, tmp_path: Path) -> None:
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
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/{mutation.test}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    log.warning("%s: %s", name, done.stdout.strip()[-300:])
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
