"""Point-in-time exports of DynamoDB, laid out as AWS documents them: the tests' server makes none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

TABLE_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/orders"
EXPORT_ID = "01693685827463-2d8752fd"
EXPORT_ARN = f"{TABLE_ARN}/export/{EXPORT_ID}"
BUCKET = "exports"
FOLDER = f"AWSDynamoDB/{EXPORT_ID}"


def typed(n: int) -> dict[str, Any]:
    """Return a line of a data file."""
    return {"Item": {"id": {"S": f"item-{n}"}, "n": {"N": str(n)}}}


def export_objects(
    files: Sequence[Iterable[int]], *, bucket: str = BUCKET, prefix: str = "", etags: Sequence[str] = ()
) -> dict[str, bytes]:
    """Return the objects of an export, by key.

    :param files: the items of each data file.
    :param etags: what the manifest says of each file.
    """
    folder = "/".join(filter(None, (prefix, FOLDER)))
    objects: dict[str, bytes] = {f"{folder}/_started": b""}
    manifest = []
    for number, items in enumerate(files):
        lines = [json.dumps(typed(n), separators=(",", ":")) + "\n" for n in items]
        key = f"{folder}/data/{number:02}zdlsz2gyx4llrquf.json.gz"
        objects[key] = gzip.compress("".join(lines).encode())
        etag = etags[number] if etags else "0123456789abcdef-1"
        manifest.append({"itemCount": len(lines), "md5Checksum": "x", "etag": etag, "dataFileS3Key": key})
    summary = {
        "version": "2023-08-01",
        "exportArn": EXPORT_ARN,
        "startTime": "2023-08-30T20:00:00.000Z",
        "endTime": "2023-08-30T20:05:00.000Z",
        "tableArn": TABLE_ARN,
        "tableId": "12345a12-abcd-123a-ab12-1234abc12345",
        "exportTime": "2023-08-30T20:00:00.000Z",
        "s3Bucket": bucket,
        "s3Prefix": prefix or None,
        "s3SseAlgorithm": "AES256",
        "s3SseKmsKeyId": None,
        "manifestFilesS3Key": f"{folder}/manifest-files.json",
        "billedSizeBytes": 0,
        "itemCount": sum(entry["itemCount"] for entry in manifest),  # type: ignore[misc]
        "outputFormat": "DYNAMODB_JSON",
        "outputView": "NEW_IMAGE",
        "exportType": "FULL_EXPORT",
    }
    objects[f"{folder}/manifest-summary.json"] = json.dumps(summary).encode()
    objects[f"{folder}/manifest-files.json"] = "".join(json.dumps(entry) + "\n" for entry in manifest).encode()
    return objects


def write_export(root: Path, files: Sequence[Iterable[int]]) -> Path:
    """Write an export below a folder; return the folder of its manifests."""
    for key, content in export_objects(files).items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(content)
    return root / FOLDER
