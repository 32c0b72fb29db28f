"""Settings of other clouds that AWS lacks, with the settings to use instead."""

from collections.abc import Mapping

_MACHINES = "instances are machines here, and no pods of a Kubernetes cluster"
LACKS: Mapping[str, str] = {
    "capacity.notice": "EC2's warning of two minutes cannot be chosen",
    "capacity.standing.prefer": "EC2 Fleet has allocation strategies here: spotAllocation, onDemandAllocation",
    "capacity.standing.shape": "EC2 Fleet spreads over the subnets by its allocation strategy",
    "capacity.elastic.maxRun": "EC2 ends no instance by time; instances end themselves by limits",
    "imageFamily": "an image's id is in a parameter here: imageParameter",
    "volumeType": "volumes are gp3 here: volumeIops, volumeThroughput",
    "volumeKmsKey": "keys are named by their ARNs here: volumeKeyArns",
    "secureBoot": "the image decides it",
    "network": "an existing network is named by vpcId and subnetIds here",
    "subnetwork": "an existing network is named by vpcId and subnetIds here",
    "firewall": "a security group of the cluster's own is always made",
    "schedulerCidr": "the scheduler has no subnet of its own here: its security group may go out to peers",
    "flowLogs": "flow logs go to a bucket here: flowLogBucketArn",
    "iapSsh": "people come in through Session Manager here: sessionManager",
    "readBuckets": "buckets are named by their ARNs here: readBucketArns",
    "secrets": "secrets are named by their ARNs here: secretArns",
    "kmsKey": "keys are named by their ARNs here: kmsKeyArn",
    "notifications.topic": "topics are named by their ARNs here: topicArn",
    "notifications.webhookSecret": "secrets are named by their ARNs here: webhookSecretArn",
    "monitoring.channels": "alarms go to an SNS topic here: topicArn",
    "prometheus.namespaces": "Prometheus is named by cidrs or securityGroupIds here",
    "eksCluster": _MACHINES,
    "context": _MACHINES,
    "datasetsClaim": _MACHINES,
    "jobImages": "every instance runs jobs with images of their own",
    "namespace": _MACHINES,
    "nodes": _MACHINES,
    "image": "instances boot a machine's image here: imageId, imageParameter",
}
"""The reason by the setting's path, without positions in lists."""
