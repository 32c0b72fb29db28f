"""The identity of a pod, and whether its machine will be taken.

The name of the pod and of its node are variables, which the downward API fills. Type, zone and market are labels of the
node, which the pod's service account may get. EC2's own metadata service is asked for notices where the pod can reach
it: by default its answers do not cross the additional hop to a pod (EC2 User Guide, "Configure the instance metadata
options", hop limit). Without it the pod's SIGTERM is the notice.

It uses only the standard library: see `everspot_clouds.base`.
"""

import json
import logging
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from everspot_core.capacity.market import Market
from everspot_core.clock import Clock

from everspot_clouds.aws.metadata import ImdsClient, ImdsMetadata, endpoint_from
from everspot_clouds.base import Identity, MetadataError, MetadataUnavailable
from everspot_clouds.kubernetes.boot_rules import (
    MANIFEST_VARIABLE,
    MARKET_LABEL,
    NODE_VARIABLE,
    PLACEMENT_LABELS,
    POD_VARIABLE,
    SPOT,
    TYPE_LABEL,
    ZONE_LABEL,
)
from everspot_clouds.kubernetes.service_account import ServiceAccount, find_account

TIMEOUT = timedelta(seconds=5)
_log = logging.getLogger(__name__)


class PodMetadata:
    """See `everspot_clouds.base.Metadata`. `getenv`: the environment of the agent's container."""

    where = f"the variable {MANIFEST_VARIABLE}"

    def __init__(self, clock: Clock, getenv: Callable[[str], str | None]) -> None:
        self._getenv = getenv
        self._machine: ImdsMetadata | None = ImdsMetadata(ImdsClient(endpoint_from(getenv), clock))
        self._reached = False

    def manifest(self) -> str:
        """Return the variable of the pod's template."""
        return self._required(MANIFEST_VARIABLE)

    def identity(self) -> Identity:
        """Return the pod's name, and its node's type, zone and market."""
        node = self._required(NODE_VARIABLE)
        labels = read_labels(self._account(), node)
        missing = [name for name in PLACEMENT_LABELS if not labels.get(name)]
        if missing:
            raise MetadataError(f"the node {node} has no label {', '.join(missing)}: only Karpenter's nodes serve")
        return Identity(
            instance_id=self._required(POD_VARIABLE),
            instance_type=labels[TYPE_LABEL],
            zone=labels[ZONE_LABEL],
            market=Market.SPOT if labels[MARKET_LABEL] == SPOT else Market.ON_DEMAND,
        )

    def interruption(self) -> datetime | None:
        """Return the time in EC2's notice; None where the pod does not reach EC2's metadata service. Such a service is
        asked once."""
        return self._query_machine(lambda machine: machine.interruption())

    def rebalance(self) -> datetime | None:
        """Return the moment of EC2's recommendation; None as for `interruption`."""
        return self._query_machine(lambda machine: machine.rebalance())

    def end(self) -> bool:
        """Return True: a pod whose only process ends is over, and its node ends when it is empty."""
        return True

    def _query_machine(self, question: Callable[[ImdsMetadata], datetime | None]) -> datetime | None:
        if self._machine is None:
            return None
        try:
            answer = question(self._machine)
        except MetadataUnavailable as error:
            if self._reached:
                raise
            _log.info("EC2's metadata service cannot be reached from this pod; SIGTERM is the notice: %s", error)
            self._machine = None
            return None
        self._reached = True
        return answer

    def _account(self) -> ServiceAccount:
        account = find_account(self._getenv)
        if account is None:
            raise MetadataError("this pod has no service account's token: set automountServiceAccountToken")
        return account

    def _required(self, name: str) -> str:
        value = self._getenv(name)
        if not value:
            raise MetadataError(f"{name} is not set: this is no pod of an Everspot cluster")
        return value


def read_labels(account: ServiceAccount, node: str) -> Mapping[str, str]:
    """Return the labels of a node.

    Raises:
        MetadataUnavailable: if the API server does not answer, or answers with 429 or 5xx.
        MetadataError: if it refuses, or does not know the node.
    """
    url = f"{account.server}/api/v1/nodes/{urllib.parse.quote(node, safe='')}"
    try:
        token = account.token.read_text().strip()
        context = ssl.create_default_context(cafile=str(account.certificate))
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310
        # Without a proxy: the address is of the cluster.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(request, timeout=TIMEOUT.total_seconds()) as answer:
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            kind = MetadataUnavailable if error.code == 429 or error.code >= 500 else MetadataError
            raise kind(f"the API server answered {error.code} to a get of the node {node}") from error
    except (OSError, ValueError) as error:
        raise MetadataUnavailable(f"the API server: {error}") from error
    labels = document.get("metadata", {}).get("labels", {})
    return {str(name): str(value) for name, value in labels.items()}
