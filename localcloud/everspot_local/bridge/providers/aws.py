"""AWS: what pulumi-aws and its upstream provider call differently, and what is odd about them."""

from __future__ import annotations

from everspot_local.bridge.table import Naming, ProviderTable

TABLE = ProviderTable(
    package="aws",
    prefix="aws",
    sdk="pulumi_aws",
    binary="terraform-provider-aws",
    plugin="pulumi-resource-aws",
    types={
        "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "aws_iam_openid_connect_provider",
        "aws:s3/bucketObjectv2:BucketObjectv2": "aws_s3_object",
        "aws:s3/bucketObject:BucketObject": "aws_s3_bucket_object",
        "aws:sqs/redrivePolicy:RedrivePolicy": "aws_sqs_queue_redrive_policy",
        "aws:sqs/redriveAllowPolicy:RedriveAllowPolicy": "aws_sqs_queue_redrive_allow_policy",
    },
    folders={"costexplorer": "ce"},
    fields={
        ("aws_cloudwatch_metric_alarm", "alarm_name"): "name",
        ("aws_cloudwatch_log_subscription_filter", "log_group_name"): "logGroup",
        ("aws_cloudwatch_event_endpoint", "event_bus"): "eventBuses",
        ("aws_sns_topic_subscription", "topic_arn"): "topic",
    },
    sdk_ahead={
        ("aws_autoscaling_group", ""): {"instanceLifecyclePolicy"},
        ("aws_cloudwatch_metric_alarm", ""): {"evaluationWindow", "warmUpConfiguration"},
        ("aws_cloudwatch_otel_enrichment", ""): {"excludeFilters", "includeFilters"},
        ("aws_cloudwatch_query_definition", ""): {"arn"},
        ("aws_eks_cluster", ""): {"kubeApiServerConfigs", "kubeControllerManagerConfigs", "kubeSchedulerConfigs"},
        ("aws_eks_cluster", "outpost_config"): {"etcdInstanceType", "etcdPlacements"},
        ("aws_eks_cluster", "outpost_config.control_plane_placement"): {"spreadLevel"},
        ("aws_eks_cluster", "vpc_config"): {"controlPlaneEgressMode"},
        ("aws_eks_pod_identity_association", ""): {"policy"},
        ("aws_flow_log", ""): {"tagFieldSpecifications"},
        ("aws_launch_template", "network_interfaces"): {"enaQueueCount"},
        ("aws_network_interface", ""): {"connectionTrackingSpecification"},
        ("aws_s3_bucket", "server_side_encryption_configuration.rule"): {"blockedEncryptionTypes"},
        ("aws_s3_bucket_server_side_encryption_configuration", "rule"): {"blockedEncryptionTypes"},
        ("aws_sns_topic", ""): {"maximumMessageSize"},
        ("aws_vpc", ""): {"ipv6CidrBlockAssociations"},
    },
    bare_folders=frozenset({"ec2", "index"}),  # `aws_vpc`, not `aws_ec2_vpc`
    version_suffix="_?v2",
    open_config=frozenset({"endpoints"}),
    presets={"skipMetadataApiCheck": True, "skipRegionValidation": True},
    replacing=frozenset({"region"}),
    naming={
        "aws_s3_bucket": Naming("bucket", 63, lower=True),
        "aws_iam_role": Naming(longest=64),
        "aws_iam_role_policy": Naming(longest=128),
        "aws_iam_policy": Naming(longest=128),
        "aws_iam_instance_profile": Naming(longest=128),
        "aws_cloudwatch_event_rule": Naming(longest=64),
        "aws_launch_template": Naming(longest=128),
        "aws_sqs_queue": Naming(longest=80),
        "aws_kms_alias": Naming(prefix="alias/"),
    },
    unnamed=frozenset({"aws_availability_zones", "aws_iam_role_policy_attachment"}),
    endings={"fifoQueue": ".fifo", "fifoTopic": ".fifo"},
    # S3 Control puts the account before the endpoint's host name, and a name such as 123456789012.127.0.0.1 cannot be
    # looked up.
    proxied="AWS_ENDPOINT_URL",
)
