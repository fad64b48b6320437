"""The first records of the objects that a source selects, for a preview."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from airflow_provider_coordination.sources.item_kind import MAX_PROBLEMS, peek_item
from airflow_provider_coordination.sources.items import ItemGoneError, ItemUnreadableError
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.sources.s3.kind import ORC, PARQUET, S3Objects
from airflow_provider_coordination.sources.s3.listing import listing_of
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.sources.s3.scan import Selection, Window

LISTED_PAGES = 10
"""How many pages of a path are listed at most; a page has a thousand objects."""
WHOLE = (ORC, PARQUET)
"""The formats that are read in large parts; the others are read from their beginning, a mebibyte at a time."""
WHOLE_BYTES = 64 * 2**20
"""The largest object of such a format that is read."""


def peek_objects(settings: S3Objects, peek: Peek) -> None:
    """Read a few records of the first objects that are selected.

    :raises ConfigurationError: if a bucket or folder does not exist, or access is denied.
    :raises SourceUnavailableError: if the storage is unavailable.
    """
    reader, listed, selected = ObjectReader(settings), 0, 0
    for path in settings.paths:
        for found, is_selected in _objects(settings, path, peek):
            listed += 1
            if not is_selected:
                continue
            selected += 1
            _peek_object(reader, settings, found, peek)
            if peek.is_full or len(peek.problems) == MAX_PROBLEMS:
                break
        if peek.is_full or len(peek.problems) == MAX_PROBLEMS:
            break
    if not peek.records:
        where = ", ".join(settings.paths)
        if not listed:
            peek.nothing = f"there is no object at {where}; check 'paths'"
        elif not selected:
            peek.nothing = (
                f"none of the first {listed} objects at {where} is selected; check 'include', 'exclude', "
                "'exclude_suffixes', 'hidden' and the times"
            )
        else:
            peek.nothing = f"no record was read of the first {selected} selected objects at {where}"


def _objects(settings: S3Objects, path: str, peek: Peek) -> Iterator[tuple[ListedObject, bool]]:
    """Yield the first objects at a path, and whether each is selected."""
    listing = listing_of(path, settings.aws)
    selection = Selection(settings, listing, Window.of(settings, datetime.now(UTC)))
    for number, page in enumerate(listing.pages(), 1):
        yield from ((found, selection.takes(found)) for found in page.found)
        if number == LISTED_PAGES or peek.is_late:
            return


def _peek_object(reader: ObjectReader, settings: S3Objects, found: ListedObject, peek: Peek) -> None:
    if settings.format in WHOLE and found.size > WHOLE_BYTES:
        peek.problems.append(
            f"{found.uri}: it has {found.size} bytes, and a preview reads {WHOLE_BYTES} of {settings.format} at most"
        )
        return
    try:
        peek_item(reader, found.to_item(), peek)
    except (ItemGoneError, ItemUnreadableError) as error:
        peek.problems.append(f"{found.uri}: {error}")
