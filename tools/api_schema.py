"""Print the OpenAPI document of the HTTP API, from which `npm run types` makes the types of the pages.

A response always has all of its fields, also those with a default.
"""

from __future__ import annotations

import json

from airflow_provider_coordination.ui.application import application


def main() -> None:
    """Print the document."""
    document = application().openapi()
    for schema in document["components"]["schemas"].values():
        if "properties" in schema:
            schema["required"] = list(schema["properties"])
    print(json.dumps(document))


if __name__ == "__main__":
    main()
