"""Sends a notification by SNS, and to a webhook whose address is a secret."""

import json
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

from everspot_core.notify import Notifications

WITHIN = timedelta(seconds=10)
_LONGEST_URL = 2048


class Sender:
    """Sends notifications. Clients are made when first needed. A webhook's address is read anew each time, because it
    may have changed."""

    def __init__(self, session: Any, config: Any) -> None:
        self._session, self._config = session, config

    def send(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """Send to the topic and to the webhook that the settings name. A subject that is longer than 100 characters
        or not ASCII is refused (Amazon SNS API Reference, Publish).

        Raises:
            botocore's errors; OSError if the webhook does not answer, or not with success; ValueError if the secret
            is no https address. No error tells the address.
        """
        if settings.topic_arn is not None:
            topic = settings.topic_arn
            client = self._session.client("sns", region_name=topic.split(":")[3] or None, config=self._config)
            client.publish(TopicArn=topic, Subject=subject, Message=text)
        if settings.webhook_secret_arn is not None:
            client = self._session.client("secretsmanager", config=self._config)
            url = str(client.get_secret_value(SecretId=settings.webhook_secret_arn)["SecretString"]).strip()
            _post(url, {"text": text, **data})


def _post(url: str, body: dict[str, Any]) -> None:
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
