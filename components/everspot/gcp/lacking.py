"""Settings of other clouds that Google Cloud lacks. They are refused by name, with the settings to use instead."""

from collections.abc import Mapping
from typing import Any

from everspot_core.validation.problems import Problems, camel

PRICE = "Google Cloud takes no maximum price: Spot costs what the list says, and changes at most once a day"
COUNTED = "a group counts machines, whatever their types: target is a number of them; throughput says which are better"
CHOICE = "a group has no allocation strategy; prefer says price, balance, depth or order"

_MACHINES = "instances are machines here, and no pods of a Kubernetes cluster"
LACKS: Mapping[str, str] = {
    "capacity.maxPrice": PRICE,
    "capacity.instanceTypes.maxPrice": PRICE,
    "capacity.instanceTypes.weight": COUNTED,
    "capacity.standing.weightBy": COUNTED,
    "capacity.standing.spotAllocation": CHOICE,
    "capacity.standing.onDemandAllocation": CHOICE,
    "capacity.standing.lowestPricePools": CHOICE,
    "capacity.standing.capacityRebalance": "Google Cloud recommends no rebalance; notice asks for an earlier warning",
    "imageParameter": "images are found by their family here: imageFamily",
    "volumeIops": "a disk's figures follow from its type and size: volumeType, volumeGib",
    "volumeThroughput": "a disk's figures follow from its type and size: volumeType, volumeGib",
    "volumeInitializationRate": "disks are read from their image at full speed",
    "vpcId": "an existing network is named by network and subnetwork here",
    "subnetIds": "a subnetwork spans the region's zones here: subnetwork names one",
    "egress": "what an existing network lets out is in its own firewall; agents and scheduler need no proxy, "
    "since they call Google's services alone, by Private Google Access",
    "services": "Private Google Access reaches all of Google's services",
    "flowLogBucketArn": "flow logs go to Cloud Logging here: flowLogs",
    "readBucketArns": "buckets are named here: readBuckets",
    "secretArns": "secrets are named projects/PROJECT/secrets/NAME here: secrets",
    "kmsKeyArn": "keys are named projects/…/cryptoKeys/NAME here: kmsKey",
    "formerKmsKeyArns": "Cloud Storage may use a key of the buckets as long as the key's own policy says so",
    "volumeKeyArns": "keys are named projects/…/cryptoKeys/NAME here: volumeKmsKey",
    "permissionsBoundaryArn": "service accounts have no permissions boundary; an organization's deny policies are one",
    "interruptionEvents": "Google's messages about instances cost next to nothing, and always reach the scheduler",
    "sessionManager": "people come in through Identity-Aware Proxy here: iapSsh",
    "notifications.topicArn": "a topic is named projects/PROJECT/topics/NAME here: topic",
    "notifications.webhookSecretArn": "a secret is named projects/PROJECT/secrets/NAME here: webhookSecret",
    "prometheus.namespaces": "Prometheus is named by cidrs here",
    "prometheus.securityGroupIds": "there are no security groups; cidrs names who reads",
    "monitoring.topicArn": "an alert goes to notification channels here: channels",
    "eksCluster": _MACHINES,
    "context": _MACHINES,
    "datasetsClaim": _MACHINES,
    "jobImages": "every instance runs jobs with images of their own",
    "namespace": _MACHINES,
    "nodes": _MACHINES,
    "image": "instances boot a machine's image here: imageFamily",
}
"""The reason by the setting's path, without positions in lists."""


def lacking_problems(problems: Problems, args: Mapping[str, Any]) -> None:
    """Add every input of a cluster that only another cloud has. In a program a mapping may have more keys than its
    type."""
    _look(problems, args, "")


def _look(problems: Problems, value: Any, path: str) -> None:
    if isinstance(value, list):
        for index, entry in enumerate(value):
            _look(problems.at(f"[{index}]"), entry, path)
    elif isinstance(value, Mapping):
        for key, entry in value.items():
            name = camel(str(key))
            here = f"{path}.{name}" if path else name
            if here in LACKS:
                problems.add(name, LACKS[here])
            else:
                _look(problems.at(name), entry, here)
