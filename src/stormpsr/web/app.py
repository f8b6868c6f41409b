"""An application of pages and an interface: static files, log-in, errors as JSON, and news for many who wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from stormpsr.errors import StormPSRError
from stormpsr.web.security import Access, Security, problem, set_cookie

PAGES = Path(__file__).parent / "pages"  # what all applications share: look, icons, scripts, the log-in
_LOGGED_IN = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">
<title>stormpsr</title><body><a href="/">stormpsr</a></body></html>"""


def make_app(
    routes: Sequence[BaseRoute],
    pages: Path,
    access: Access,
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Starlette:
    """`pages`: the application's own static files; those that all applications share are there as well."""

    def login_page() -> Response:
        return FileResponse(PAGES / "login.html", 401)

    async def login(request: Request) -> Response:
        token = request.query_params.get("token", "").strip()
        if access.is_open:
            return RedirectResponse("/", 303)
        if access.role_of_token(token) is None:
            return login_page()
        # A page that goes on by itself: after a redirect from a mail, the browser would keep the new cookie to itself
        response = HTMLResponse(_LOGGED_IN)
        set_cookie(response, token)
        return response

    return Starlette(
        routes=[Route("/login", login), Mount("/static", _Static([pages, PAGES])), *routes],
        middleware=[Middleware(Security, access=access, clock=clock, login_page=login_page)],
        exception_handlers={HTTPException: _http_error, StormPSRError: _input_error},
        lifespan=lifespan,
    )


class _Static(StaticFiles):
    """Asked for again each time, and answered with 'not changed' by their ETag."""

    def __init__(self, folders: Sequence[Path]) -> None:
        super().__init__(directory=folders[0], check_dir=False)
        self.all_directories = list(folders)

    def file_response(self, *args: Any, **more: Any) -> Response:
        response = super().file_response(*args, **more)
        response.headers["cache-control"] = "no-cache"
        return response


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail)


async def _input_error(_: Request, error: Exception) -> Response:
    return problem(400, getattr(error, "problem", str(error)), getattr(error, "cure", None) or "")


def page(pages: Path, name: str) -> Callable[[Request], Response]:
    """An endpoint that shows a page."""

    def show(_: Request) -> Response:
        return FileResponse(pages / name, headers={"cache-control": "no-cache"})

    return show


async def json_body(request: Request) -> dict[str, Any]:
    """The object that was sent; an empty one if nothing was."""
    content = await request.body()
    if not content:
        return {}
    try:
        found = await request.json()
    except (ValueError, RecursionError):
        raise HTTPException(400, "this is not JSON") from None
    if not isinstance(found, dict):
        raise HTTPException(400, "this is no JSON object")
    return found


def answer(content: Any) -> Response:
    return JSONResponse(content)


# ---------------------------------------------------------------------- news for many
class News:
    """Tells all who wait in the event loop that there is something new; may be told from any thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()
        self.closed = False

    def open(self) -> None:
        """Call it in the event loop."""
        self._loop, self.closed = asyncio.get_running_loop(), False

    def close(self) -> None:
        """Let streams end, so that the server can stop."""
        self.closed = True
        self._wake()

    def tell(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    async def stream(self, least_seconds: float, most_seconds: float) -> AsyncIterator[bool]:
        """Once at the start, then when there is news (True) or the longest time has passed (False).

        Never sooner than `least_seconds` after the last one: what is new meanwhile counts once.
        """
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            yield True
            while not self.closed:
                await asyncio.sleep(least_seconds)
                try:
                    await asyncio.wait_for(event.wait(), max(most_seconds - least_seconds, 0.001))
                except TimeoutError:
                    if not self.closed:
                        yield False
                    continue
                event.clear()
                if not self.closed:
                    yield True
        finally:
            self._waiting.discard(event)
