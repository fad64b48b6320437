"""Named implementations of an interface, imported only when they are requested by name.

The package's own implementations are found by the location of their module; other distributions register theirs by an
entry point. A Spark cluster may have the package as a zip file without metadata, where no entry point is visible.
Settings for such a cluster carry the implementation as `module:attribute`, which `Registry.implementation` returns.
"""

from __future__ import annotations

import importlib
import operator
import pkgutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError

T = TypeVar("T")

MAX_NAMES = 10
"""The maximum number of names that an error lists."""


@dataclass(frozen=True)
class Registry(Generic[T]):
    """The implementations of one interface, each one an object with a name.

    :param what: what error messages call an implementation, such as `store`.
    :param own: `module:attribute` of the package's own implementations, with `{name}` for the name of the folder or
        module, such as `airflow_provider_coordination.stores.{name}.kind:KIND`.
    :param group: the entry point group by which other distributions register theirs.
    :param interface: the class of every object; a protocol must be `runtime_checkable`.
    """

    what: str
    own: str
    group: str
    interface: type

    def names(self) -> list[str]:
        """Return the known names, sorted. No implementation is imported."""
        return sorted({*_own_names(self.own), *(point.name for point in registered(self.group))})

    def knows(self, name: str) -> bool:
        """Return whether the name is known."""
        return self._is_own(name) or name in self.names()

    def implementation(self, name: str) -> str | None:
        """Return `module:attribute` of an implementation, for settings that go to a place without entry points.

        :returns: None for one of the package's own.
        :raises ConfigurationError: if no distribution registered the name, or more than one did.
        """
        points = registered(self.group, name)
        owners = ["airflow-provider-coordination"] * self._is_own(name) + [_distribution(point) for point in points]
        if len(owners) > 1:
            raise ConfigurationError(
                f"{self.what} {name!r} is registered by {' and by '.join(owners)} (entry points of the group "
                f"{self.group!r}); uninstall all but one of them"
            )
        if not owners:
            known = ", ".join(map(repr, self.names())) or "none"
            raise ConfigurationError(
                f"{self.what} {name!r} is not known; the known names are {known}. Install the distribution that "
                f"registers it as an entry point of the group {self.group!r}"
            )
        return _reference(points[0]) if points else None

    def load(self, name: str, implementation: str | None = None) -> T:
        """Import an implementation and return it.

        :param implementation: `module:attribute`, if the settings carry it.
        :raises ConfigurationError: if it does not exist, cannot be imported, or has another type.
        """
        if implementation is not None:
            where = f"{self.what} {name!r}: implementation {implementation!r}"
            return self._checked(implementation, where, "ship its module with 'py_files', or install it there")
        if self._is_own(name):
            own = self.own.format(name=name)
            return self._checked(own, f"{self.what} {name!r}", "install its dependencies")
        reference = self.implementation(name)
        (point,) = registered(self.group, name)
        where = f"{self.what} {name!r}: entry point '{name} = {reference}' of {_distribution(point)}"
        return self._checked(str(reference), where, "fix that distribution, or uninstall it")

    def _checked(self, reference: str, where: str, remedy: str) -> T:
        imported = import_attribute(reference, where, remedy)
        if not isinstance(imported, self.interface):
            raise ConfigurationError(f"{where} must be a {self.interface.__name__}; got {type(imported).__name__}")
        return imported  # type: ignore[return-value]

    def _is_own(self, name: str) -> bool:
        return name in _own_names(self.own)


def registered(group: str, name: str | None = None) -> list[EntryPoint]:
    """Return the entry points of a group, or only those with this name."""
    return [point for point in _entry_points(group, tuple(sys.path)) if name in (None, point.name)]


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group on a path. The search takes tens of milliseconds, so it is cached."""
    return tuple(entry_points(group=group))


@cache
def _own_names(own: str) -> tuple[str, ...]:
    """Return the names of the package's own implementations, from its modules."""
    folder, _, rest = own.partition(".{name}")
    below = rest.partition(":")[0].removeprefix(".")
    paths = importlib.import_module(folder).__path__
    return tuple(
        module.name
        for module in pkgutil.iter_modules(paths)
        if not below or below in _modules_in(f"{path}/{module.name}" for path in paths)
    )


def _modules_in(paths: Iterable[str]) -> set[str]:
    return {module.name for module in pkgutil.iter_modules(paths)}


def _reference(point: EntryPoint) -> str:
    return f"{point.module}:{point.attr}"


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed distribution"


def import_attribute(reference: str, where: str, remedy: str | None = None) -> Any:
    """Import and return what `module:attribute` names.

    :param where: the start of the error, such as `transform 'my_project.transforms:clean'`.
    :param remedy: what to do if it cannot be imported; by default, derived from the error.
    :raises ConfigurationError: if the module cannot be imported, or has no such attribute.
    """
    name, _, attribute = reference.partition(":")
    try:
        module = importlib.import_module(name)
    except Exception as error:  # a module may raise anything while it is imported
        is_absent = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        derived = "ship its module with 'py_files'" if is_absent else "correct that module, or install what it needs"
        raise ConfigurationError(
            f"{where} cannot be imported: {type(error).__name__}: {error}; {remedy or derived}"
        ) from error
    try:
        return operator.attrgetter(attribute)(module)
    except AttributeError:
        raise ConfigurationError(
            f"{where}: module {name!r} has no {attribute!r}; {remedy or _names_in(module, attribute)}"
        ) from None


def _names_in(module: ModuleType, attribute: str) -> str:
    """Return the remedy for a name that a module lacks: the similar ones, or else those that it defines."""
    defined = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    names = get_close_matches(attribute, defined) or sorted(defined)[:MAX_NAMES]
    if not names:
        where = getattr(module, "__file__", None) or module.__name__
        return f"it defines no function, so check that {where!r} is the module meant"
    return f"name one that it has: {', '.join(map(repr, names))}"
