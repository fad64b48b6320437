"""The server as a process of its own: prints its endpoint and runs until it is ended.

Its time is the machine's. What else a test wants of it goes over the paths in `control.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading

from tests.support.kinesis_server.http import KinesisServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.kinesis_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="where to listen on 127.0.0.1; 0 is any free port")
    arguments = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with KinesisServer(arguments.port) as server, contextlib.suppress(KeyboardInterrupt):
        print(server.endpoint_url, flush=True)  # noqa: T201 - whoever started it waits for this line
        ended.wait()


if __name__ == "__main__":
    main()
