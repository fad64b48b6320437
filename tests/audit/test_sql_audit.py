"""The audit of a stream's SQL table: by the table of batches, or by the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_coordination.audit.report import State
from tests.audit.test_table_audit import AuditedTable
from tests.support.sql_tables import SERVERS, SqlTarget

pytestmark = [pytest.mark.integration, pytest.mark.share(0.5)]


class SqlAudited(AuditedTable):
    """A table of a database.

    :param folder: an empty folder.
    :param url: of an empty database.
    """

    def __init__(self, folder: Path, url: str, **settings: object) -> None:
        self.target = SqlTarget(url, folder / "staging")
        super().__init__(folder, self.target.sink_settings(**settings))


@pytest.fixture(params=SERVERS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> SqlAudited:
    return SqlAudited(tmp_path, request.getfixturevalue(SERVERS[request.param]))


def test_sound_table_is_complete(table: SqlAudited) -> None:
    for reads_rows in (False, True):
        report = table.audit(reads_rows=reads_rows)
        [shard] = report.sinks[0].partitions
        assert not report.findings and not report.sinks[0].notes
        assert (shard.batches, shard.records, shard.rows, shard.until) == (3, 60, 60, table.checkpoint)


def test_rows_that_others_remove_show_by_batch(table: SqlAudited) -> None:
    [(number, batch_id), *_] = table.target.run("SELECT sequence_number, _batch_id FROM clicks")
    table.target.run(f"DELETE FROM clicks WHERE sequence_number = '{number}'")
    assert not table.wrong(), "the table of batches does not show it"
    [finding] = table.wrong(reads_rows=True)
    assert finding.state is State.GAP and f"batch {batch_id}: it has 19 rows instead of the 20" in finding.reason


def test_rows_that_others_copy_are_an_overlap(table: SqlAudited) -> None:
    table.target.run("INSERT INTO clicks SELECT * FROM clicks")
    findings = table.wrong(reads_rows=True)
    assert [each.state for each in findings] == [State.OVERLAP] * 3 and "40 rows instead of the 20" in findings[
        0
    ].reason


def test_database_of_an_older_backup_is_behind_the_store(table: SqlAudited) -> None:
    start, end = table.batch(3)
    [(last,), *_] = table.target.run(
        f'SELECT batch_id FROM _coordination_batches WHERE described LIKE \'%%"end": "{end}"%%\''
    )
    table.target.run(f"DELETE FROM clicks WHERE _batch_id = '{last}'")
    table.target.run(f"DELETE FROM _coordination_batches WHERE batch_id = '{last}'")
    [gap] = table.wrong()
    assert (gap.state, gap.after, gap.until, gap.batches) == (State.GAP, start, end, 1)


def test_lost_table_of_batches_leaves_only_ids(table: SqlAudited) -> None:
    table.target.run("DROP TABLE _coordination_batches")
    [gone] = table.wrong()
    assert "_coordination_batches is not in the schema" in gone.reason and gone.remedy
    table.deliver()
    report = table.audit(reads_rows=True)
    [note] = report.sinks[0].notes
    assert note.startswith("of 3 batches") and not [each for each in report.findings if each.state is State.GAP]


def test_dropped_table_is_named(table: SqlAudited) -> None:
    table.target.run("DROP TABLE clicks")
    assert any("is gone: restore it" in each.reason for each in table.wrong())
    assert {each.state for each in table.wrong(reads_rows=True)} == {State.UNEXPLAINED, State.GAP}
