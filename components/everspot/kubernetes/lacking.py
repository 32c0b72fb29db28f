"""Settings of other clouds that a cluster on Kubernetes lacks, with the settings to use instead."""

from collections.abc import Mapping

_NETWORK = "the network is the Kubernetes cluster's; nodes.subnetTags and nodes.securityGroupTags choose from it"
_DISK = "nodes have one encrypted gp3 volume: nodes.volumeGib"
_IMAGE = "agents are containers here: image"

LACKS: Mapping[str, str] = {
    "capacity.standing": "nodes are launched while jobs wait: capacity.elastic",
    "capacity.maxPrice": "Karpenter takes no maximum price: capacity.elastic.maxUsdPerHour",
    "capacity.notice": "a pod's grace period is its notice",
    "capacity.instanceTypes.maxPrice": "Karpenter takes no maximum price: capacity.elastic.maxUsdPerHour",
    "capacity.instanceTypes.weight": "a node counts as one instance",
    "capacity.instanceTypes.throughput": "it weighs standing capacity, and there is none here",
    "capacity.elastic.maxRun": "nodes are not ended by time; agents end themselves by limits",
    "imageId": _IMAGE,
    "imageParameter": _IMAGE,
    "imageFamily": _IMAGE,
    "volumeGib": _DISK,
    "volumeIops": _DISK,
    "volumeThroughput": _DISK,
    "volumeInitializationRate": _DISK,
    "volumeType": _DISK,
    "volumeKeyArns": "the account's default key for EBS encrypts, which Karpenter has to be allowed to use",
    "zones": "zones are those of capacity.elastic.zones",
    "vpcId": _NETWORK,
    "subnetIds": _NETWORK,
    "vpcCidr": _NETWORK,
    "peerCidrs": _NETWORK,
    "network": _NETWORK,
    "subnetwork": _NETWORK,
    "egress": _NETWORK,
    "services": _NETWORK,
    "nat": _NETWORK,
    "flowLogBucketArn": _NETWORK,
    "schedulerType": "the scheduler is a pod here, on the nodes that the Kubernetes cluster has",
    "interruptionEvents": "Karpenter takes EC2's notices, and evicts the pods",
    "sessionManager": "people come in by kubectl here",
    "prometheus.cidrs": "pods read: prometheus.namespaces",
    "prometheus.securityGroupIds": "pods read: prometheus.namespaces",
    "monitoring": "the Kubernetes cluster has its own",
    "capacity.standing.capacityRebalance.terminationDelay": "nodes are launched while jobs wait",
    "firewall": _NETWORK,
    "flowLogs": _NETWORK,
    "iapSsh": "people come in by kubectl here",
    "schedulerCidr": "the scheduler is a pod here",
    "readBuckets": "buckets are named by their ARNs here: readBucketArns",
    "secrets": "secrets are named by their ARNs here: secretArns",
    "kmsKey": "keys are named by their ARNs here: kmsKeyArn",
    "notifications.topic": "topics are named by their ARNs here: topicArn",
    "notifications.webhookSecret": "secrets are named by their ARNs here: webhookSecretArn",
    "imageRepositories": "a job's image is a dataset here",
    "secureBoot": "the nodes' image decides it: nodes.amiAlias",
    "volumeKmsKey": _DISK,
    "federation": "a cluster on Kubernetes exchanges no jobs",
}
"""The reason by the setting's path, without positions in lists."""
