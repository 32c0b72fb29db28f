"""Sends a notification to a Pub/Sub topic, and to a webhook whose address is a secret."""

import base64
import json
from typing import Any

from everspot_core.cluster.notify import Notifications

from everspot_clouds.gcp.http_api import Api
from everspot_clouds.gcp.secrets import version_path
from everspot_clouds.webhook import post


class GcpSender:
    """Sends notifications. A webhook's address is read again each time, because it may have changed."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def send(self, settings: Notifications, subject: str, text: str, data: dict[str, Any]) -> None:
        """Send to the topic (projects/P/topics/T) and to the webhook that the settings name. The message's data is the
        text, and its attributes have the subject and the content for programs.

        Raises:
            The errors of `Api`; OSError if the webhook does not answer, or not with success; ValueError if the secret
            is no https address. No error tells the address.
        """
        if settings.topic_arn is not None:
            message = {
                "data": base64.b64encode(text.encode()).decode(),
                # Pub/Sub API, PubsubMessage: at most 1,024 bytes in a value.
                "attributes": {"subject": subject, "job": str(data.get("job_id") or "")},
            }
            self._api.post("pubsub", f"{settings.topic_arn}:publish", {"messages": [message]})
        if settings.webhook_secret_arn is not None:
            path = version_path(settings.webhook_secret_arn, self._api.project)
            answer = self._api.get("secretmanager", f"{path}:access")
            url = base64.b64decode((answer.get("payload") or {}).get("data") or "").decode(errors="replace").strip()
            post(url, {"text": text, **json.loads(json.dumps(data))})
