"""Launching and ending pods.

The names of a launch's pods follow from its token, so a request that is repeated creates nothing more. A pod without a
node is not yet an instance: the launch is asked for again until each pod has a node, or a NodeClaim whose machine was
launched, or until Karpenter says that it adds none. Source of the events: Karpenter's provisioner and scheduler (the
reasons `Nominated` and `FailedScheduling`).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from everspot_core.capacity.launching import LaunchError, LaunchIntent, LaunchTrouble
from everspot_core.clock import Clock
from kubernetes.client import ApiException

from everspot_clouds.base import LaunchAnswer, Launched, StillPending
from everspot_clouds.kubernetes import errors
from everspot_clouds.kubernetes.client import Document, KubernetesClient
from everspot_clouds.kubernetes.errors import ALREADY_EXISTS, CONFLICT, NOT_FOUND, is_status
from everspot_clouds.kubernetes.instances import (
    MOST_CHARACTERS,
    NodePlacement,
    NodePlacements,
    is_ended,
    list_agents,
    moment,
)
from everspot_clouds.kubernetes.pods import BadTemplate, build_pod, names, served_pools
from everspot_clouds.kubernetes.rules import (
    CLUSTER_LABEL,
    FINALIZER,
    LAUNCH_LABEL,
    LIMITS_EXCEEDED,
    MACHINE_LABEL,
    NOMINATED,
    REFUSED,
    RELEASED_NOTE,
)

PATIENCE = timedelta(minutes=3)
"""Real time after which a pod without a node counts as refused, where nobody says that no node is added."""
ABANDONED = timedelta(minutes=20)
"""Real time for which a scheduler has to see a pod without a node before it deletes the pod: its launch is settled by
then (`STALE` of the scheduler's launcher). It is measured on the scheduler's monotonic clock, because the API server's
clock, which is in the pod's creation time, may differ."""
REPEATS = 2
"""How often an ended pod is described by a scheduler before it is let go. The second time is for a tick that failed
before it had recorded the end."""
_PASSING = (LaunchTrouble.THROTTLED, LaunchTrouble.TRANSIENT)
_log = logging.getLogger(__name__)


class PodLauncher:
    """Launches the pods of one cluster. `gpus`: the number of GPUs by instance type."""

    def __init__(
        self, client: KubernetesClient, cluster: str, placements: NodePlacements, gpus: Mapping[str, int], clock: Clock
    ) -> None:
        self._client, self._cluster, self._placements = client, cluster, placements
        self._gpus, self._clock = gpus, clock
        self._asked_at: dict[str, timedelta] = {}

    def launch(self, intent: LaunchIntent) -> LaunchAnswer:
        """See `Cloud.launch`.

        Raises:
            StillPending: if pods have no node yet.
            ApiException, HTTPError: if the request may have been carried out.
        """
        pools = served_pools(intent, self._gpus)
        if capped := [pool for pool in pools if pool.max_price is not None]:
            message = f"Karpenter takes no maximum price, and {capped[0].instance_type} has one"
            return LaunchAnswer(errors=(_refusal(intent, LaunchTrouble.REQUEST, "MaxPrice", message),))
        try:
            pods = self._create(intent)
        except (ApiException, BadTemplate) as error:
            return self._rejected(intent, error)
        launched, waiting = list[Launched](), list[Document]()
        for name, pod in pods.items():
            if (placement := self._placement(pod)) is not None:
                launched.append(_launched(name, placement))
            elif not is_ended(pod):
                waiting.append(pod)
        if not waiting:
            self._asked_at.pop(intent.token, None)
            return LaunchAnswer(instances=tuple(launched))
        return self._still_waiting(intent, launched, waiting)

    def _still_waiting(
        self, intent: LaunchIntent, launched: Sequence[Launched], waiting: Sequence[Document]
    ) -> LaunchAnswer:
        """Return the answer if Karpenter refuses pods, or if nobody has answered for too long."""
        refusals = [text for pod in waiting if (text := self._refused(pod))]
        now = self._clock.monotonic()
        since = self._asked_at.setdefault(intent.token, now)
        if not refusals and now - since < PATIENCE:
            raise StillPending(f"{len(waiting)} of {intent.count} pods have no node yet")
        withdrawn = [withdraw(self._client, pod) for pod in waiting]
        if not all(withdrawn):
            raise StillPending("a pod changed while it was withdrawn")
        if intent.whole:  # only now: the node of an ended pod would be free for one that still waits
            for instance in launched:
                end_pod(self._client, instance.instance_id)
        self._asked_at.pop(intent.token, None)
        message = refusals[0] if refusals else _unschedulable(waiting[0])
        # The NodePool's limit is the cluster's own, and no quota of AWS, which other types would share.
        kind = LaunchTrouble.TRANSIENT if LIMITS_EXCEEDED in message else LaunchTrouble.CAPACITY
        refused = tuple(
            LaunchError(
                instance_type=pool.instance_type,
                zone=pool.zone,
                market=pool.market,
                kind=kind,
                code=REFUSED[1] if refusals else "Unschedulable",
                message=message[:MOST_CHARACTERS],
            )
            for pool in served_pools(intent, self._gpus)
        )
        return LaunchAnswer(instances=() if intent.whole else tuple(launched), errors=refused)

    def _create(self, intent: LaunchIntent) -> dict[str, Document]:
        """Return the pods of the launch by name; those that are missing are created."""
        existing = {pod["metadata"]["name"]: pod for pod in self._list_pods(intent)}
        pod_names = names(self._cluster, intent)
        if missing := [name for name in pod_names if name not in existing]:
            template = self._client.pod_template(f"{intent.template}-{intent.template_version}")
            for name in missing:
                pod = build_pod(template, name, self._cluster, intent, self._gpus)
                try:
                    existing[name] = self._client.create_pod(pod)
                except ApiException as error:
                    existing[name] = self._find_taken(name, error)
        return existing

    def _find_taken(self, name: str, refusal: ApiException) -> Document:
        """Return the pod that another scheduler was faster to create.

        Raises:
            ApiException: the refusal, if there is no such pod. A ResourceQuota that changed meanwhile has the same
                status (Kubernetes, `apiserver/pkg/admission/plugin/resourcequota`).
        """
        if errors.error_code(refusal) != ALREADY_EXISTS:
            raise refusal
        try:
            return self._client.pod(name)
        except ApiException as error:
            raise (refusal if is_status(error, NOT_FOUND) else error) from None

    def _list_pods(self, intent: LaunchIntent) -> list[Document]:
        return list_agents(self._client, self._cluster, launch=intent.token)

    def _rejected(self, intent: LaunchIntent, error: ApiException | BadTemplate) -> LaunchAnswer:
        """Return the answer to a request that the API server did not accept. What was created before it is settled.

        Raises:
            ApiException: if the refusal may pass.
        """
        if isinstance(error, BadTemplate):
            return LaunchAnswer(errors=(_refusal(intent, LaunchTrouble.REQUEST, "BadTemplate", str(error)),))
        kind = errors.launch_trouble(error)
        if kind in _PASSING:
            raise error
        refusal = _refusal(intent, kind, errors.error_code(error), errors.error_message(error))
        brought = list[Launched]()
        for pod in self._list_pods(intent):
            placement = self._placement(pod)
            if placement is not None and not intent.whole:
                brought.append(_launched(pod["metadata"]["name"], placement))
            elif placement is not None:
                end_pod(self._client, pod["metadata"]["name"])
            elif not withdraw(self._client, pod):
                raise StillPending("a pod changed while it was withdrawn")
        return LaunchAnswer(instances=tuple(brought), errors=(refusal,))

    def _placement(self, pod: Document) -> NodePlacement | None:
        """Return the placement of a pod, by its node or by the NodeClaim whose machine was launched for it."""
        if pod["spec"].get("nodeName"):
            return self._placements.find(pod)
        for event in _newest_first(self._events(pod), NOMINATED):
            claim = self._find_claim(event)
            if claim is None:
                continue
            labels = claim["metadata"].get("labels", {})
            provider_id = claim.get("status", {}).get("providerID")
            # The share of a machine of another NodePool follows from its node, which has to be there first.
            if provider_id and labels.get(CLUSTER_LABEL) == self._cluster:
                return NodePlacement.read({**labels, MACHINE_LABEL: str(provider_id).rpartition("/")[2]})
        return None

    def _refused(self, pod: Document) -> str:
        """Return why Karpenter adds no node for a pod; empty while it may. A refusal is over once a node or a NodeClaim
        was nominated after it, as long as this is there."""
        events = self._events(pod)
        refusal = next(iter(_newest_first(events, REFUSED)), None)
        if refusal is None:
            return ""
        for nomination in _newest_first(events, NOMINATED):
            if _last_seen(nomination) < _last_seen(refusal):
                break
            if not _claim_name(nomination) or self._find_claim(nomination) is not None:
                return ""
        return str(refusal.get("message") or REFUSED[1])

    def _events(self, pod: Document) -> list[Document]:
        return self._client.pod_events(pod["metadata"]["uid"])

    def _find_claim(self, nomination: Document) -> Document | None:
        """Return the NodeClaim that an event names; None if it names none, and if nothing could be launched by it."""
        if not (name := _claim_name(nomination)):
            return None
        try:
            return self._client.node_claim(name)
        except ApiException as error:
            if is_status(error, NOT_FOUND):
                return None
            raise


class Tidying:
    """Lets pods go that are over: those whose end was described, and those that never got a node."""

    def __init__(self, client: KubernetesClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._described: dict[str, int] = {}
        self._unplaced_since: dict[str, timedelta] = {}

    def tidy(self, pods: Sequence[Document]) -> None:
        """Let go of those of the described pods whose time has come."""
        unplaced = [pod for pod in pods if not pod["spec"].get("nodeName") and not is_ended(pod)]
        # While a pod of the launch waits, the launch is asked for again, and would create one that is gone anew.
        waiting = {pod["metadata"]["labels"][LAUNCH_LABEL] for pod in unplaced}
        ended = [pod for pod in pods if is_ended(pod) and pod["metadata"]["labels"][LAUNCH_LABEL] not in waiting]
        here = {pod["metadata"]["uid"] for pod in ended}
        self._described = {uid: count for uid, count in self._described.items() if uid in here}
        for pod in ended:
            uid = pod["metadata"]["uid"]
            self._described[uid] = self._described.get(uid, 0) + 1
            if self._described[uid] > REPEATS:
                self._withdraw(pod)
        now = self._clock.monotonic()
        since = self._unplaced_since
        self._unplaced_since = {uid: since.get(uid, now) for uid in (pod["metadata"]["uid"] for pod in unplaced)}
        for pod in unplaced:
            meta = pod["metadata"]
            # A deleted pod without a node is over at once; only the finalizer holds it.
            if "deletionTimestamp" in meta or now - self._unplaced_since[meta["uid"]] > ABANDONED:
                self._withdraw(pod)

    def _withdraw(self, pod: Document) -> None:
        """Withdraw a pod. A failure is logged, since the pod is described and tidied again."""
        try:
            withdraw(self._client, pod)
        except errors.ERRORS as error:
            _log.warning("%s cannot be let go: %s", pod["metadata"]["name"], error)


def terminate(client: KubernetesClient, instances: Iterable[str]) -> None:
    """See `Cloud.terminate`. Raises the client's errors."""
    failed = list[Exception]()
    for name in dict.fromkeys(instances):
        try:
            end_pod(client, name)
        except errors.ERRORS as error:
            _log.error("%s cannot be deleted: %s", name, error)
            failed.append(error)
    if failed:
        raise failed[0]


def end_pod(client: KubernetesClient, name: str) -> None:
    """Delete a pod with its grace period, and note on it that its scheduler does. A pod that is gone is skipped."""
    try:
        client.patch_pod(name, {"metadata": {"annotations": {RELEASED_NOTE: "true"}}})
        client.delete_pod(name)
    except ApiException as error:
        if not is_status(error, NOT_FOUND):
            raise


def withdraw(client: KubernetesClient, pod: Document) -> bool:
    """Remove a pod that has ended, or that has no node. Return whether it is gone: a pod that has changed since it was
    read, as when it got its node, stays."""
    meta = pod["metadata"]
    others = [name for name in meta.get("finalizers", []) if name != FINALIZER]
    try:
        if "deletionTimestamp" not in meta:
            client.delete_pod(meta["name"], version=meta["resourceVersion"])
        client.patch_pod(meta["name"], {"metadata": {"finalizers": others}})
    except ApiException as error:
        if is_status(error, CONFLICT):
            return False
        if not is_status(error, NOT_FOUND):
            raise
    return True


def _newest_first(events: Iterable[Document], kind: tuple[str, str]) -> list[Document]:
    """Return the events of one component and reason, the newest first."""
    matching = [event for event in events if (_component(event), event.get("reason")) == kind]
    return sorted(matching, key=_last_seen, reverse=True)


def _claim_name(nomination: Document) -> str:
    """Return the name of the NodeClaim in an event such as `Pod should schedule on: nodeclaim/NAME, node/NAME`; empty
    if a node was nominated that is there."""
    return str(nomination.get("message") or "").partition("nodeclaim/")[2].split(",")[0].strip()


def _component(event: Document) -> str:
    """Return who wrote an event, in the newer field or the older one."""
    return str(event.get("reportingComponent") or event.get("source", {}).get("component") or "")


def _last_seen(event: Document) -> datetime:
    return moment(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"])


def _unschedulable(pod: Document) -> str:
    """Return what the scheduler of Kubernetes says of a pod without a node."""
    conditions = pod.get("status", {}).get("conditions", [])
    message = next((c.get("message") for c in conditions if c["type"] == "PodScheduled"), None)
    return message or f"no node was added within {PATIENCE}"


def _launched(name: str, placement: NodePlacement) -> Launched:
    return Launched(
        instance_id=name,
        instance_type=placement.instance_type,
        zone=placement.zone,
        node=placement.machine,
        node_share=placement.share,
    )


def _refusal(intent: LaunchIntent, kind: LaunchTrouble, code: str, message: str) -> LaunchError:
    """Return a refusal of the whole request, which concerns every pool."""
    return LaunchError(market=intent.market, kind=kind, code=code, message=message)
