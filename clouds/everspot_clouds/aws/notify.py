"""Sends a notification by SNS, and to a webhook whose address is a secret."""

from typing import Any

from everspot_core.cluster.notify import Notifications

from everspot_clouds.webhook import post


class Sender:
    """Sends notifications. Clients are made when first needed. A webhook's address is read again each time, because it
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
            post(url, {"text": text, **data})
