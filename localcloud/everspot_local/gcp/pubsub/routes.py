"""Stands in for the Pub/Sub API by REST. A pull waits with no lock held."""

from collections.abc import Mapping
from typing import Any

from everspot_local.gcp.answers import not_here
from everspot_local.gcp.iam.policies import Policies
from everspot_local.gcp.iam.policy_calls import HasPermission, policy_routes
from everspot_local.gcp.pubsub.service import PubSub
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
_TOPICS, _SUBSCRIPTIONS = "pubsub.projects.topics", "pubsub.projects.subscriptions"


def routes(pubsub: PubSub, policies: Policies, has_permission: HasPermission) -> Mapping[str, Handler]:
    """Return handlers by method id."""

    def delete_topic(request: Request) -> Document:
        pubsub.delete_topic(request.params["topic"])
        policies.forget(request.params["topic"])
        return {}

    def delete_subscription(request: Request) -> Document:
        pubsub.delete_subscription(request.params["subscription"])
        policies.forget(request.params["subscription"])
        return {}

    def acknowledge(request: Request) -> Document:
        pubsub.acknowledge(request.params["subscription"], request.body.get("ackIds") or [])
        return {}

    def modify(request: Request) -> Document:
        seconds = int(request.body.get("ackDeadlineSeconds") or 0)
        pubsub.modify(request.params["subscription"], request.body.get("ackIds") or [], seconds)
        return {}

    def pull(request: Request) -> Document:
        wait = not request.body.get("returnImmediately")
        most = int(request.body.get("maxMessages") or 0)
        return {"receivedMessages": pubsub.pull(request.params["subscription"], most, wait=wait)}

    def topic_names(request: Request) -> Document:
        topic = pubsub.topic(request.params["topic"])["name"]
        names = [n for n, s in sorted(pubsub.subscriptions.items()) if s.document["topic"] == topic]
        return {"subscriptions": names}

    return {
        f"{_TOPICS}.create": lambda r: pubsub.create_topic(r.params["name"], r.body),
        f"{_TOPICS}.delete": delete_topic,
        f"{_TOPICS}.get": lambda r: pubsub.topic(r.params["topic"]),
        f"{_TOPICS}.list": lambda r: {"topics": _list_documents(pubsub.topics, r)},
        f"{_TOPICS}.patch": lambda r: pubsub.patch_topic(r.params["name"], r.body.get("topic") or {}, _mask(r)),
        f"{_TOPICS}.publish": lambda r: {"messageIds": pubsub.publish(r.params["topic"], r.body.get("messages") or [])},
        f"{_TOPICS}.subscriptions.list": topic_names,
        f"{_SUBSCRIPTIONS}.acknowledge": acknowledge,
        f"{_SUBSCRIPTIONS}.create": lambda r: pubsub.create_subscription(r.params["name"], r.body),
        f"{_SUBSCRIPTIONS}.delete": delete_subscription,
        f"{_SUBSCRIPTIONS}.get": lambda r: pubsub.subscription(r.params["subscription"]).document,
        f"{_SUBSCRIPTIONS}.list": lambda r: {
            "subscriptions": _list_documents({n: s.document for n, s in pubsub.subscriptions.items()}, r)
        },
        f"{_SUBSCRIPTIONS}.modifyAckDeadline": modify,
        f"{_SUBSCRIPTIONS}.patch": lambda r: pubsub.patch_subscription(
            r.params["name"], r.body.get("subscription") or {}, _mask(r)
        ),
        f"{_SUBSCRIPTIONS}.pull": pull,
        **policy_routes(_TOPICS, policies, has_permission, lambda name: str(pubsub.topic(name)["name"])),
        **policy_routes(
            _SUBSCRIPTIONS, policies, has_permission, lambda name: str(pubsub.subscription(name).document["name"])
        ),
    }


def _list_documents(documents: Mapping[str, Document], request: Request) -> list[Document]:
    if request.params.get("pageToken"):
        raise not_here("pages of topics and subscriptions")
    return [documents[name] for name in sorted(documents) if name.startswith(f"{request.params['project']}/")]


def _mask(request: Request) -> list[str]:
    mask = str(request.body.get("updateMask") or request.params.get("updateMask") or "")
    return [name.strip() for name in mask.split(",") if name.strip()]
