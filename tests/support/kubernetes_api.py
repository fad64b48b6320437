"""A stand-in for the Kubernetes API server that keeps Secrets, and the driver pods that mount them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OWNER_REFERENCES = "ownerReferences"


@dataclass
class KubernetesApi:
    """The stored objects and the received requests.

    :param url: where it answers.
    :param objects: by path.
    :param requests: method and path of each, in order.
    :param bodies: what was sent to make or change something.
    :param refuses: the status of the answer to a method and a sort of object, such as `("POST", "secrets")`.
    """

    url: str = ""
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    refuses: dict[tuple[str, str], int] = field(default_factory=dict)

    def named(self, sort: str) -> list[str]:
        """The names of the objects of a sort, `secrets` or `pods`."""
        return [path.rpartition("/")[2] for path in self.objects if path.split("/")[-2] == sort]

    @property
    def verbs(self) -> list[str]:
        """What was asked for, such as `POST secrets`."""
        return [f"{method} {path.split('/')[5]}" for method, path in self.requests]

    def connection(self) -> dict[str, Any]:
        """The extra of an Airflow connection to it."""
        user = {"name": "u", "user": {"token": "of-airflow"}}
        return {
            "kube_config": json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                    "users": [user],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        }

    def answer(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        """Do what a request asks."""
        self.requests.append((method, path))
        sort = path.split("/")[5]
        if status := self.refuses.get((method, sort)):
            return status, _status(status)
        if method == "POST":
            assert body is not None
            self.bodies.append(body)
            made = f"{path}/{body['metadata']['name']}"
            if made in self.objects:
                return 409, _status(409)
            body["metadata"].update(namespace=path.split("/")[4], uid=f"uid-{len(self.requests)}")
            self.objects[made] = body
            return 201, body
        found = self.objects.get(path)
        if found is None:
            return 404, _status(404)
        if method == "PATCH":
            assert body is not None
            self.bodies.append(body)
            found["metadata"].update(body["metadata"])
        if method == "DELETE":
            del self.objects[path]
            self._collect(found["metadata"]["uid"])
        return 200, found

    def _collect(self, uid: str) -> None:
        for path, each in list(self.objects.items()):
            if uid in [owner["uid"] for owner in each["metadata"].get(OWNER_REFERENCES, [])]:
                del self.objects[path]


def _status(code: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code}


@contextmanager
def kubernetes_api() -> Iterator[KubernetesApi]:
    """Serve one."""
    api, lock = KubernetesApi(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            with lock:
                status, answer = api.answer(self.command, self.path.partition("?")[0], body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _do  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield api
        server.shutdown()
