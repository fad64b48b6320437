"""A Parquet dataset, whose files become visible by a rename, and on S3 by one conditional write.

A batch has a file of its own, named by its id, or its rows are in a file with those of other batches, whose name is
recorded with each of them; see `SharedFiles`. What is written first is in a folder of its own that readers pass over,
below the dataset's path and so on its filesystem. A manifest, written last, says what it holds: nothing is concluded
from which files are there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    Prepared,
    SinkAwayError,
    by_halves,
    one_by_one,
)
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_files import check_all_of_it, ensure_landed
from airflow_provider_coordination.spark.landed_identity import batch_landed_in, file_name, without_batch
from airflow_provider_coordination.spark.landed_rows import merge
from airflow_provider_coordination.spark.outages import calling
from airflow_provider_coordination.spark.parquet_settings import TARGET_FILE_BYTES, ParquetSettings
from airflow_provider_coordination.spark.settings import DEAD_LETTER, MAIN, SinkSettings, access_of
from airflow_provider_coordination.spark.shared_files import (
    SharedFiles,
    claim_of,
    may_share,
    sharing,
    sharing_a_file,
    together,
)
from airflow_provider_coordination.spark.sinks import Rows, SinkKind, owed
from airflow_provider_coordination.spark.staging import EMPTY_ABOVE, MANIFEST, STAGING
from airflow_provider_coordination.spark.storage import (
    check_writable,
    copy_file,
    delete_folder,
    exists,
    file_size,
    folders_in,
    join,
    probe_rename,
    publish,
    read_text,
    remove_if_empty,
    renames,
    schema_of,
    write_table,
    write_text,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SMALL_PART = 32
"""What is landed is published as it is from this part of a file's size on; what is smaller is put together."""


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """A file that is staged.

    :param name: its name in the staging folder.
    :param bytes: its size.
    :param rows: how many rows it holds.
    """

    name: str
    bytes: int
    rows: int


@dataclass(frozen=True, kw_only=True)
class ParquetSink:
    """A Parquet dataset; a `Sink` that takes landed files as they are.

    :param name: its name.
    :param path: the dataset's folder.
    :param where: which records go there, as a SQL predicate; None for all.
    :param access: how it is reached, and what is landed in its bucket.
    :param target_file_bytes: how many landed bytes the batches of a file have at most, where it holds several.
    """

    name: str
    path: str
    where: str | None = None
    access: Access = DEFAULT_ACCESS
    target_file_bytes: int = TARGET_FILE_BYTES

    @property
    def location(self) -> str:
        """See `Sink.location`."""
        return self.path

    def check(self) -> None:
        """See `Sink.check`."""
        is_dead_letter = self.name == DEAD_LETTER
        field = (
            "BadRecordSettings: field 'dead_letter_path'"
            if is_dead_letter
            else f"field 'path' of ParquetDataset {self.name!r}"
        )
        check_writable(field, self.path, self.access)

    def taken(self, attempts: Sequence[Attempt]) -> set[str]:
        """See `Sink.taken`."""
        shared = self._in_shared_files(attempts)
        return {
            attempt.batch_id
            for attempt in attempts
            if attempt.batch_id in shared or exists(self.file(attempt.batch_id), self.access)
        }

    def file(self, batch_id: str) -> str:
        """Return the name of the file that holds one batch alone."""
        return join(self.path, f"{batch_id}.parquet")

    def holding(self, attempt: Attempt) -> str | None:
        """Return the file that holds a batch's rows; None if there is none."""
        for name in (attempt.shared_file, attempt.batch.shared_file):
            if name is not None and attempt.batch_id in (self._shared.batches(name) or ()):
                return self._shared.file(name)
        own = self.file(attempt.batch_id)
        return own if exists(own, self.access) else None

    @property
    def _shared(self) -> SharedFiles:
        return SharedFiles(self.path, self.access)

    def _in_shared_files(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that are in a file with others by an earlier delivery."""
        names = {attempt.batch.shared_file for attempt in attempts}
        found = {name: self._shared.batches(name) or set() for name in names if name is not None}
        return {a.batch_id for a in attempts if a.batch_id in found.get(a.batch.shared_file or "", ())}

    def shared_bytes(self, attempt: Attempt) -> int:
        """See `SharesFiles.shared_bytes`."""
        return self.target_file_bytes if self._shared.takes(attempt) else 0

    @property
    def is_apart(self) -> bool:
        """See `Sink.is_apart`: a rename publishes one file."""
        return True

    def arrange(self, rows: DataFrame) -> DataFrame:
        """See `Sink.arrange`: one file is what a rename can publish whole."""
        return rows.coalesce(1)

    def scratch(self, attempts: Sequence[Attempt]) -> str:
        """See `Sink.scratch`."""
        return self.staging(attempts[0]) + ".work"

    def staging(self, attempt: Attempt) -> str:
        """Return the folder where an attempt puts what the dataset is to take."""
        if attempt.shared_file is not None:
            return self._shared.staging(attempt.shared_file)
        return join(self.path, STAGING, attempt.folder, str(attempt.fencing_token), attempt.set_id)

    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """See `Sink.prepare`: what is in a file with others stays there, also if its delivery was rejected."""
        for name, sharers in sharing_a_file(attempts).items():
            self._prepare_together(name, sharers, rows)
        alone = [attempt for attempt in attempts if attempt.shared_file is None]
        taken = self.end_shared(alone, rows.schema)
        for attempt in alone:
            if attempt.batch_id in taken:
                continue
            delete_folder(self.staging(attempt), self.access)
            count = rows.count(attempt.batch_id)
            if count:
                [file] = rows.write([attempt.batch_id], self.staging(attempt))
                self._seal(attempt, self._staged_file(attempt, file, count))
            else:
                self._stage_nothing(attempt, rows.schema)

    def _prepare_together(self, name: str, attempts: Sequence[Attempt], rows: Rows) -> None:
        counts = {attempt.batch_id: rows.count(attempt.batch_id) for attempt in attempts}
        files = rows.write(list(counts), self._shared.staging(name)) if any(counts.values()) else []
        self._shared.seal(name, counts, attempts, files)

    def end_shared(self, attempts: Sequence[Attempt], schema: pa.Schema) -> set[str]:
        """End what earlier deliveries of batches left open; return the ids of those that are in by them.

        :param schema: the columns of the dataset.
        """
        taken: set[str] = set()
        for name, sharers in sharing_a_file(attempts, earlier=True).items():
            found = self._shared.ended(name, sharers[0], schema)
            taken |= {attempt.batch_id for attempt in sharers if attempt.batch_id in found}
        return taken

    def _stage_nothing(self, attempt: Attempt, schema: pa.Schema) -> None:
        """Stage that a batch has no rows.

        Where an earlier delivery left a file, one without rows takes its place: what is replaced by a rename is
        replaced only while this attempt may commit, and a deletion is not. So it does where nothing is renamed and a
        former owner's request may still come to the name.
        """
        is_alone = attempt.fencing_token == attempt.batch.fencing_token or renames(self.path, self.access)
        if is_alone and not exists(self.file(attempt.batch_id), self.access):
            self._seal(attempt)
            return
        file = join(self.staging(attempt), "part-0.parquet")
        write_table(schema.empty_table(), file, self.access)
        self._seal(attempt, self._staged_file(attempt, file, 0))

    def commit(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.commit`: each file becomes visible for itself."""
        for name, sharers in sharing_a_file(attempts).items():
            self._commit_together(name, sharers)
        for attempt in self.owed([attempt for attempt in attempts if attempt.shared_file is None]):
            staging = self.staging(attempt)
            for staged in self._staged(attempt):
                self.publish(join(staging, staged.name), attempt, staged.bytes)

    def _commit_together(self, name: str, attempts: Sequence[Attempt]) -> None:
        """Make a file visible that batches share, some of which may be in already, and were not prepared for it."""
        try:
            others = self._shared.commit(name, attempts)
        except MissingFileError:
            if len(self.taken(attempts)) < len(attempts):
                raise
            return
        if len(self.taken(others)) < len(others):
            raise DeliveryError(f"batch {others[0].batch_id}: {self._shared.staging(name)} holds other batches")

    def owed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return those attempts whose batch has to get a file of its own, or another one."""
        left = owed(self, attempts)
        taken = self._in_shared_files([attempt for attempt in left if attempt.batch.redeliver])
        return [attempt for attempt in left if attempt.batch_id not in taken]

    def put_together(self, attempts: Sequence[Attempt]) -> None:
        """Prepare a file of what is landed of some batches.

        :param attempts: of batches that share a file, with the same columns.
        """
        [name] = sharing_a_file(attempts)
        file = join(self._shared.staging(name), "part-0.parquet")
        schema = without_batch(schema_of(attempts[0].file, self.access))
        counts = merge([attempt.file for attempt in attempts], schema, file, self.access)
        rows = {attempt.batch_id: count for attempt, count in zip(attempts, counts, strict=True)}
        self._shared.seal(name, rows, attempts, [file])

    def publish(self, file: str, attempt: Attempt, size: int) -> None:
        """Give a file the name of a batch.

        :param size: how many bytes it has to have.
        """
        publish(file, self.file(attempt.batch_id), size=size, claim=claim_of(attempt), access=self.access)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.discard`: the folders above that hold nothing else go as well."""
        for staging in {self.staging(attempt): None for attempt in attempts}:
            delete_folder(staging, self.access)
            for _ in range(EMPTY_ABOVE):
                staging, _, _ = staging.rpartition("/")
                remove_if_empty(staging, self.access)

    def sweep(self, folder: str, fencing_token: int) -> None:
        """See `Sink.sweep`."""
        staged = join(self.path, STAGING, folder)
        for name in folders_in(staged, self.access):
            if name.isdigit() and int(name) < fencing_token:
                delete_folder(join(staged, name), self.access)

    def _staged_file(self, attempt: Attempt, file: str, rows: int) -> StagedFile:
        """Return what the manifest says of a file.

        :raises DeliveryError: if it is gone.
        """
        size = file_size(file, self.access)
        if size is None:
            raise DeliveryError(f"batch {attempt.batch_id}: the staged file {file} is gone")
        return StagedFile(name=file.rsplit("/", 1)[-1], bytes=size, rows=rows)

    def _seal(self, attempt: Attempt, *files: StagedFile) -> None:
        manifest = {**_signature(attempt), "files": [asdict(file) for file in files]}
        write_text(join(self.staging(attempt), MANIFEST), json.dumps(manifest), self.access)

    def _staged(self, attempt: Attempt) -> list[StagedFile]:
        staging = self.staging(attempt)
        try:
            manifest = json.loads(read_text(join(staging, MANIFEST), self.access))
            files = [StagedFile(**file) for file in manifest.pop("files")]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DeliveryError(
                f"batch {attempt.batch_id}: what was staged in {staging} is gone or not whole: {error}"
            ) from None
        if manifest != _signature(attempt):
            raise DeliveryError(f"batch {attempt.batch_id}: {staging} holds another delivery: {manifest}")
        return files

    # Landed files as they are

    def check_landing(self, landing_path: str) -> None:
        """See `TakesLanded.check_landing`: nothing is published across filesystems."""
        probe_rename(landing_path, self.path, self.access)

    def taking_landed(self, *, keep: bool) -> Delivery:
        """See `TakesLanded.taking_landed`."""
        return PublishLanded(
            self.path, name=self.name, keep=keep, access=self.access, target_file_bytes=self.target_file_bytes
        )

    def restore_landed(self, attempt: Attempt) -> bool:
        """See `TakesLanded.restore_landed`."""
        batch, published = attempt.batch, self.file(attempt.batch_id)
        if file_size(published, self.access) != batch.file_bytes:
            return False
        if batch_landed_in(published, self.access) != batch.batch_id:
            return False
        copy = join(attempt.file.rpartition("/")[0], file_name("published", attempt.fencing_token))
        copy_file(published, copy, self.access)
        publish(copy, attempt.file, size=batch.file_bytes, access=self.access)
        return True


class PublishLanded:
    """Delivers batches as they were landed: a large landed file becomes the dataset's, small ones are put together.

    A landed file itself carries a fencing token, and is renamed by the next owner before that one delivers.

    :param path: the dataset's folder.
    :param name: the sink's name.
    :param keep: whether the landed file may be needed again, since the batch is acknowledged by others too: each is
        copied then, and renamed if not. Where nothing is renamed, it stays in either case.
    :param access: how the dataset is reached.
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
        self._sink = ParquetSink(name=name, path=path, access=access, target_file_bytes=target_file_bytes)
        self._keep = keep
        self._copies = keep and renames(path, access)

    @property
    def sinks(self) -> Sequence[str]:
        """See `Delivery.sinks`."""
        return (self._sink.name,)

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        """Put small landed files together, copy those that are kept, and look into the others."""
        needed = {attempt.batch_id for attempt in owed(self._sink, attempts)}
        prepared: dict[str, Prepared | Exception] = {}
        small: dict[str, list[Attempt]] = {}  # by their columns
        for attempt, made in one_by_one(attempts, lambda each: self._prepare(each, each.batch_id in needed)):
            prepared[attempt.batch_id] = made
            if isinstance(made, Prepared) and attempt.batch_id in needed and self._is_small(attempt):
                small.setdefault(str(made.columns), []).append(attempt)
        for alike in small.values():
            named = sharing(alike, self._sink.shared_bytes)
            for file in sharing_a_file(named).values():
                prepared |= self._put_together(file, prepared)
        return prepared

    def _is_small(self, attempt: Attempt) -> bool:
        is_small = attempt.batch.file_bytes * SMALL_PART <= self._sink.target_file_bytes
        return is_small and not self._keep and may_share(attempt)

    def _put_together(
        self, attempts: Sequence[Attempt], prepared: Mapping[str, Prepared | Exception]
    ) -> dict[str, Prepared | Exception]:
        """Prepare files that hold batches together; return what becomes of each batch.

        :param prepared: what becomes of them otherwise.
        """
        results: dict[str, Prepared | Exception] = {}

        def put(some: Sequence[Attempt]) -> Sequence[Attempt]:
            named = together(some)
            try:
                with calling(self._sink.name):
                    self._sink.put_together(named)
            except Exception:
                with suppress(OSError):  # the next owner sweeps what is left
                    self._sink.discard(named)
                raise
            return named

        for some, named in by_halves(attempts, put, "putting landed files together"):
            if isinstance(named, Exception):
                results[some[0].batch_id] = named if isinstance(named, SinkAwayError) else _unreadable(some[0], named)
                continue
            for attempt in named:
                made = prepared[attempt.batch_id]
                assert isinstance(made, Prepared)
                results[attempt.batch_id] = replace(made, shared_file=attempt.shared_file)
        return results

    def _prepare(self, attempt: Attempt, is_needed: bool) -> Prepared:
        check_all_of_it(attempt)
        with calling(self._sink.name):
            return self._looked_into(attempt, is_needed)

    def _looked_into(self, attempt: Attempt, is_needed: bool) -> Prepared:
        visible = attempt.file
        if is_needed:
            ensure_landed(attempt, [self._sink], self._sink.access)
            self._sink.end_shared([attempt], without_batch(schema_of(attempt.file, self._sink.access)))
            if self._copies:
                copy_file(attempt.file, self._staged(attempt), self._sink.access)
        else:
            visible = self._sink.holding(attempt) or visible
        try:  # each file, though all have the same columns: a damaged one must not become part of the dataset
            columns = {field.name: str(field.type) for field in schema_of(visible, self._sink.access)}
        except pa.ArrowInvalid as error:
            raise DeliveryError(f"file {visible} is damaged: {error}; restore it, or reset its partition") from error
        return Prepared(records={self._sink.name: attempt.batch.records}, columns=columns)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """Give each file its name in the dataset."""
        alone = [attempt for attempt in attempts if attempt.shared_file is None]
        self._sink.commit([attempt for attempt in attempts if attempt.shared_file is not None])
        for attempt in self._sink.owed(alone):
            source = self._staged(attempt) if self._copies else attempt.file
            self._sink.publish(source, attempt, attempt.batch.file_bytes)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.discard`."""
        self._sink.discard([a for a in attempts if self._copies or a.shared_file is not None])

    def sweep(self, folder: str, fencing_token: int) -> None:
        """See `Delivery.sweep`."""
        self._sink.sweep(folder, fencing_token)

    def _staged(self, attempt: Attempt) -> str:
        return join(self._sink.staging(attempt), "landed.parquet")


def _unreadable(attempt: Attempt, error: Exception) -> DeliveryError:
    return DeliveryError(f"landed file {attempt.file} cannot be read: {error}; restore it, or reset its partition")


def _signature(attempt: Attempt) -> dict[str, str | int]:
    """Return what distinguishes the staged files of an attempt from those of any other."""
    return {"batch": attempt.batch_id, "set": attempt.set_id, "fencing_token": attempt.fencing_token}


def _make(settings: SinkSettings) -> ParquetSink:
    known = read_settings(ParquetSettings, f"settings of {settings}", settings.settings)
    return ParquetSink(
        name=settings.name,
        path=settings.location,
        where=settings.where,
        access=access_of([settings]),
        target_file_bytes=known.target_file_bytes,
    )


KIND = SinkKind(make=_make, writes="airflow_provider_coordination.operators.writes.parquet:ParquetDataset")
