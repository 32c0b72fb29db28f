"""Posts a notification to a webhook. Its address is a secret: no error contains it."""

import json
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

WITHIN = timedelta(seconds=10)
_LONGEST_URL = 2048


def post(url: str, body: dict[str, Any]) -> None:
    """Post JSON to a webhook.

    Raises:
        OSError: if it does not answer, or not with success.
        ValueError: if the address is no https address.
    """
    if not url.startswith("https://") or len(url) > _LONGEST_URL or any(char.isspace() for char in url):
        raise ValueError("the webhook's secret is no https address")
    request = urllib.request.Request(  # noqa: S310  https only, see above
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=WITHIN.total_seconds()):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        raise OSError(f"the webhook answered {error.code}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise OSError(f"the webhook does not answer: {type(reason).__name__}") from None
