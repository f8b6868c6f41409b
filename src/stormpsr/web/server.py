"""uvicorn with bounds: connections that say nothing are closed, and nobody can take all of them."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

_SILENT_SECONDS = 10  # from connecting to the first word
_MOST_CONNECTIONS = 600
_MOST_PER_ADDRESS = 300  # a wall of screens behind one router is one address


class BoundedProtocol(H11Protocol):
    """HTTP of one connection."""

    per_address: ClassVar[Counter[str]] = Counter()
    _counted: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        if len(self.connections) > _MOST_CONNECTIONS or self.per_address[address] >= _MOST_PER_ADDRESS:
            transport.abort()
            return
        self.per_address[address] += 1
        self._counted = address
        self.timeout_keep_alive_task = self.loop.call_later(_SILENT_SECONDS, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._counted is not None:
            self.per_address[self._counted] -= 1
            if not self.per_address[self._counted]:
                del self.per_address[self._counted]
        super().connection_lost(exc)


def make_server(app: Any, host: str, port: int) -> uvicorn.Server:
    """A server that writes no log of requests: addresses may hold tokens."""
    _allow_many_files()
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=BoundedProtocol,
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16 * 1024,
    )
    return uvicorn.Server(config)


def serve(server: uvicorn.Server, tell: Callable[[str], None]) -> None:
    """Until somebody stops the program, by Ctrl-C or as systemd does; what comes after this is done in any case.

    tell: is called with the address once the server answers there.
    """
    threading.Thread(target=_tell, args=(server, tell), daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn hands the signal on when it has stopped
    server.run()


def _tell(server: uvicorn.Server, tell: Callable[[str], None]) -> None:
    while not server.started:
        if server.should_exit:
            return
        time.sleep(0.05)
    host, port = server.config.host, server.servers[0].sockets[0].getsockname()[1]
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host
    tell(f"http://{f'[{name}]' if ':' in name else name}:{port}/")


def _allow_many_files() -> None:
    """Many systems allow a process fewer open files than there may be connections."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4096 if hard == resource.RLIM_INFINITY else min(4096, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
