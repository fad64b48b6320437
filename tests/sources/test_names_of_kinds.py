"""Code outside the places of a kind names no kind of source: imports, identifiers and texts, but for docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import airflow_provider_coordination
from airflow_provider_coordination.sources.kinds import KINDS

PACKAGE = Path(airflow_provider_coordination.__file__).parent
NAME = re.compile(r"kinesis|shard|jdbc|opensearch|dynamodb_?export|sources\.s3|S3Objects", re.IGNORECASE)
"""The kinds and what they are made of; `s3://` is a filesystem of outputs, and DynamoDB a store as well."""
STORES = re.compile(r"^stores/")
TABLES = ("get_provider_info.py",)
"""Tables of names for Airflow: which modules there are."""
OPERATORS = ("operators/shard_sync.py",)
"""The operator of the kinds whose partitions are shards."""
DRUID = re.compile(r"^supervisor/druid/")
"""What translates specs of another system, which are of one kind of source."""


def is_of_a_kind(path: Path) -> bool:
    """Return whether a module is a kind's own: it, or a folder that it is in, has the kind's name."""
    return any(part.removesuffix(".py") in KINDS.names() for part in path.parts)


def names_in(tree: ast.AST) -> Iterator[str]:
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        for body in (getattr(node, "body", None),):
            # A text on a line of its own describes the name above it.
            for statement in body if isinstance(body, list) else ():
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    docstrings.add(id(statement.value))
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ImportFrom(module=str(name)) | ast.keyword(arg=str(name)):
                yield name


def test_only_modules_of_a_kind_name_it() -> None:
    found = {
        str(path): sorted({name for name in names_in(ast.parse((PACKAGE / path).read_text())) if NAME.search(name)})
        for path in (each.relative_to(PACKAGE) for each in PACKAGE.rglob("*.py"))
        if not is_of_a_kind(path)
        and str(path) not in (*TABLES, *OPERATORS)
        and not STORES.match(str(path))
        and not DRUID.match(str(path))
    }
    assert {path: names for path, names in found.items() if names} == {}
