"""Types of Google Cloud resources that cost nothing themselves, as the provider calls them."""

_SERVICES: dict[str, tuple[str, ...]] = {
    "billing": ("budget:Budget",),
    "compute": (
        "firewall:Firewall",
        "healthCheck:HealthCheck",
        "instanceTemplate:InstanceTemplate",
        "network:Network",
        "projectMetadataItem:ProjectMetadataItem",
        "regionHealthCheck:RegionHealthCheck",
        "regionInstanceTemplate:RegionInstanceTemplate",
        "route:Route",
        "router:Router",
        "subnetwork:Subnetwork",
    ),
    "iam": (
        "denyPolicy:DenyPolicy",
        "workloadIdentityPool:WorkloadIdentityPool",
        "workloadIdentityPoolProvider:WorkloadIdentityPoolProvider",
    ),
    "kms": ("cryptoKeyIAMMember:CryptoKeyIAMMember", "keyRing:KeyRing"),
    "logging": ("projectSink:ProjectSink",),
    "monitoring": ("dashboard:Dashboard", "notificationChannel:NotificationChannel"),
    "projects": ("iAMCustomRole:IAMCustomRole", "iAMMember:IAMMember", "service:Service"),
    "pubsub": ("subscriptionIAMMember:SubscriptionIAMMember", "topicIAMMember:TopicIAMMember"),
    "secretmanager": ("secretIamMember:SecretIamMember",),
    "serviceaccount": ("account:Account", "iAMMember:IAMMember"),
    "storage": ("bucketIAMMember:BucketIAMMember", "bucketObject:BucketObject"),
}

FREE = frozenset(f"gcp:{service}/{name}" for service, names in _SERVICES.items() for name in names)
"""Their whole names. What objects cost is the bucket's by use."""
