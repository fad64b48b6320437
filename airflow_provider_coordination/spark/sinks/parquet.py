"""A Parquet dataset, whose files become visible by a rename, and on S3 by one conditional write.

A batch has a file of its own, named by its id, or its rows are in a file with those of other batches, whose name is
recorded with each of them; see `SharedFiles`. What is written first is in a folder of its own that readers pass over,
below the dataset's path and so on its filesystem. A manifest, written last, says what it holds: nothing is concluded
from which files are there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.concurrency import each_at_once, raised, side_by_side
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    Delivery,
    DeliveryError,
    Prepared,
    by_halves,
    each_by_itself,
)
from airflow_provider_coordination.spark.files import MissingFileError
from airflow_provider_coordination.spark.landed_files import check_all_of_it, landed_content, landed_schema
from airflow_provider_coordination.spark.landed_identity import batch_landed_in, file_name, without_batch
from airflow_provider_coordination.spark.landed_rows import MergedFile
from airflow_provider_coordination.spark.outages import calling
from airflow_provider_coordination.spark.parquet_settings import TARGET_FILE_BYTES, ParquetSettings
from airflow_provider_coordination.spark.settings import DEAD_LETTER, MAIN, SinkSettings, access_of
from airflow_provider_coordination.spark.shared_files import (
    SharedFiles,
    claim_of,
    may_share,
    new_shared_file,
    sharing,
    sharing_a_file,
)
from airflow_provider_coordination.spark.sinks import Rows, SinkKind, owed
from airflow_provider_coordination.spark.staging import (
    EMPTY_ABOVE,
    MANIFEST,
    STAGING,
    delete_staged,
    staged_by_former_owners,
)
from airflow_provider_coordination.spark.storage import (
    calls_at_once,
    check_writable,
    copy_file,
    delete_folder,
    exists,
    file_size,
    join,
    names_once,
    probe_rename,
    publish,
    read_text,
    read_whole,
    remove_if_empty,
    renames,
    schema_of,
    table_in,
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
class PutTogether:
    """Where the rows of a batch are prepared with those of others.

    :param shared_file: see `Attempt.shared_file`.
    :param columns: the columns of the file.
    """

    shared_file: str
    columns: pa.Schema


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
        alone = [attempt.batch_id for attempt in attempts if attempt.batch_id not in shared]
        looks = side_by_side(alone, lambda batch_id: exists(self.file(batch_id), self.access), self.at_once)
        return shared | {batch_id for batch_id, is_there in looks if raised(is_there)}

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
    def at_once(self) -> int:
        """How many calls to its filesystem are worth making at the same time."""
        return calls_at_once(self.path, self.access)

    @property
    def _shared(self) -> SharedFiles:
        return SharedFiles(self.path, self.access)

    def _in_shared_files(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that are in a file with others by an earlier delivery."""
        names = sharing_a_file(attempts, earlier=True)
        looks = side_by_side(names, lambda name: self._shared.batches(name) or set(), self.at_once)
        found = {name: raised(batches) for name, batches in looks}
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
        left = [attempt for attempt in alone if attempt.batch_id not in taken]
        each_at_once(left, lambda attempt: self._prepare_alone(attempt, rows), self.at_once)

    def _prepare_alone(self, attempt: Attempt, rows: Rows) -> None:
        delete_folder(self.staging(attempt), self.access)
        count = rows.count(attempt.batch_id)
        if count:
            [(file, size)] = rows.write([attempt.batch_id], self.staging(attempt)).items()
            self._seal(attempt, _staged_file(file, size, count))
        else:
            self._stage_nothing(attempt, rows.schema)

    def _prepare_together(self, name: str, attempts: Sequence[Attempt], rows: Rows) -> None:
        counts = {attempt.batch_id: rows.count(attempt.batch_id) for attempt in attempts}
        files = rows.write(list(counts), self._shared.staging(name)) if any(counts.values()) else {}
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
        is_alone = not attempt.has_former_owners or renames(self.path, self.access)
        if is_alone and not exists(self.file(attempt.batch_id), self.access):
            self._seal(attempt)
            return
        file = join(self.staging(attempt), "part-0.parquet")
        size = write_table(schema.empty_table(), file, self.access)
        self._seal(attempt, _staged_file(file, size, 0))

    def commit(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.commit`: each file becomes visible for itself."""
        together = sharing_a_file(attempts)
        each_at_once(together, lambda name: self._commit_together(name, together[name]), self.at_once)
        alone = [attempt for attempt in attempts if attempt.shared_file is None]
        each_at_once(self.owed(alone), self._commit_alone, self.at_once)

    def _commit_alone(self, attempt: Attempt) -> None:
        for staged in self._staged(attempt):
            self.publish(join(self.staging(attempt), staged.name), attempt, staged.bytes)

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

    def _landed_content(self, attempt: Attempt) -> bytes:
        check_all_of_it(attempt)
        with calling(self.name):
            return landed_content(attempt, [self], partial(read_whole, access=self.access))

    def owed(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Return those attempts whose batch has to get a file of its own, or another one."""
        left = owed(self, attempts)
        taken = self._in_shared_files([attempt for attempt in left if attempt.batch.redeliver])
        return [attempt for attempt in left if attempt.batch_id not in taken]

    def put_together(self, attempts: Sequence[Attempt]) -> dict[str, PutTogether | Exception]:
        """Prepare files of what is landed of some batches, those with the same columns in one file.

        :returns: by batch id where it is, or why its landed file cannot be read.
        :raises Exception: if no file can be written.
        """
        found: dict[str, PutTogether | Exception] = {}
        made: dict[pa.Schema, tuple[str, MergedFile]] = {}
        rows_of: dict[str, dict[str, int]] = {}  # by file and batch
        read = each_by_itself(attempts, self._landed_content, self.at_once)
        try:
            with ExitStack() as stack:
                for attempt, content in read:
                    try:
                        rows = table_in(raised(content))
                    except Exception as error:
                        found[attempt.batch_id] = error
                        continue
                    columns = rows.schema.remove_metadata()
                    if columns not in made:
                        name = new_shared_file(attempt)
                        file = join(self._shared.staging(name), "part-0.parquet")
                        merged = MergedFile(file, without_batch(rows.schema), self.access)
                        made[columns] = name, stack.enter_context(merged)
                    name, merged = made[columns]
                    merged.add(rows)
                    rows_of.setdefault(name, {})[attempt.batch_id] = rows.num_rows
                    found[attempt.batch_id] = PutTogether(shared_file=name, columns=columns)
            by_id = {attempt.batch_id: attempt for attempt in attempts}
            for name, merged in made.values():
                sharers = [by_id[batch_id] for batch_id in rows_of[name]]
                self._shared.seal(name, rows_of[name], sharers, {merged.uri: merged.size})
        except Exception:
            with suppress(OSError):  # the next owner sweeps what is left
                for name, _ in made.values():
                    delete_folder(self._shared.staging(name), self.access)
            raise
        return found

    def publish(self, file: str, attempt: Attempt, size: int) -> None:
        """Give a file the name of a batch.

        :param size: how many bytes it has to have.
        """
        publish(file, self.file(attempt.batch_id), size=size, claim=claim_of(attempt), access=self.access)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Sink.discard`: the folders above that hold nothing else go as well."""
        folders = {self.staging(attempt): None for attempt in attempts}
        each_at_once(folders, self._discard, self.at_once)

    def _discard(self, staging: str) -> None:
        delete_folder(staging, self.access)
        for _ in range(EMPTY_ABOVE):
            staging, _, _ = staging.rpartition("/")
            remove_if_empty(staging, self.access)

    def sweep(self, tokens: Mapping[str, int]) -> None:
        """See `Sink.sweep`."""
        delete_staged(staged_by_former_owners(self.path, tokens, self.access), self.access)

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
        needed = self._needed(attempts)
        prepared: dict[str, Prepared | Exception] = {}
        small = [attempt for attempt in attempts if attempt.batch_id in needed and self._is_small(attempt)]
        for file in sharing_a_file(sharing(small, self._sink.shared_bytes)).values():
            prepared |= self._put_together(file)
        alone = [attempt for attempt in attempts if attempt.batch_id not in prepared]
        prepare = partial(self._prepare, needed)
        prepared |= {each.batch_id: made for each, made in each_by_itself(alone, prepare, self._sink.at_once)}
        return {attempt.batch_id: prepared[attempt.batch_id] for attempt in attempts}

    def _needed(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that are not in, as far as that has to be known before their commit.

        The name of a batch's own file is given once, in a bucket, and who comes late changes nothing. That says nothing
        of a file that the batch shares.
        """
        unseen = [each for each in attempts if self._is_small(each) or not self._is_decided_by_name(each)]
        looked_at = {attempt.batch_id for attempt in unseen}
        needed = {attempt.batch_id for attempt in owed(self._sink, unseen)}
        return needed | {each.batch_id for each in attempts if each.batch_id not in looked_at}

    def _is_small(self, attempt: Attempt) -> bool:
        is_small = attempt.batch.file_bytes * SMALL_PART <= self._sink.target_file_bytes
        return is_small and not self._keep and may_share(attempt)

    def _put_together(self, attempts: Sequence[Attempt]) -> dict[str, Prepared | Exception]:
        """Prepare files that hold batches together; return what becomes of each batch."""
        results: dict[str, Prepared | Exception] = {}

        def put(some: Sequence[Attempt]) -> Mapping[str, PutTogether | Exception]:
            with calling(self._sink.name):
                return self._sink.put_together(some)

        for some, made in by_halves(attempts, put, "putting landed files together"):
            for attempt in some:
                result = made if isinstance(made, Exception) else made[attempt.batch_id]
                results[attempt.batch_id] = (
                    _of_landed(attempt, result)
                    if isinstance(result, Exception)
                    else Prepared(
                        records={self._sink.name: attempt.batch.records},
                        columns=_columns(result.columns),
                        shared_file=result.shared_file,
                    )
                )
        return results

    def _prepare(self, needed: Collection[str], attempt: Attempt) -> Prepared:
        check_all_of_it(attempt)
        with calling(self._sink.name):
            return self._looked_into(attempt, attempt.batch_id in needed)

    def _looked_into(self, attempt: Attempt, is_needed: bool) -> Prepared:
        visible = attempt.file
        try:  # each file, though all have the same columns: a damaged one must not become part of the dataset
            if is_needed:
                schema = landed_schema(attempt, [self._sink], self._sink.access)
                self._sink.end_shared([attempt], without_batch(schema))
                if self._copies:
                    copy_file(attempt.file, self._staged(attempt), self._sink.access)
            else:
                visible = self._sink.holding(attempt) or visible
                schema = schema_of(visible, self._sink.access)
        except pa.ArrowInvalid as error:
            raise DeliveryError(f"file {visible} is damaged: {error}; restore it, or reset its partition") from error
        return Prepared(records={self._sink.name: attempt.batch.records}, columns=_columns(schema))

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """Give each file its name in the dataset."""
        self._sink.commit([attempt for attempt in attempts if attempt.shared_file is not None])
        alone = [attempt for attempt in attempts if attempt.shared_file is None]
        decided = {attempt.batch_id for attempt in alone if self._is_decided_by_name(attempt)}
        left = self._sink.owed([attempt for attempt in alone if attempt.batch_id not in decided])
        first = [attempt for attempt in alone if attempt.batch_id in decided]
        each_at_once([*first, *left], self._publish, self._sink.at_once)

    def _publish(self, attempt: Attempt) -> None:
        source = self._staged(attempt) if self._copies else attempt.file
        self._sink.publish(source, attempt, attempt.batch.file_bytes)

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """See `Delivery.discard`."""
        self._sink.discard([a for a in attempts if self._copies or a.shared_file is not None])

    def sweep(self, tokens: Mapping[str, int]) -> None:
        """See `Delivery.sweep`."""
        self._sink.sweep(tokens)

    def _is_decided_by_name(self, attempt: Attempt) -> bool:
        """Return whether the request that gives a batch's own file its name is refused if the batch is in.

        It can be in by an earlier delivery of this job alone then, in that very file.
        """
        is_first = not attempt.has_former_owners and may_share(attempt)
        path, access = self._sink.path, self._sink.access
        return is_first and not renames(path, access) and names_once(path, access)

    def _staged(self, attempt: Attempt) -> str:
        return join(self._sink.staging(attempt), "landed.parquet")


def _staged_file(file: str, size: int, rows: int) -> StagedFile:
    return StagedFile(name=file.rsplit("/", 1)[-1], bytes=size, rows=rows)


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema}


def _of_landed(attempt: Attempt, error: Exception) -> DeliveryError:
    """Return why a batch cannot be put together with others."""
    if isinstance(error, DeliveryError):
        return error
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
