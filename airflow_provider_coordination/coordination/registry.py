"""Named implementations of a seam, found when one is asked for by its name: nothing else is imported.

The package's own are found by where their module is; others register by an entry point of a group. A Spark cluster may
have the package as a zip without metadata, where no entry point is seen: what travels there carries the implementation
as `module:attribute`, which `Registry.implementation` returns.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """The implementations of one seam, each an object under a name.

    :param what: what an implementation is called in errors, such as `store`.
    :param own: `module:attribute` of the package's own, with `{name}` for the name, which is a folder or a module, such
        as `airflow_provider_coordination.stores.{name}.kind:KIND`.
    :param group: the entry points by which other distributions register theirs.
    :param seam: the class that each object is of; a protocol must be `runtime_checkable`.
    """

    what: str
    own: str
    group: str
    seam: type

    def names(self) -> list[str]:
        """Return the names that are known here, sorted; no implementation is imported."""
        return sorted({*_own_names(self.own), *(point.name for point in _registered(self.group))})

    def knows(self, name: str) -> bool:
        """Return whether the name is known here."""
        return self._is_own(name) or name in self.names()

    def implementation(self, name: str) -> str | None:
        """Return `module:attribute` of an implementation, for settings that travel to where entry points are not seen.

        :returns: None for one of the package's own.
        :raises ConfigurationError: if nobody registered the name, or more than one did.
        """
        registered = _registered(self.group, name)
        owners = ["airflow-provider-coordination"] * self._is_own(name) + [_distribution(point) for point in registered]
        if len(owners) > 1:
            raise ConfigurationError(
                f"{self.what} {name!r} is registered by {' and by '.join(owners)} (entry points of the group "
                f"{self.group!r}); uninstall all but one of them"
            )
        if not owners:
            known = ", ".join(map(repr, self.names())) or "none"
            raise ConfigurationError(
                f"{self.what} {name!r} is not known; known are {known}. Install the distribution that registers it by "
                f"an entry point of the group {self.group!r}"
            )
        return _reference(registered[0]) if registered else None

    def load(self, name: str, implementation: str | None = None) -> T:
        """Import an implementation and return it.

        :param implementation: `module:attribute`, where the settings carry it.
        :raises ConfigurationError: if there is none, or it cannot be imported, or is something else.
        """
        if implementation is not None:
            where = f"{self.what} {name!r}: implementation {implementation!r}"
            return self._imported(implementation, where, "ship its module with 'py_files', or install it there")
        if self._is_own(name):
            own = self.own.format(name=name)
            return self._imported(own, f"{self.what} {name!r}", "install what it needs")
        reference = self.implementation(name)
        (point,) = _registered(self.group, name)
        where = f"{self.what} {name!r}: entry point '{name} = {reference}' of {_distribution(point)}"
        return self._imported(str(reference), where, "mend that distribution, or uninstall it")

    def _imported(self, reference: str, where: str, remedy: str) -> T:
        module, _, attribute = reference.partition(":")
        try:
            found = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except Exception as error:  # a module may raise anything while it is imported
            raise ConfigurationError(
                f"{where} cannot be imported: {type(error).__name__}: {error}; {remedy}"
            ) from error
        if not isinstance(found, self.seam):
            raise ConfigurationError(f"{where} must be a {self.seam.__name__}; got {type(found).__name__}")
        return found  # type: ignore[return-value]

    def _is_own(self, name: str) -> bool:
        return name in _own_names(self.own)


def _registered(group: str, name: str | None = None) -> list[EntryPoint]:
    """Return the entry points of a group, of this name alone if there is one."""
    return [point for point in _entry_points(group, tuple(sys.path)) if name in (None, point.name)]


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, of what is installed on a path; looking takes tens of milliseconds."""
    return tuple(entry_points(group=group))


@cache
def _own_names(own: str) -> tuple[str, ...]:
    """Return the names of the package's own, by looking at which modules there are."""
    folder, _, rest = own.partition(".{name}")
    below = rest.partition(":")[0].removeprefix(".")
    places = importlib.import_module(folder).__path__
    return tuple(
        module.name
        for module in pkgutil.iter_modules(places)
        if not below or below in _modules_in(f"{place}/{module.name}" for place in places)
    )


def _modules_in(places: Iterable[str]) -> set[str]:
    return {module.name for module in pkgutil.iter_modules(places)}


def _reference(point: EntryPoint) -> str:
    return f"{point.module}:{point.attr}"


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed distribution"
