"""Types of AWS resources that cost nothing themselves, as the provider calls them."""

_SERVICES: dict[str, tuple[str, ...]] = {
    "autoscaling": ("lifecycleHook:LifecycleHook", "notification:Notification", "policy:Policy", "tag:Tag"),
    # Rules for the events of AWS's own services are free (Amazon EventBridge pricing).
    "cloudwatch": ("eventPermission:EventPermission", "eventRule:EventRule", "eventTarget:EventTarget"),
    "budgets": ("budget:Budget",),  # without actions
    "costexplorer": (
        "anomalyMonitor:AnomalyMonitor",
        "anomalySubscription:AnomalySubscription",
        "costAllocationTag:CostAllocationTag",
    ),
    "ec2": (
        "defaultSecurityGroup:DefaultSecurityGroup",
        "eipAssociation:EipAssociation",
        "encryptionByDefault:EncryptionByDefault",
        "internetGateway:InternetGateway",
        "keyPair:KeyPair",
        "launchTemplate:LaunchTemplate",
        "mainRouteTableAssociation:MainRouteTableAssociation",
        "managedPrefixList:ManagedPrefixList",
        "managedPrefixListEntry:ManagedPrefixListEntry",
        "networkAcl:NetworkAcl",
        "placementGroup:PlacementGroup",
        "route:Route",
        "routeTable:RouteTable",
        "routeTableAssociation:RouteTableAssociation",
        "securityGroup:SecurityGroup",
        "securityGroupRule:SecurityGroupRule",
        "subnet:Subnet",
        "tag:Tag",
        "vpc:Vpc",
        "vpcEndpointPolicy:VpcEndpointPolicy",
        "vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
    ),
    "kms": ("alias:Alias", "grant:Grant", "keyPolicy:KeyPolicy"),
    "resourcegroups": ("group:Group",),
    "sns": ("topicPolicy:TopicPolicy", "topicSubscription:TopicSubscription"),
    "sqs": ("queuePolicy:QueuePolicy", "redriveAllowPolicy:RedriveAllowPolicy", "redrivePolicy:RedrivePolicy"),
    "vpc": (
        "securityGroupEgressRule:SecurityGroupEgressRule",
        "securityGroupIngressRule:SecurityGroupIngressRule",
    ),
    "iam": (
        "instanceProfile:InstanceProfile",
        "openIdConnectProvider:OpenIdConnectProvider",
        "policy:Policy",
        "policyAttachment:PolicyAttachment",
        "role:Role",
        "rolePolicy:RolePolicy",
        "rolePolicyAttachment:RolePolicyAttachment",
        "serviceLinkedRole:ServiceLinkedRole",
    ),
    "s3": (
        "accountPublicAccessBlock:AccountPublicAccessBlock",
        "bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "bucketNotification:BucketNotification",
        "bucketObjectv2:BucketObjectv2",
        "bucketOwnershipControls:BucketOwnershipControls",
        "bucketPolicy:BucketPolicy",
        "bucketPublicAccessBlock:BucketPublicAccessBlock",
        "bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "bucketVersioning:BucketVersioning",
    ),
}

FREE = frozenset(f"aws:{service}/{name}" for service, names in _SERVICES.items() for name in names)
"""Their whole names. What objects cost is the bucket's by use."""
