"""The measure of `make lint` for the package's structure: sizes, circles of imports, and what is described twice.

Each figure has a bound, which is what was reached: lower it with each improvement. `--show NAME` lists what a figure
counts.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "airflow_provider_coordination"
SHARED_FIELDS = 6
"""Two classes that share this many fields describe one thing."""
OPTION = "per_batch"
"""The option of a job whose places are counted: its field with a docstring, and its use."""
OPTION_NAME = re.compile(rf"(?<![A-Za-z_])_?{OPTION}\b")
OPERATOR = "CoordinatedSparkSubmitOperator"
BOUNDS = {
    "lines": 102_428,
    "modules": 400,
    "circles": 0,
    "ambiguous-names": 0,
    "twins": 0,
    "option-places": 2,
    "operator-arguments": 14,
}


@dataclass(frozen=True)
class Module:
    """A module of the package.

    :param name: its name with dots, without the package.
    :param path: its path.
    :param tree: its syntax tree.
    """

    name: str
    path: Path
    tree: ast.Module

    @property
    def classes(self) -> Iterator[ast.ClassDef]:
        """Its classes, without those within others."""
        return (node for node in self.tree.body if isinstance(node, ast.ClassDef))


def tracked() -> list[Path]:
    """Return the files of the package that are under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", PACKAGE],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return [path for line in listed.splitlines() if (path := REPOSITORY / line).is_file()]


def read_modules(paths: list[Path]) -> list[Module]:
    """Return the Python modules among files."""
    modules = []
    for path in paths:
        if path.suffix == ".py":
            parts = path.relative_to(REPOSITORY / PACKAGE).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules.append(Module(name, path, ast.parse(path.read_text())))
    return modules


def imports_of(module: Module, names: frozenset[str]) -> frozenset[str]:
    """Return the modules of the package that a module imports anywhere, also for types only."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            base = (node.module or "").removeprefix(PACKAGE).lstrip(".")
            found |= {name if (name := f"{base}.{alias.name}".lstrip(".")) in names else base for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.removeprefix(f"{PACKAGE}.") for alias in node.names if alias.name.startswith(PACKAGE)}
    return frozenset((found & names) - {module.name, ""})


def circles(modules: list[Module]) -> list[str]:
    """Return the sets of modules that import each other."""
    names = frozenset(module.name for module in modules)
    graph = {module.name: imports_of(module, names) for module in modules}
    return [" ↔ ".join(sorted(component)) for component in components(graph) if len(component) > 1]


def components(graph: Mapping[str, frozenset[str]]) -> list[list[str]]:
    """Return the strongly connected components of a graph (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        numbers[name] = lowest[name] = len(numbers)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in numbers:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], numbers[other])
        if lowest[name] == numbers[name]:
            start = stack.index(name)
            found.append(stack[start:])
            del stack[start:]

    for name in sorted(graph):
        if name not in numbers:
            visit(name)
    return found


def ambiguous_names(modules: list[Module]) -> list[str]:
    """Return the public class names that are defined more than once."""
    homes = defaultdict(list)
    for module in modules:
        for cls in module.classes:
            if not cls.name.startswith("_"):
                homes[cls.name].append(module.name)
    return [f"{name}: {', '.join(where)}" for name, where in sorted(homes.items()) if len(where) > 1]


def fields_of(cls: ast.ClassDef) -> frozenset[str]:
    """Return the fields of a class, as a dataclass has them."""
    return frozenset(
        node.target.id
        for node in cls.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and "ClassVar" not in ast.unparse(node.annotation)
    )


def twins(modules: list[Module]) -> list[str]:
    """Return the pairs of classes that share many fields."""
    classes = [(f"{module.name}:{cls.name}", fields_of(cls)) for module in modules for cls in module.classes]
    return [
        f"{one} and {other}: {len(common)}"
        for (one, fields), (other, others) in combinations(classes, 2)
        if len(common := fields & others) >= SHARED_FIELDS
    ]


def option_places(modules: list[Module]) -> list[str]:
    """Return the classes and functions that name the option, documentation included.

    To write an option means to change each of them, be it a parameter that is passed on or a use.
    """
    return [
        f"{module.name}:{getattr(node, 'name', node.lineno)}"
        for module in modules
        for node in module.tree.body
        if OPTION_NAME.search(ast.unparse(node))
    ]


def operator_arguments(modules: list[Module]) -> list[str]:
    """Return the arguments that the Spark operator adds to its base."""
    for module in modules:
        for cls in module.classes:
            if cls.name == OPERATOR:
                [init] = [n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
                return [argument.arg for argument in init.args.kwonlyargs]
    raise LookupError(OPERATOR)


def measures(paths: list[Path]) -> dict[str, Callable[[], list[str]]]:
    """Return what each figure counts, by its name."""
    modules = read_modules(paths)
    return {
        "modules": lambda: [module.name for module in modules],
        "circles": lambda: circles(modules),
        "ambiguous-names": lambda: ambiguous_names(modules),
        "twins": lambda: twins(modules),
        "option-places": lambda: option_places(modules),
        "operator-arguments": lambda: operator_arguments(modules),
    }


def main() -> int:
    """Print what exceeds its bound; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", choices=sorted(BOUNDS), help="list what a figure counts")
    parser.add_argument("--figures", action="store_true", help="print every figure with its bound")
    arguments = parser.parse_args()
    paths = tracked()
    counted = measures(paths)
    if arguments.show in counted:
        print("\n".join(counted[arguments.show]()))
        return 0
    figures = {"lines": sum(path.read_bytes().count(b"\n") for path in paths)}
    figures |= {name: len(count()) for name, count in counted.items()}
    exceeded = [name for name, figure in figures.items() if figure > BOUNDS[name]]
    for name, figure in figures.items():
        if arguments.figures or name in exceeded:
            print(f"structure: {name}: {figure}, and the bound is {BOUNDS[name]}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
