"""A Parquet dataset. Files become visible by a rename; on S3, by one conditional write.

A batch has its own file, named by its id, or shares a file with other batches. The name of a shared file is recorded
with each of its batches; see `SharedFiles`. Files are staged in a folder that readers skip, below the dataset's path
and so on its filesystem. A manifest, written last, names the content: no conclusion is drawn from which files exist.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import result_or_raise
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.column_lineage import unchanged
from airflow_provider_coordination.spark.concurrency import each_at_once, side_by_side
from airflow_provider_coordination.spark.dataset_compaction import Compactions, maintain_dataset
from airflow_provider_coordination.spark.dataset_ledger import DatasetLedger, dataset_contents
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    Prepared,
    by_halves,
    each_separately,
)
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_files import (
    check_all_of_it,
    landed_content,
    landed_error,
    landed_schema,
    restore_landed,
)
from airflow_provider_coordination.spark.landed_identity import without_batch
from airflow_provider_coordination.spark.ledger import IsOfSource, SinkContents
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.parquet_files import (
    MergedFile,
    column_types,
    read_whole,
    schema_of,
    table_in,
    write_table,
)
from airflow_provider_coordination.spark.partitioned_dataset import check_not_partitioned, partitioned_dataset
from airflow_provider_coordination.spark.shared_files import (
    CombinedBatch,
    SharedFiles,
    SharedManifest,
    assign_shared_files,
    by_shared_file,
    claim_of,
    may_share,
    new_shared_file,
)
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER, MAIN, SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import Maintenance, MaintenanceResult, Rows, Sink, SinkKind, owed
from airflow_provider_coordination.spark.staging import (
    Staging,
    delete_staged,
    listed,
    remove_staged,
    staged_by_previous_owners,
)
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    check_writable,
    copy_file,
    delete_folder,
    exists,
    has_exclusive_names,
    join,
    probe_rename,
    publish,
    renames,
)
from airflow_provider_coordination.spark.table_sinks import LandedDelivery
from airflow_provider_coordination.spark.writes import TARGET_FILE_BYTES, ParquetDataset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_PART = 32
"""Landed files of at least 1/32 of the target size are published unchanged; smaller ones are combined."""


@dataclass(frozen=True, kw_only=True)
class ParquetSink(Sink):
    """A Parquet dataset; a `Sink` that accepts landed files unchanged.

    :param name: the name of the sink.
    :param path: the folder of the dataset.
    :param where: which records go to the dataset, as a SQL predicate; None for all.
    :param access: how to reach the dataset, and the landed files in its bucket.
    :param target_file_bytes: the limit of landed bytes for the batches of a shared file.
    """

    separates_batches: ClassVar[bool] = True  # a rename publishes one file
    shares_files: ClassVar[bool] = True
    accepts_landed_files: ClassVar[bool] = True

    name: str
    path: str
    where: str | None = None
    access: Access = DEFAULT_ACCESS
    target_file_bytes: int = TARGET_FILE_BYTES

    @property
    @override
    def location(self) -> str:
        return self.path

    @override
    def check(self) -> None:
        field = f"ParquetDataset {self.name!r}: field 'path'"
        if self.name == DEAD_LETTER:
            field = "BadRecordSettings: field 'dead_letter_path'"
        check_writable(field, self.path, self.access)
        check_not_partitioned(field, self.path, self.access)

    @override
    def committed(self, attempts: Sequence[Attempt]) -> set[str]:
        shared = self._in_shared_files(attempts)
        alone = [attempt.batch_id for attempt in attempts if attempt.batch_id not in shared]
        checks = side_by_side(alone, lambda batch_id: exists(self.file(batch_id), self.access), self.at_once)
        found = shared | {batch_id for batch_id, is_there in checks if result_or_raise(is_there)}
        if any(a.has_previous_owners and a.batch_id not in found for a in attempts):
            found |= self.compacted.batches().keys() & {attempt.batch_id for attempt in attempts}
        return found

    @property
    def compacted(self) -> Compactions:
        """The batches in merged files."""
        return Compactions(self.path, self.access)

    def file(self, batch_id: str) -> str:
        """Return the path of the file that holds this batch alone."""
        return join(self.path, self.file_name(batch_id))

    @staticmethod
    def file_name(batch_id: str) -> str:
        """Return the name of the file that holds this batch alone."""
        return f"{batch_id}.parquet"

    def file_with(self, attempt: Attempt) -> str | None:
        """Return the file that holds a batch's rows; None if there is none."""
        for name in (attempt.shared_file, attempt.batch.shared_file):
            if name is not None and attempt.batch_id in (self._shared.batches(name) or ()):
                return self._shared.file(name)
        own = self.file(attempt.batch_id)
        return own if exists(own, self.access) else self.compacted.batches().get(attempt.batch_id)

    @property
    def at_once(self) -> int:
        """The number of simultaneous calls to the filesystem that are worthwhile."""
        return calls_at_once(self.path, self.access)

    @property
    def _shared(self) -> SharedFiles:
        return SharedFiles(self.path, self.access)

    @property
    def _alone(self) -> Staging:
        return Staging(self.path, self.access)

    def _in_shared_files(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that an earlier delivery committed in a shared file."""
        names = by_shared_file(attempts, earlier=True)
        checks = side_by_side(names, lambda name: self._shared.batches(name) or set(), self.at_once)
        found = {name: result_or_raise(batches) for name, batches in checks}
        return {a.batch_id for a in attempts if a.batch_id in found.get(a.batch.shared_file or "", ())}

    @override
    def shared_bytes(self, attempt: Attempt) -> int:
        return self.target_file_bytes if self._shared.takes(attempt) else 0

    @override
    def repartition(self, rows: DataFrame) -> DataFrame:
        # A rename publishes one file as a whole.
        return rows.coalesce(1)

    @override
    def scratch(self, attempts: Sequence[Attempt]) -> str:
        return self.staging(attempts[0]) + ".work"

    def staging(self, attempt: Attempt) -> str:
        """Return the folder where an attempt stages its files."""
        if attempt.shared_file is not None:
            return self._shared.staging(attempt.shared_file)
        return self._alone.folder(attempt)

    @override
    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        # A batch in a shared file stays there, even if its delivery was rejected.
        self.compacted.check_absent(attempts)
        for name, sharers in by_shared_file(attempts).items():
            self._prepare_together(name, sharers, rows)
        alone = [attempt for attempt in attempts if attempt.shared_file is None]
        taken = self.settle_shared_files(alone, rows.schema)
        left = [attempt for attempt in alone if attempt.batch_id not in taken]
        each_at_once(left, lambda attempt: self._prepare_alone(attempt, rows), self.at_once)

    def _prepare_alone(self, attempt: Attempt, rows: Rows) -> None:
        delete_folder(self.staging(attempt), self.access)
        if rows.count(attempt.batch_id):
            [(file, size)] = rows.write([attempt.batch_id], self.staging(attempt)).items()
            self._seal(attempt, {file: size})
        else:
            self._stage_empty(attempt, rows.schema)

    def _prepare_together(self, name: str, attempts: Sequence[Attempt], rows: Rows) -> None:
        counts = {attempt.batch_id: rows.count(attempt.batch_id) for attempt in attempts}
        files = rows.write(list(counts), self._shared.staging(name)) if any(counts.values()) else {}
        self._shared.seal(name, counts, attempts, files)

    def settle_shared_files(self, attempts: Sequence[Attempt], schema: pa.Schema) -> set[str]:
        """Settle the shared files of earlier deliveries; return the ids of the batches that those have committed.

        :param schema: the columns of the dataset.
        """
        taken: set[str] = set()
        for name, sharers in by_shared_file(attempts, earlier=True).items():
            found = self._shared.ended(name, sharers[0], schema)
            taken |= {attempt.batch_id for attempt in sharers if attempt.batch_id in found}
        return taken

    def _stage_empty(self, attempt: Attempt, schema: pa.Schema) -> None:
        """Record that a batch has no rows.

        If an earlier delivery left a file, a file without rows replaces it. A rename replaces the file only while this
        attempt may commit; a deletion has no such guard. The same applies if the filesystem does not rename and a
        previous owner's request may still create the name.
        """
        is_alone = not attempt.has_previous_owners or renames(self.path, self.access)
        if is_alone and not exists(self.file(attempt.batch_id), self.access):
            self._seal(attempt, {})
            return
        file = join(self.staging(attempt), "part-0.parquet")
        self._seal(attempt, {file: write_table(schema.empty_table(), file, self.access)})

    def _seal(self, attempt: Attempt, files: Mapping[str, int]) -> None:
        self._alone.seal(attempt, {"files": listed(self.staging(attempt), files)})

    @override
    def commit(self, attempts: Sequence[Attempt]) -> None:
        # Each file becomes visible on its own, after the ledger has the batches of all.
        together = by_shared_file(attempts)
        prepared = self._sealed_together(together)
        alone = {attempt.batch_id: attempt for attempt in self.owed([a for a in attempts if a.shared_file is None])}
        read = side_by_side(alone.values(), self._alone.sealed, self.at_once)
        staged = {attempt.batch_id: result_or_raise(manifest)["files"] for attempt, manifest in read}
        self.record(
            [
                *(
                    (attempt, manifest.files_of(attempt))
                    for name, manifest in prepared.items()
                    for attempt in together[name]
                    if manifest is not None
                ),
                *((alone[b], {self.file_name(b): each["bytes"] for each in files}) for b, files in staged.items()),
            ]
        )
        each_at_once(together, lambda name: self._commit_together(name, together[name], prepared[name]), self.at_once)
        each_at_once(alone, lambda batch_id: self._commit_alone(alone[batch_id], staged[batch_id]), self.at_once)

    def _sealed_together(self, names: Collection[str]) -> dict[str, SharedManifest | None]:
        """Return the manifests of shared files that are prepared, by name; None for one that is gone."""
        read = side_by_side(names, self._shared.sealed, self.at_once)
        return {name: result_or_raise(manifest) for name, manifest in read}

    def record(self, batches: Sequence[tuple[Attempt, Mapping[str, int]]]) -> None:
        """Record in the ledger the batches that are about to become visible; see `DatasetLedger.add`.

        Dead letters are recorded for batches that have some.
        """
        if self.name == DEAD_LETTER:
            batches = [(attempt, files) for attempt, files in batches if files]
        DatasetLedger(self.path, self.access).add(batches)

    @override
    def contents(self, wanted: IsOfSource, *, reads_rows: bool) -> SinkContents:
        deliveries = DatasetLedger(self.path, self.access).deliveries()
        is_partial = self.name == DEAD_LETTER
        return dataset_contents(
            self.path, deliveries, wanted, reads_rows=reads_rows, access=self.access, is_partial=is_partial
        )

    def _commit_alone(self, attempt: Attempt, files: Sequence[Mapping[str, Any]]) -> None:
        for staged in files:
            self.publish(join(self.staging(attempt), staged["name"]), attempt, staged["bytes"])

    def _commit_together(self, name: str, attempts: Sequence[Attempt], manifest: SharedManifest | None) -> None:
        """Publish a shared file. Some of its batches may be committed already, and not be prepared for it."""
        try:
            others = self._shared.commit(name, attempts, manifest)
        except MissingFileError:
            if len(self.committed(attempts)) < len(attempts):
                raise
            return
        if len(self.committed(others)) < len(others):
            raise DeliveryError(
                f"batch {others[0].batch_id}: the staged data in {self._shared.staging(name)} belongs to other batches"
            )

    def _landed_content(self, attempt: Attempt) -> bytes:
        check_all_of_it(attempt)
        with translating_outages(self.name):
            return landed_content(attempt, [self], partial(read_whole, access=self.access))

    def owed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return the attempts whose batch needs its own file, or a new one."""
        left = owed(self, attempts)
        taken = self._in_shared_files([attempt for attempt in left if attempt.batch.redeliver])
        return [attempt for attempt in left if attempt.batch_id not in taken]

    def combine_landed(self, attempts: Sequence[Attempt]) -> dict[str, CombinedBatch | Exception]:
        """Combine the landed files of some batches; files with the same columns go to one shared file.

        :returns: by batch id, the shared file, or the reason why the landed file cannot be read.
        :raises Exception: if no file can be written.
        """
        results: dict[str, CombinedBatch | Exception] = {}
        merged_files: dict[pa.Schema, tuple[str, MergedFile]] = {}
        rows_of: dict[str, dict[str, int]] = {}  # by file and batch
        read = each_separately(attempts, self._landed_content, self.at_once)
        try:
            with ExitStack() as stack:
                for attempt, content in read:
                    try:
                        rows = table_in(result_or_raise(content))
                    except Exception as error:
                        results[attempt.batch_id] = error
                        continue
                    columns = rows.schema.remove_metadata()
                    if columns not in merged_files:
                        name = new_shared_file(attempt)
                        file = join(self._shared.staging(name), "part-0.parquet")
                        merged = MergedFile(file, without_batch(rows.schema), self.access)
                        merged_files[columns] = name, stack.enter_context(merged)
                    name, merged = merged_files[columns]
                    merged.add(rows)
                    rows_of.setdefault(name, {})[attempt.batch_id] = rows.num_rows
                    results[attempt.batch_id] = CombinedBatch(shared_file=name, columns=columns)
            by_id = {attempt.batch_id: attempt for attempt in attempts}
            for name, merged in merged_files.values():
                sharers = [by_id[batch_id] for batch_id in rows_of[name]]
                self._shared.seal(name, rows_of[name], sharers, {merged.uri: merged.size})
        except Exception:
            with suppress(OSError):  # the next owner sweeps the rest
                for name, _ in merged_files.values():
                    delete_folder(self._shared.staging(name), self.access)
            raise
        return results

    def publish(self, file: str, attempt: Attempt, size: int) -> None:
        """Publish a file under the name of a batch.

        :param size: the expected size in bytes.
        """
        publish(file, self.file(attempt.batch_id), size=size, claim=claim_of(attempt), access=self.access)
        # A compaction that has read the replaced file hides this one.
        self.compacted.check_absent([attempt])

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        folders = dict.fromkeys(map(self.staging, attempts))
        each_at_once(folders, lambda folder: remove_staged(folder, self.access), self.at_once)

    @override
    def sweep(self, tokens: Mapping[str, int]) -> None:
        delete_staged(staged_by_previous_owners(self.path, tokens, self.access), self.access)

    @override
    def maintain(self, wanted: Maintenance) -> MaintenanceResult:
        done = maintain_dataset(self.path, wanted, access=self.access)
        if not wanted.is_dry_run:
            DatasetLedger(self.path, self.access).merge(datetime.now(UTC) - wanted.retention)
        return done

    # Landed files, unchanged

    @override
    def check_landing_path(self, landing_path: str) -> None:
        # Files cannot be published across filesystems.
        probe_rename(landing_path, self.path, self.access)

    @override
    def landed_delivery(self, *, keep: bool) -> Delivery:
        return ParquetLandedDelivery(
            self.path, name=self.name, keep=keep, access=self.access, target_file_bytes=self.target_file_bytes
        )

    @override
    def restore_landed_file(self, attempt: Attempt) -> bool:
        return restore_landed(attempt, self.file(attempt.batch_id), self.access)


class ParquetLandedDelivery(LandedDelivery):
    """Delivers batches as they were landed: large landed files are published unchanged, small ones are combined.

    The landed file itself carries a fencing token. The next owner renames it before it delivers.

    :param path: the folder of the dataset.
    :param name: the name of the sink.
    :param keep: whether a landed file may be needed again, because other parties acknowledge the batch too. Then the
        file is copied; otherwise it is renamed. If the filesystem does not rename, the file stays in both cases.
    :param access: how to reach the dataset.
    :param target_file_bytes: see `ParquetSink`.
    """

    def __init__(
        self,
        path: str,
        *,
        name: str = MAIN,
        keep: bool = False,
        access: Access = DEFAULT_ACCESS,
        target_file_bytes: int = TARGET_FILE_BYTES,
    ) -> None:
        self._dataset = ParquetSink(name=name, path=path, access=access, target_file_bytes=target_file_bytes)
        super().__init__(self._dataset, access)
        self._keep = keep
        self._copies = keep and renames(path, access)

    @override
    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        # Combines small landed files, copies those that are kept, and checks the others.
        needed = self._needed(attempts)
        prepared: dict[str, Prepared | Exception] = {}
        small = [attempt for attempt in attempts if attempt.batch_id in needed and self._is_small(attempt)]
        for file in by_shared_file(assign_shared_files(small, self._dataset.shared_bytes)).values():
            prepared |= self._prepare_combined(file)
        alone = [attempt for attempt in attempts if attempt.batch_id not in prepared]
        prepare = partial(self._prepare_alone, needed)
        prepared |= {each.batch_id: made for each, made in each_separately(alone, prepare, self._dataset.at_once)}
        return {attempt.batch_id: prepared[attempt.batch_id] for attempt in attempts}

    def _needed(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that are not committed, if that must be known before their commit.

        In a bucket, the name of a batch's own file can be created only once, so a late writer changes nothing. This
        does not apply to a shared file.
        """
        uncertain = [each for each in attempts if self._is_small(each) or not self._is_name_decisive(each)]
        checked = {attempt.batch_id for attempt in uncertain}
        needed = {attempt.batch_id for attempt in owed(self._dataset, uncertain)}
        return needed | {each.batch_id for each in attempts if each.batch_id not in checked}

    def _is_small(self, attempt: Attempt) -> bool:
        is_small = attempt.batch.file_bytes * SMALL_PART <= self._dataset.target_file_bytes
        return is_small and not self._keep and may_share(attempt)

    def _prepare_combined(self, attempts: Sequence[Attempt]) -> dict[str, Prepared | Exception]:
        """Prepare shared files; return the result for each batch."""
        results: dict[str, Prepared | Exception] = {}

        def put(some: Sequence[Attempt]) -> Mapping[str, CombinedBatch | Exception]:
            with translating_outages(self._dataset.name):
                return self._dataset.combine_landed(some)

        for some, made in by_halves(attempts, put, "combining landed files"):
            for attempt in some:
                result = made if isinstance(made, Exception) else made[attempt.batch_id]
                results[attempt.batch_id] = (
                    landed_error(attempt, result)
                    if isinstance(result, Exception)
                    else Prepared(
                        records={self._dataset.name: attempt.batch.records},
                        columns=column_types(result.columns),
                        lineage=unchanged(without_batch(result.columns).names),
                        shared_file=result.shared_file,
                    )
                )
        return results

    def _prepare_alone(self, needed: Collection[str], attempt: Attempt) -> Prepared:
        check_all_of_it(attempt)
        with translating_outages(self._dataset.name):
            self._dataset.compacted.check_absent([attempt])
            return self._inspect(attempt, attempt.batch_id in needed)

    def _inspect(self, attempt: Attempt, is_needed: bool) -> Prepared:
        visible = attempt.file
        try:  # check each file, though all have the same columns: no damaged file may become part of the dataset
            if is_needed:
                schema = landed_schema(attempt, [self._dataset], self._dataset.access)
                self._dataset.settle_shared_files([attempt], without_batch(schema))
                if self._copies:
                    copy_file(attempt.file, self._staged(attempt), self._dataset.access)
            else:
                visible = self._dataset.file_with(attempt) or visible
                schema = schema_of(visible, self._dataset.access)
        except pa.ArrowInvalid as error:
            raise DeliveryError(f"file {visible} is damaged: {error}; restore it, or reset its partition") from error
        return Prepared(
            records={self._dataset.name: attempt.batch.records},
            columns=column_types(schema),
            lineage=unchanged(without_batch(schema).names),
        )

    @override
    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self._dataset.commit([attempt for attempt in attempts if attempt.shared_file is not None])
        alone = [attempt for attempt in attempts if attempt.shared_file is None]
        decided = {attempt.batch_id for attempt in alone if self._is_name_decisive(attempt)}
        left = self._dataset.owed([attempt for attempt in alone if attempt.batch_id not in decided])
        first = [attempt for attempt in alone if attempt.batch_id in decided]
        self._dataset.record([(a, {self._dataset.file_name(a.batch_id): a.batch.file_bytes}) for a in (*first, *left)])
        each_at_once([*first, *left], self._publish, self._dataset.at_once)

    def _publish(self, attempt: Attempt) -> None:
        source = self._staged(attempt) if self._copies else attempt.file
        self._dataset.publish(source, attempt, attempt.batch.file_bytes)

    @override
    def discard(self, attempts: Sequence[Attempt]) -> None:
        self._dataset.discard([a for a in attempts if self._copies or a.shared_file is not None])

    def _is_name_decisive(self, attempt: Attempt) -> bool:
        """Return whether the request that creates the name of a batch's own file fails if the batch is committed.

        Then only an earlier delivery of this job can have committed it, in that very file.
        """
        is_first = not attempt.has_previous_owners and may_share(attempt)
        path, access = self._dataset.path, self._dataset.access
        return is_first and not renames(path, access) and has_exclusive_names(path, access)

    def _staged(self, attempt: Attempt) -> str:
        return join(self._dataset.staging(attempt), "landed.parquet")


def _make(settings: SinkSettings) -> Sink:
    dataset = ParquetDataset.from_mapping({"path": settings.location, **settings.settings})
    access = access_of([settings])
    return partitioned_dataset(settings, dataset, access) or ParquetSink(
        name=settings.name,
        path=settings.location,
        where=settings.where,
        access=access,
        target_file_bytes=dataset.target_file_bytes,
    )


KIND = SinkKind(make=_make, writes="airflow_provider_coordination.spark.writes:ParquetDataset")
