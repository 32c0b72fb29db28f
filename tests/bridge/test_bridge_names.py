"""Every property name of every used type translates both ways between the installed SDK and the real upstream
schema."""

import ast
import re
from pathlib import Path

import pytest
from everspot_local.bridge.names import NameMismatch, camel, plural, singular
from everspot_local.bridge.providers import table
from everspot_local.bridge.sdk import Sdk, snake
from everspot_local.bridge.values import from_upstream, to_upstream

AWS = """
ec2/vpc:Vpc ec2/subnet:Subnet ec2/routeTable:RouteTable ec2/routeTableAssociation:RouteTableAssociation
ec2/securityGroup:SecurityGroup vpc/securityGroupIngressRule:SecurityGroupIngressRule
vpc/securityGroupEgressRule:SecurityGroupEgressRule ec2/vpcEndpoint:VpcEndpoint ec2/launchTemplate:LaunchTemplate
ec2/fleet:Fleet autoscaling/group:Group iam/role:Role iam/rolePolicy:RolePolicy iam/instanceProfile:InstanceProfile
iam/serviceLinkedRole:ServiceLinkedRole iam/policy:Policy iam/rolePolicyAttachment:RolePolicyAttachment s3/bucket:Bucket
s3/bucketVersioning:BucketVersioning s3/bucketPublicAccessBlock:BucketPublicAccessBlock s3/bucketPolicy:BucketPolicy
s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration
s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration s3/bucketOwnershipControls:BucketOwnershipControls
s3/bucketObject:BucketObject s3/bucketObjectv2:BucketObjectv2 sqs/queue:Queue sqs/queuePolicy:QueuePolicy
sqs/redrivePolicy:RedrivePolicy sqs/redriveAllowPolicy:RedriveAllowPolicy cloudwatch/eventRule:EventRule
cloudwatch/eventTarget:EventTarget cloudwatch/logGroup:LogGroup ssm/parameter:Parameter kms/key:Key kms/alias:Alias
ec2/defaultSecurityGroup:DefaultSecurityGroup ec2/flowLog:FlowLog ec2/managedPrefixList:ManagedPrefixList
kms/grant:Grant cloudwatch/metricAlarm:MetricAlarm cloudwatch/dashboard:Dashboard
ec2/natGateway:NatGateway ec2/internetGateway:InternetGateway ec2/eip:Eip ec2/route:Route
iam/openIdConnectProvider:OpenIdConnectProvider budgets/budget:Budget
costexplorer/anomalyMonitor:AnomalyMonitor costexplorer/anomalySubscription:AnomalySubscription
costexplorer/costAllocationTag:CostAllocationTag eks/podIdentityAssociation:PodIdentityAssociation
"""
AWS_FUNCTIONS = """
index/getAvailabilityZones:getAvailabilityZones index/getCallerIdentity:getCallerIdentity index/getRegion:getRegion
index/getPartition:getPartition ssm/getParameter:getParameter ec2/getAmi:getAmi iam/getPolicyDocument:getPolicyDocument
ec2/getVpc:getVpc ec2/getSubnet:getSubnet ec2/getPrefixList:getPrefixList ec2/getSecurityGroups:getSecurityGroups
iam/getRole:getRole ec2/getVpcEndpoint:getVpcEndpoint ec2/getRouteTable:getRouteTable
ec2/getInstanceTypeOfferings:getInstanceTypeOfferings ebs/getDefaultKmsKey:getDefaultKmsKey kms/getKey:getKey
servicequotas/getServiceQuota:getServiceQuota eks/getCluster:getCluster
"""
GCP = """
compute/network:Network compute/subnetwork:Subnetwork compute/firewall:Firewall compute/router:Router
compute/routerNat:RouterNat compute/healthCheck:HealthCheck compute/regionHealthCheck:RegionHealthCheck
compute/instanceTemplate:InstanceTemplate compute/regionInstanceTemplate:RegionInstanceTemplate
compute/regionInstanceGroupManager:RegionInstanceGroupManager serviceaccount/account:Account
serviceaccount/iAMMember:IAMMember projects/iAMMember:IAMMember projects/iAMCustomRole:IAMCustomRole
projects/service:Service storage/bucket:Bucket storage/bucketIAMMember:BucketIAMMember
storage/bucketObject:BucketObject pubsub/topic:Topic pubsub/subscription:Subscription
pubsub/topicIAMMember:TopicIAMMember pubsub/subscriptionIAMMember:SubscriptionIAMMember
logging/projectSink:ProjectSink secretmanager/secret:Secret secretmanager/secretVersion:SecretVersion
secretmanager/secretIamMember:SecretIamMember kms/keyRing:KeyRing kms/cryptoKey:CryptoKey
kms/cryptoKeyIAMMember:CryptoKeyIAMMember monitoring/dashboard:Dashboard monitoring/alertPolicy:AlertPolicy
monitoring/notificationChannel:NotificationChannel iam/workloadIdentityPool:WorkloadIdentityPool
iam/workloadIdentityPoolProvider:WorkloadIdentityPoolProvider billing/budget:Budget
"""
GCP_FUNCTIONS = """
compute/getImage:getImage compute/getNetwork:getNetwork compute/getSubnetwork:getSubnetwork compute/getZones:getZones
organizations/getClientConfig:getClientConfig organizations/getProject:getProject
storage/getProjectServiceAccount:getProjectServiceAccount
"""
IN_USE = {"aws": AWS.split(), "gcp": GCP.split()}
FUNCTIONS = {"aws": AWS_FUNCTIONS.split(), "gcp": GCP_FUNCTIONS.split()}

ROOT = Path(__file__).parents[2]


def called(path, provider):
    """Every `service.Class(` and `service.get_function(` of an SDK that a file calls, or asks by its token."""
    tree = ast.parse(path.read_text())
    for text in (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)):
        if token_match := re.fullmatch(r"(\w+)/(get\w+):\2", text):
            yield token_match[1], snake(token_match[2])
    package = f"pulumi_{provider}"
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == package]
    services = {alias.name for n in imports for alias in n.names}
    for call in (n.func for n in ast.walk(tree) if isinstance(n, ast.Call)):
        match call:
            case ast.Attribute(ast.Attribute(ast.Name(first), service), name) if first == provider:
                yield service, name
            case ast.Attribute(ast.Name(service), name) if service in services:
                yield service, name
            case ast.Attribute(ast.Name(first), name) if first == provider:
                yield "index", name


@pytest.mark.parametrize("provider", [name for name in IN_USE if (ROOT / "components/everspot" / name).is_dir()])
def test_the_types_in_use_are_those_that_components_and_stacks_use(provider):
    others = (set(IN_USE) | ({"kubernetes"} if provider == "gcp" else set())) - {provider}  # its buckets are in AWS
    files = [*ROOT.glob("components/**/*.py"), *ROOT.glob("stacks/*.py")]
    sources = [path for path in files if not others & set(path.relative_to(ROOT).parts)]
    used = {pair for path in sources for pair in called(path, provider) if not pair[1].endswith(("Args", "ArgsDict"))}
    classes = {(t.split("/")[0], t.split(":")[1]) for t in IN_USE[provider]}
    functions = {(t.split("/")[0], snake(t.split(":")[1])) for t in FUNCTIONS[provider]}
    used_classes = {p for p in used if p[1][0].isupper() and p[1] != "Provider"}
    assert len(used_classes) > 15
    assert used_classes <= classes
    used_functions = {(s, n.removesuffix("_output")) for s, n in used if n.startswith("get_")}
    assert used_functions <= functions
    assert {f"{provider}:{token}" for token in IN_USE[provider]} <= set(Sdk(table(provider).sdk).registry)


def sample(node, depth=0):
    """A value of a type in which every part that can be there is there once."""
    if node.kind == "object":
        return {f.tf: sample(f.node, depth + 1) for f in node.fields.values()} if depth < 12 else None
    if node.kind in ("list", "set"):
        return [sample(node.elem, depth + 1)]
    if node.kind == "map":
        return {"key": sample(node.elem, depth + 1)}
    return {"string": "7", "number": 7, "bool": True}.get(node.kind)


def hidden(node, value):
    """Take out of a sample what has no Pulumi name: the id and the timeouts, which Pulumi has options for."""
    return {f.tf: value[f.tf] for f in node.fields.values() if f.pulumi}


def token_params(tokens):
    return [
        pytest.param(provider, f"{provider}:{t}", id=f"{provider}:{t}") for provider in tokens for t in tokens[provider]
    ]


def there_and_back(mapping, provider):
    """Hold a sample of a type against itself, taken to Pulumi's names and back; return the names that it has there."""
    full = sample(mapping.node)
    translated = from_upstream(mapping.node, full)
    assert hidden(mapping.node, to_upstream(mapping.node, translated)) == hidden(mapping.node, full)
    ahead = table(provider).sdk_ahead.get((mapping.upstream, ""), set())
    expected = (set(mapping.names.inputs) | set(mapping.names.outputs)) - ahead - {"id"}
    return set(translated), expected


@pytest.mark.parametrize(("provider", "token"), token_params(IN_USE))
def test_every_property_of_a_resource_in_use_maps_both_ways(before, provider, token):
    translated, expected = there_and_back(before(provider).mapping(token), provider)
    assert translated == expected


@pytest.mark.parametrize(("provider", "token"), token_params(FUNCTIONS))
def test_every_property_of_a_function_in_use_maps_both_ways(before, provider, token):
    translated, expected = there_and_back(before(provider).function(token), provider)
    assert translated - {"id"} == expected


@pytest.mark.parametrize(
    ("provider", "some"),
    [("aws", {"region", "defaultTags", "endpoints"}), ("gcp", {"project", "region", "addPulumiAttributionLabel"})],
)
def test_the_providers_own_configuration_has_its_names(before, provider, some):
    assert some <= {f.pulumi for f in before(provider).provider().node.fields.values()}


def test_what_the_trimmed_provider_was_given_besides_is_there(before):
    for kind in ("instanceTemplate:InstanceTemplate", "regionInstanceTemplate:RegionInstanceTemplate"):
        scheduling = before("gcp").mapping(f"gcp:compute/{kind}").node.fields["scheduling"].node.elem
        notice = scheduling.fields["preemption_notice_duration"]
        assert notice.pulumi == "preemptionNoticeDuration" and notice.flat
        assert set(notice.node.elem.fields) == {"seconds", "nanos"}


def test_a_wrong_rule_fails_loudly(resources, monkeypatch):
    monkeypatch.setattr("everspot_local.bridge.names.plural", lambda noun: noun)
    monkeypatch.setattr(resources, "_mappings", {})
    with pytest.raises(NameMismatch, match="aws_ec2_fleet has no property in the SDK"):
        resources.mapping("aws:ec2/fleet:Fleet")


def test_a_service_that_was_not_built_is_named(resources):
    with pytest.raises(NameMismatch, match="aws_rds_cluster"):
        resources.mapping("aws:rds/cluster:Cluster")


@pytest.mark.parametrize(
    ("field_name", "many"),
    [
        ("subnet_id", "subnetIds"),
        ("policy", "policies"),
        ("access", "accesses"),
        ("key", "keys"),
        ("status", "statuses"),
    ],
)
def test_names_follow_the_generators_rule(field_name, many):
    assert plural(camel(field_name)) == many
    assert singular("subnetIds") == "subnetId"
