"""Who may send requests, and what a page may do: checks Host, Origin and token; every response has a strict policy."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "attnscope_token"
MOST_BYTES = 1_000_000  # of a request's body
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "x-frame-options": "DENY",
}


class Guard:
    """Wraps the app. hosts: allowed Host headers; token: required in the address, if other machines can reach it."""

    def __init__(self, app: App, hosts: frozenset[str], token: str | None, port: int) -> None:
        self.app, self.hosts, self.token = app, hosts, token
        self.cookie = f"{COOKIE}_{port}"  # cookies are shared by all ports of a host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(headers) or self._without_token(scope, headers)
        given = self._token_in_address(scope)

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers(given)]
            await send(message)

        if refusal is not None:
            await _refuse(guarded, *refusal)
            return
        await self.app(scope, receive, guarded)

    def _refusal(self, headers: dict[str, str]) -> tuple[int, str] | None:
        if headers.get("host", "").lower() not in self.hosts:
            return 421, "the explorer does not answer at this address; use the one that 'attnscope serve' printed"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return 403, "requests from other sites are not allowed"
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return 403, "requests from other sites are not allowed"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES or "transfer-encoding" in headers:
            return 413, "the request is too large"
        return None

    def _without_token(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        if self.token is None or self._token_in_address(scope):
            return None
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get("cookie", ""))
        except CookieError:
            cookies.clear()
        cookie = cookies.get(self.cookie)
        if cookie is not None and secrets.compare_digest(cookie.value.encode(), self.token.encode()):
            return None
        return 401, "the token is missing; use the full address that 'attnscope serve' printed"

    def _token_in_address(self, scope: Scope) -> bool:
        if self.token is None:
            return False
        try:
            given = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=100).get("token", [""])[0]
        except ValueError:  # more fields than any page sends
            return False
        return secrets.compare_digest(given.encode(), self.token.encode())

    def _headers(self, given: bool) -> list[tuple[bytes, bytes]]:
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        if given:
            cookie = f"{self.cookie}={self.token}; HttpOnly; SameSite=Strict; Path=/"
            headers.append((b"set-cookie", cookie.encode()))
        return headers


async def _refuse(send: Send, status: int, why: str) -> None:
    body = why.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
