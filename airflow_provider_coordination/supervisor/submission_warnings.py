"""Warnings about a spec at its submission: what may be intended, and what often is a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from itertools import product
from typing import Any

from airflow_provider_coordination.supervisor.spec import IngestionSpec


def warnings_of(spec: IngestionSpec, others: Mapping[str, IngestionSpec]) -> Iterator[str]:
    """Yield the warnings about a spec, each with its remedy.

    :param others: the current specs of the other supervisors of the store, by source.
    """
    yield from _about_task_count(spec)
    yield from _about_transform(spec)
    for source, other in others.items():
        yield from _about_paths(spec, source, other)


def _about_task_count(spec: IngestionSpec) -> Iterator[str]:
    scaling, count = spec.supervise.auto_scale, spec.supervise.task_count
    if scaling is None or scaling.task_count_start is not None or count == 1:  # 1 is the default
        return
    minimum, maximum = scaling.task_count_min, scaling.task_count_max
    if not minimum <= count <= maximum:
        yield (
            f"field 'supervise.task_count' is {count}, outside of 'auto_scale', which allows {minimum} to {maximum} "
            f"jobs: it starts with {min(max(count, minimum), maximum)}; change one of them"
        )


def _about_transform(spec: IngestionSpec) -> Iterator[str]:
    transform = spec.ingestion.transform
    if transform is None or spec.tuning.spark.py_files:
        return
    module = transform.partition(":")[0]
    if not _is_found(module):
        yield (
            f"field 'transform' is {transform!r}, and module {module!r} is not found here: make sure that jobs "
            "find it, for example with 'tuning.spark.py_files'"
        )


def _is_found(module: str) -> bool:
    """Return whether a module is found, without importing it or its packages."""
    search: Any = None
    *packages, last = module.split(".")
    for name in packages:
        module_spec = PathFinder.find_spec(name, search)
        if module_spec is None or module_spec.submodule_search_locations is None:
            return False
        search = list(module_spec.submodule_search_locations)
    return PathFinder.find_spec(last, search) is not None


def _about_paths(spec: IngestionSpec, source: str, other: IngestionSpec) -> Iterator[str]:
    for (field, path), (_, theirs) in product(_paths(spec), list(_paths(other))):
        mine, its = f"{path.rstrip('/')}/", f"{theirs.rstrip('/')}/"
        if mine.startswith(its) or its.startswith(mine):
            relation = "also written" if mine == its else "below" if mine.startswith(its) else "above"
            by = "" if mine == its else f" {theirs!r}, which is written"
            yield (
                f"field {field!r} is {path!r}, {relation}{by} by the supervisor of source {source!r}; if that is not "
                "intended, give another path"
            )


def _paths(spec: IngestionSpec) -> Iterator[tuple[str, str]]:
    """Yield the paths that a spec names, with their fields."""
    named = [(f"writes[{number}].path", getattr(each, "path", None)) for number, each in enumerate(spec.sinks)]
    named.append(("landing_path", spec.ingestion.landing_path))
    named.append(("bad_records.dead_letter_path", spec.ingestion.bad_records.dead_letter_path))
    yield from ((field, path) for field, path in named if isinstance(path, str) and path)
