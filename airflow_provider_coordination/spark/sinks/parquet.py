"""A Parquet dataset that takes each batch as one file, named by the batch id: a rename makes it visible, and on S3 one
conditional write.

What is written first is in a folder of its own that readers pass over, below the dataset's path and so on its
filesystem. A manifest, written last, says what it holds: nothing is concluded from which files are there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import Attempt, Delivery, DeliveryError, Prepared
from airflow_provider_coordination.spark.files import Claim
from airflow_provider_coordination.spark.landed_files import check_all_of_it, ensure_landed
from airflow_provider_coordination.spark.landed_identity import batch_landed_in, file_name
from airflow_provider_coordination.spark.settings import DEAD_LETTER, MAIN, SinkSettings, access_of
from airflow_provider_coordination.spark.sinks import Rows, SinkKind, owed
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

MANIFEST = "_manifest.json"
"""The file in a staging folder that says what is staged."""
STAGING = "_staging"
"""The folder below a dataset's path that holds what is not visible yet: `<partition>/<fencing token>/<set>`."""
EMPTY_ABOVE = 2
"""How many folders above that of an attempt go once they are empty: its lease's and its partition's. Above them others
make folders at the same time."""


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
    """

    name: str
    path: str
    where: str | None = None
    access: Access = DEFAULT_ACCESS

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
        return {attempt.batch_id for attempt in attempts if exists(self.file(attempt.batch_id), self.access)}

    def file(self, batch_id: str) -> str:
        """Return the name of a batch's one file."""
        return join(self.path, f"{batch_id}.parquet")

    @property
    def is_apart(self) -> bool:
        """See `Sink.is_apart`: a rename publishes one batch."""
        return True

    def arrange(self, rows: DataFrame) -> DataFrame:
        """See `Sink.arrange`: one file is what a rename can publish whole."""
        return rows.coalesce(1)

    def scratch(self, attempts: Sequence[Attempt]) -> str:
        """See `Sink.scratch`."""
        return self.staging(attempts[0]) + ".work"

    def staging(self, attempt: Attempt) -> str:
        """Return the folder where an attempt puts what the dataset is to take."""
        return join(self.path, STAGING, attempt.folder, str(attempt.fencing_token), attempt.set_id)

    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """See `Sink.prepare`."""
        for attempt in attempts:
            delete_folder(self.staging(attempt), self.access)
            count = rows.count(attempt.batch_id)
            if count:
                [file] = rows.write([attempt.batch_id], self.staging(attempt))
                self._seal(attempt, self._staged_file(attempt, file, count))
            else:
                self._stage_nothing(attempt, rows.schema)

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
        """See `Sink.commit`: each batch becomes visible for itself."""
        for attempt in owed(self, attempts):
            staging = self.staging(attempt)
            for staged in self._staged(attempt):
                self.publish(join(staging, staged.name), attempt, staged.bytes)

    def publish(self, file: str, attempt: Attempt, size: int) -> None:
        """Give a file the name of a batch.

        :param size: how many bytes it has to have.
        """
        claim = Claim(fencing_token=attempt.fencing_token, set_id=attempt.set_id, replaces=attempt.batch.redeliver)
        publish(file, self.file(attempt.batch_id), size=size, claim=claim, access=self.access)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.discard`: the folders above that hold nothing else go as well."""
        for attempt in attempts:
            staging = self.staging(attempt)
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
        return PublishLanded(self.path, name=self.name, keep=keep, access=self.access)

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
    """Delivers batches as they were landed: the landed file becomes the dataset's.

    A landed file itself carries a fencing token, and is renamed by the next owner before that one delivers.

    :param path: the dataset's folder.
    :param name: the sink's name.
    :param keep: whether the landed file may be needed again, since the batch is acknowledged by others too: it is
        copied then, and renamed if not. Where nothing is renamed, it stays in either case.
    :param access: how the dataset is reached.
    """

    def __init__(self, path: str, *, name: str = MAIN, keep: bool = False, access: Access = DEFAULT_ACCESS) -> None:
        self._sink = ParquetSink(name=name, path=path, access=access)
        self._copies = keep and renames(path, access)

    @property
    def sinks(self) -> Sequence[str]:
        """See `Delivery.sinks`."""
        return (self._sink.name,)

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        """Copy landed files to where they can be renamed from; only look into those that need no copy."""
        needed = {attempt.batch_id for attempt in owed(self._sink, attempts)}
        prepared: dict[str, Prepared | Exception] = {}
        for attempt in attempts:
            try:
                prepared[attempt.batch_id] = self._prepare(attempt, attempt.batch_id in needed)
            except Exception as error:  # one partition's files fail one partition
                prepared[attempt.batch_id] = error
        return prepared

    def _prepare(self, attempt: Attempt, is_needed: bool) -> Prepared:
        check_all_of_it(attempt)
        visible = self._sink.file(attempt.batch_id)
        if is_needed:
            ensure_landed(attempt, [self._sink], self._sink.access)
            visible = attempt.file
            if self._copies:
                copy_file(attempt.file, self._staged(attempt), self._sink.access)
        try:  # each file, though all have the same columns: a damaged one must not become part of the dataset
            columns = {field.name: str(field.type) for field in schema_of(visible, self._sink.access)}
        except pa.ArrowInvalid as error:
            raise DeliveryError(f"file {visible} is damaged: {error}; restore it, or reset its partition") from error
        return Prepared(records={self._sink.name: attempt.batch.records}, columns=columns)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """Give each file the batch's name in the dataset."""
        for attempt in owed(self._sink, attempts):
            source = self._staged(attempt) if self._copies else attempt.file
            self._sink.publish(source, attempt, attempt.batch.file_bytes)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.discard`."""
        if self._copies:
            self._sink.discard(attempts)

    def sweep(self, folder: str, fencing_token: int) -> None:
        """See `Delivery.sweep`."""
        self._sink.sweep(folder, fencing_token)

    def _staged(self, attempt: Attempt) -> str:
        return join(self._sink.staging(attempt), "landed.parquet")


def _signature(attempt: Attempt) -> dict[str, str | int]:
    """Return what distinguishes the staged files of an attempt from those of any other."""
    return {"batch": attempt.batch_id, "set": attempt.set_id, "fencing_token": attempt.fencing_token}


def _make(settings: SinkSettings) -> ParquetSink:
    access = access_of([settings])
    return ParquetSink(name=settings.name, path=settings.location, where=settings.where, access=access)


KIND = SinkKind(make=_make, writes="airflow_provider_coordination.operators.writes.parquet:ParquetDataset")
