"""Access to the web UI: only a browser of this machine that has shown the token may read and act."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.datastructures import Headers, QueryParams
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everspot_cli.ui.loopback import ADDRESS, NAMES

TOKEN = "token"  # noqa: S105 - the name of the parameter
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # With no-referrer a browser would not say which page a form was sent from.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Keys:
    """The token of one run, and keys that open the web UI once."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    _once: dict[str, Callable[[], None]] = field(default_factory=dict, repr=False)

    @property
    def url(self) -> str:
        """The address that is printed."""
        return self._address(self.token)

    def url_once(self, opened: Callable[[], None]) -> str:
        """Return an address that can be opened a single time. `opened`: called at that time."""
        key = secrets.token_urlsafe(32)
        self._once[key] = opened
        return self._address(key)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that a browser may name. Any other is a name that was made to lead here."""
        return tuple(f"{name}:{self.port}" for name in NAMES)

    @property
    def cookie(self) -> str:
        """The cookie's name. Browsers send cookies to all ports of a host."""
        return f"everspot-ui-{self.port}"

    def is_token(self, candidate: str) -> bool:
        """Return whether `candidate` is the token."""
        return secrets.compare_digest(candidate.encode(), self.token.encode())

    def use_key(self, candidate: str) -> bool:
        """Return whether `candidate`, from an address, opens the web UI. A key does so once."""
        used = [key for key in self._once if secrets.compare_digest(candidate.encode(), key.encode())]
        for key in used:
            self._once.pop(key)()
        return bool(used) or self.is_token(candidate)

    def _address(self, secret: str) -> str:
        return f"http://{ADDRESS}:{self.port}/?{urlencode({TOKEN: secret})}"


class Guard:
    """Lets through what comes to this machine by its own name, with the token, and, if it changes something, from this
    page itself. Everything else is 403. Every answer gets the headers of a page that loads nothing from elsewhere."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the app answer it."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    *((name.encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        answer = self._answer(scope)
        await (answer or self._app)(scope, receive, guarded)

    def _answer(self, scope: Scope) -> Response | None:
        """Return a refusal, or the response that sets the cookie. None: the app answers."""
        headers, keys = Headers(scope=scope), self._keys
        if headers.get("host") not in keys.hosts:
            return _refuse(f"This page answers to {' and '.join(keys.hosts)} only.")
        query = QueryParams(scope["query_string"])
        if TOKEN in query and scope["method"] == "GET":
            return self._redirect_without_token(scope["path"]) if keys.use_key(query[TOKEN]) else _refuse(_NO_TOKEN)
        if not keys.is_token(_cookie(headers, keys.cookie)):
            return _refuse(_NO_TOKEN)
        if scope["method"] not in ("GET", "HEAD") and not self._own(headers):
            return _refuse("This request does not come from this page.")
        return None

    def _redirect_without_token(self, path: str) -> Response:
        """Return the same page without the token in its address, where it would stay in the browser's history."""
        answer = RedirectResponse(f"/{path.lstrip('/')}", status_code=303)
        answer.set_cookie(self._keys.cookie, self._keys.token, httponly=True, samesite="lax", path="/")
        return answer

    def _own(self, headers: Headers) -> bool:
        return headers.get("origin") == f"http://{headers['host']}"


_NO_TOKEN = "Open the address that `everspot ui` printed: its token is missing here, or of an earlier run."  # noqa: S105


def _cookie(headers: Headers, name: str) -> str:
    pairs = (part.strip().partition("=") for part in headers.get("cookie", "").split(";"))
    return next((value for key, _, value in pairs if key == name), "")


def _refuse(reason: str) -> Response:
    return PlainTextResponse(f"{reason}\n", status_code=403)
