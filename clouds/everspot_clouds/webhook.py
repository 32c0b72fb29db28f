"""Posts a notification to a webhook. Its address is a secret: no error contains any part of it."""

import html
import json
import urllib.error
import urllib.request
from datetime import timedelta
from http.client import HTTPException, HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

WITHIN = timedelta(seconds=10)
_LONGEST_URL = 2048


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect as the answer, because what a request carries is for the server alone that it names."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """Return no further request."""


def post(url: str, body: dict[str, Any]) -> None:
    """Post JSON to a webhook. Redirects are not followed.

    `text` is escaped, since chats read it as a format in which `<!channel>` calls everybody and `<URL|words>` is a
    link (Slack, "Formatting text for app surfaces", "Escaping text"). Other fields stay as they are.

    Raises:
        OSError: if it does not answer, or not with success.
        ValueError: if the address is no https address, or has a user or a password in it.
    """
    if not _is_https(url):
        raise ValueError("the webhook's secret is no https address")
    request = urllib.request.Request(  # noqa: S310  https only, see above
        url, json.dumps(body | _escaped(body)).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=WITHIN.total_seconds()):
            pass
    except urllib.error.HTTPError as error:
        raise OSError(f"the webhook answered {error.code}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise OSError(f"the webhook does not answer: {type(reason).__name__}") from None


def _escaped(body: dict[str, Any]) -> dict[str, str]:
    return {"text": html.escape(body["text"], quote=False)} if isinstance(body.get("text"), str) else {}


def _is_https(url: str) -> bool:
    """Return whether a request to the address can be built. The library's own errors would quote parts of it."""
    if len(url) > _LONGEST_URL or not (url.isascii() and url.isprintable()) or " " in url:
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        return False
