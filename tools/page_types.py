"""Write the types of the HTTP API's responses for the TypeScript compiler, from its OpenAPI schema."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from airflow_provider_coordination.ui.application import application

WORDS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def declarations() -> str:
    """Return an interface for each class of the OpenAPI schema, within the namespace `Api`."""
    schema = application().openapi()
    lines = ["// Made by tools/page_types.py.", "declare namespace Api {"]
    for name, definition in schema["components"]["schemas"].items():
        if "enum" in definition:
            lines.append(f"  type {name} = {_type(definition)};")
            continue
        lines.append(f"  interface {name} {{")
        lines += [f"    {field}: {_type(of)};" for field, of in definition.get("properties", {}).items()]
        lines.append("  }")
    return "\n".join([*lines, "}", ""])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " | ".join(f'"{value}"' for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"({_type(schema['items'])})[]"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties", True)
        return f"Record<string, {_type(values) if isinstance(values, dict) else 'any'}>"
    return WORDS.get(schema.get("type", ""), "any")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(declarations())
