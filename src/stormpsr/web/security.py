"""Who may see and who may change something, and how much of anything.

- On this machine alone (loopback) nobody is asked for a token, but the name in the address must be one of this machine,
  so that no foreign page reaches us through a name of its own. Elsewhere a token is needed: the operator's may change
  things, the viewer's may look.
- A change comes from our own page: same origin, and with a header that other pages cannot send.
- The size of what is sent, and the rate of changes and of attempts to log in, are limited.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stormpsr.errors import InputError
from stormpsr.files import check_own_file, read_json_object, replacing

Role = Literal["operator", "viewer"]
Clock = Callable[[], float]

COOKIE = "stormpsr"
REQUESTED_WITH = "stormpsr"
MOST_BYTES = 64 * 1024  # of what is sent to us at once
_MOST_HEADER_BYTES = 16 * 1024
_COOKIE_SECONDS = 30 * 24 * 3600
_OPEN_PATHS = ("/login", "/logout", "/health", "/static/")  # say nothing about the work
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self'; "
        "font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


# ---------------------------------------------------------------------- tokens
TOKENS_FILE = "tokens.json"


@dataclass(frozen=True)
class Access:
    """The tokens that are asked for. Without an operator's token, nobody is asked."""

    operator: str | None = None
    viewer: str | None = None

    @property
    def is_open(self) -> bool:
        return self.operator is None

    def role_of_token(self, given: str) -> Role | None:
        # both are compared in any case: how long it takes says nothing
        is_operator = hmac.compare_digest(given.encode(), (self.operator or "").encode())
        is_viewer = hmac.compare_digest(given.encode(), (self.viewer or "").encode())
        if not given:
            return None
        return "operator" if is_operator else "viewer" if is_viewer else None

    def role(self, connection: HTTPConnection) -> Role | None:
        if self.is_open:
            return "operator"
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.role_of_token(given.strip())
        cookie = connection.cookies.get(COOKIE, "").encode()
        found: Role | None = None
        for role, token in (("operator", self.operator), ("viewer", self.viewer)):
            if token and hmac.compare_digest(cookie, _cookie_of(token).encode()):
                found = role  # type: ignore[assignment]
        return found


def _cookie_of(token: str) -> str:
    """What the browser keeps: not the token itself."""
    return hashlib.sha256(f"stormpsr cookie {token}".encode()).hexdigest()


def where_to_open(what: str, address: str, access: Access, new_tokens: bool, folder: Path, role: str) -> list[str]:
    """What is told when an application begins: its address, with tokens the first time. `role`: of who may change."""
    if access.is_open:
        return [f"{what} is at {address} (Ctrl-C stops it)"]
    tokens = folder / TOKENS_FILE
    if not new_tokens:
        return [f"{what} is at {address} (tokens in {tokens}; Ctrl-C stops it)"]
    links = {role: access.operator, "to look only": access.viewer}
    lines = [f"{who}: {address}login?token={token}" for who, token in links.items()]
    return [*lines, f"this is printed once; the tokens are in {tokens}"]


def set_cookie(response: Response, token: str) -> None:
    response.set_cookie(COOKIE, _cookie_of(token), max_age=_COOKIE_SECONDS, httponly=True, samesite="strict", path="/")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def access_for(host: str, given: str | None, folder: Path) -> tuple[Access, bool]:
    """The tokens for an address to listen at, and whether they are new.

    They are made once, and kept in the folder in a file that its owner alone can read.
    """
    if given is not None and len(given) < 12:
        raise InputError("the token is too short", cure="give at least 12 characters, or none: one is made then")
    if given is None and is_loopback(host):
        return Access(), False
    path = folder / TOKENS_FILE
    check_own_file(path, cure="delete it: new tokens are made")
    known = read_json_object(path, cure="delete it: new tokens are made") if path.is_file() else {}
    tokens = {name: str(known.get(name) or secrets.token_urlsafe(24)) for name in ("operator", "viewer")}
    tokens["viewer"] = os.environ.get("STORMPSR_VIEWER_TOKEN") or tokens["viewer"]
    if given is not None:
        tokens["operator"] = given
    if tokens != known:
        with replacing(path) as draft:
            draft.chmod(0o600)
            draft.write_text(json.dumps(tokens), encoding="utf-8")
        path.chmod(0o600)
    return Access(tokens["operator"], tokens["viewer"]), tokens != known


# ---------------------------------------------------------------------- limits
class Rate:
    """So many at once from one address, and so many per second in the long run."""

    def __init__(self, burst: float, per_second: float, clock: Clock, most_addresses: int = 4096) -> None:
        self._burst, self._per_second, self._clock, self._most = burst, per_second, clock, most_addresses
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what was left, and when

    def allows(self, address: str) -> bool:
        now = self._clock()
        left, when = self._left.pop(address, (self._burst, now))
        left = min(self._burst, left + (now - when) * self._per_second)
        self._left[address] = (left - 1 if left >= 1 else left), now
        while len(self._left) > self._most:
            self._left.popitem(last=False)
        return left >= 1


# ---------------------------------------------------------------------- every request
class Security:
    """Stands before the application. What it lets through has `request.state.role`."""

    def __init__(self, app: ASGIApp, access: Access, clock: Clock, login_page: Callable[[], Response]) -> None:
        self._app, self._access, self._login_page = app, access, login_page
        self._changes, self._logins = Rate(60, 20, clock), Rate(10, 0.2, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # nothing else is spoken here

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send_with_headers)
            return
        await self._app(scope, _limited(receive), send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that goes no further."""
        connection = HTTPConnection(scope)
        headers, path, method = connection.headers, scope["path"], scope["method"]
        address = scope["client"][0] if scope.get("client") else ""
        if sum(len(name) + len(value) for name, value in scope["headers"]) > _MOST_HEADER_BYTES:
            return problem(431, "the headers are too large", f"send at most {_MOST_HEADER_BYTES} bytes of them")
        try:
            host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        except ValueError:  # brackets that are no address
            return problem(400, "the host cannot be read", "open the station by its address")
        if self._access.is_open and not is_loopback(host):
            cure = "open the station as http://127.0.0.1:PORT, or start it with --host and a token"
            return problem(421, f"this station is not called {host!r}", cure)
        if method not in ("GET", "HEAD"):
            if (wrong := _foreign(headers)) is not None:
                return problem(403, wrong, "changes come from the station's own page")
            if not self._changes.allows(address):
                return problem(429, "too many changes at once", "wait a moment")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > MOST_BYTES:
            return problem(413, "this is too large", f"send at most {MOST_BYTES} bytes")
        if path == "/login" and not self._logins.allows(address):
            return problem(429, "too many attempts to log in", "wait a minute")
        role = self._access.role(connection)
        scope.setdefault("state", {})["role"] = role
        if role is None and not any(path == open_ or path.startswith(open_) for open_ in _OPEN_PATHS):
            if "text/html" in headers.get("accept", "") and method == "GET":
                return self._login_page()
            return problem(401, "a token is needed", "open the link that the station printed, or send it as a bearer")
        if role == "viewer" and method not in ("GET", "HEAD"):
            return problem(403, "this token may only look", "log in with the operator's token")
        return None


def _foreign(headers: Headers) -> str | None:
    """What says that a change does not come from our page."""
    if headers.get("x-requested-with") != REQUESTED_WITH:
        return f"the header 'X-Requested-With: {REQUESTED_WITH}' is missing"
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return "it comes from another page"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        return "it comes from another origin"
    return None


def _limited(receive: Receive) -> Receive:
    seen = 0

    async def limited() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MOST_BYTES:
            raise HTTPException(413, "this is too large")
        return message

    return limited


def problem(status: int, error: str, cure: str = "") -> JSONResponse:
    """What went wrong and what to do, as every request is answered that fails."""
    return JSONResponse({"error": error, "cure": cure}, status_code=status)
