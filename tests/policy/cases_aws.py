"""The table for AWS."""

import base64
import gzip

from cases import Cases, allow, document
from everspot_core.declared import UNKNOWN

TAGS = {"Project": "vision", "Team": "ml", "Environment": "dev"}
KEY = "AKIA" + "QWERTYUIOPASDFGH"
ROLE_TRUST = {"Effect": "Allow", "Action": "sts:AssumeRole"}
GITHUB = "token.actions.githubusercontent.com"
FEDERATED = {
    "Effect": "Allow",
    "Action": "sts:AssumeRoleWithWebIdentity",
    "Principal": {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{GITHUB}"},
}
LATEST = "subnet-0123456789abcdef0"


def encoded(text: str, *, packed: bool = False) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0) if packed else text.encode()).decode()


def fleet(*overrides: dict[str, object], spot: int = 4, **more: object) -> dict[str, object]:
    template = {"launchTemplateId": "lt-0123456789abcdef0", "version": "1"}
    return {
        "launchTemplateConfigs": [{"launchTemplateSpecification": template, "overrides": list(overrides)}],
        "targetCapacitySpecification": {"defaultTargetCapacityType": "spot", "totalTargetCapacity": spot},
        **more,
    }


def mixed(
    *types: str, zones: int = 1, strategy: str | None = "price-capacity-optimized", percent: int = 0
) -> dict[str, object]:
    spread = {"onDemandPercentageAboveBaseCapacity": percent, "spotAllocationStrategy": strategy}
    template = {
        "launchTemplateSpecification": {"launchTemplateId": "lt-0123456789abcdef0"},
        "overrides": [{"instanceType": each} for each in types],
    }
    policy = {"instancesDistribution": {k: v for k, v in spread.items() if v is not None}, "launchTemplate": template}
    zoned = [f"subnet-0123456789abcde{i:02d}" for i in range(zones)]
    return {"maxSize": 4, "minSize": 4, "vpcZoneIdentifiers": zoned, "mixedInstancesPolicy": policy}


SIX = [
    {"instanceType": t, "subnetId": f"subnet-0123456789abcde{z:02d}"}
    for t in ("m6i.large", "m7i.large")
    for z in range(3)
]
INSTANCE = "aws:ec2/instance:Instance"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CONFIGURATION = "aws:ec2/launchConfiguration:LaunchConfiguration"
FLEET = "aws:ec2/fleet:Fleet"
SPOT_FLEET = "aws:ec2/spotFleetRequest:SpotFleetRequest"
GROUP = "aws:autoscaling/group:Group"
SECURITY = "aws:ec2/securityGroup:SecurityGroup"
BUCKET = "aws:s3/bucket:Bucket"
ROLE = "aws:iam/role:Role"
LAUNCH = {"ami": "ami-0123456789abcdef0", "instanceType": "m6i.large"}

c = Cases()

c.of("aws-no-public-address", TEMPLATE)
c.good({}, {"networkInterfaces": [{"associatePublicIpAddress": "false"}]}, {"networkInterfaces": UNKNOWN})
c.good({"networkInterfaces": [{"associatePublicIpAddress": UNKNOWN}]})
c.bad(
    {"networkInterfaces": [{"deviceIndex": 0}, {"associatePublicIpAddress": "true"}]},
    "networkInterfaces[1].associatePublicIpAddress",
)
c.of("aws-no-public-address", INSTANCE).good(LAUNCH)
c.bad({**LAUNCH, "associatePublicIpAddress": True}, "associatePublicIpAddress")
c.of("aws-no-public-address", CONFIGURATION).bad(
    {"imageId": "ami-0123456789abcdef0", "instanceType": "m6i.large", "associatePublicIpAddress": True},
    "associatePublicIpAddress",
)
c.of("aws-no-public-address", "aws:ec2/subnet:Subnet")
c.good({"vpcId": "vpc-1", "mapPublicIpOnLaunch": False}, {"vpcId": "vpc-1"})
c.bad({"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24", "mapPublicIpOnLaunch": True}, "mapPublicIpOnLaunch")
c.of("aws-no-public-address", "aws:ec2/eip:Eip").good({"domain": "vpc", "tags": TAGS})
c.bad({"domain": "vpc", "instance": "i-0123456789abcdef0", "tags": TAGS}, "instance")
c.of("aws-no-public-address", "aws:ec2/eipAssociation:EipAssociation").bad(
    {"allocationId": "eipalloc-1", "instanceId": "i-1"}, ""
)

c.of("aws-nothing-open", SECURITY).good({}, {"ingress": UNKNOWN}, {"ingress": [{"cidrBlocks": ["10.0.0.0/8"]}]})
c.good(
    {"ingress": [{"cidrBlocks": [UNKNOWN], "securityGroups": ["sg-1"]}]}, {"egress": [{"cidrBlocks": ["0.0.0.0/0"]}]}
)
ANY = {"protocol": "tcp", "fromPort": 22, "toPort": 22}
c.bad(
    {"ingress": [{**ANY, "cidrBlocks": ["10.0.0.0/8"]}, {**ANY, "cidrBlocks": ["0.0.0.0/0"]}]}, "ingress[1].cidrBlocks"
)
c.bad({"ingress": [{**ANY, "ipv6CidrBlocks": ["::/0"]}]}, "ingress[0].ipv6CidrBlocks", engine=False)
c.bad({"ingress": [{**ANY, "cidrBlocks": ["0.0.0.0/1", "128.0.0.0/1"]}]}, *["ingress[0].cidrBlocks"] * 2, engine=False)
c.of("aws-nothing-open", "aws:ec2/securityGroupRule:SecurityGroupRule")
OLD = {"securityGroupId": "sg-1", "protocol": "tcp", "fromPort": 22, "toPort": 22}
c.good({**OLD, "type": "egress", "cidrBlocks": ["0.0.0.0/0"]}, {**OLD, "type": "ingress", "self": True})
c.bad({**OLD, "type": "ingress", "cidrBlocks": ["0.0.0.0/0"]}, "cidrBlocks")
c.of("aws-nothing-open", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
NEW = {"securityGroupId": "sg-1", "ipProtocol": "tcp", "fromPort": 443, "toPort": 443}
c.good({**NEW, "cidrIpv4": "10.0.0.0/8"}, {**NEW, "referencedSecurityGroupId": "sg-2"}, {**NEW, "cidrIpv4": UNKNOWN})
c.bad({**NEW, "cidrIpv4": "0.0.0.0/0"}, "cidrIpv4").bad({**NEW, "cidrIpv6": "::/0"}, "cidrIpv6", engine=False)

c.of("aws-nothing-open", "aws:ec2/managedPrefixList:ManagedPrefixList")
c.good({"entries": [{"cidr": "10.0.0.0/8"}]}, {"entries": UNKNOWN})
c.bad({"entries": [{"cidr": "10.0.0.0/8"}, {"cidr": "0.0.0.0/0"}]}, "entries[1].cidr", engine=False)
c.of("aws-nothing-open", "aws:ec2/managedPrefixListEntry:ManagedPrefixListEntry")
c.good({"cidr": "10.1.0.0/16"}).bad({"cidr": "::/0"}, "cidr", engine=False)

c.of("aws-no-nat", "aws:ec2/natGateway:NatGateway").bad(
    {"subnetId": LATEST, "allocationId": "eipalloc-1", "tags": TAGS}, ""
)
c.of("aws-no-nat", "aws:ec2/vpc:Vpc").good({"cidrBlock": "10.0.0.0/16"})

c.of("aws-default-group-empty", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
c.good({"vpcId": "vpc-1"}, {"vpcId": "vpc-1", "ingress": [], "egress": UNKNOWN})
c.bad({"vpcId": "vpc-1", "ingress": [{**ANY, "cidrBlocks": ["10.0.0.0/8"]}]}, "ingress")

V2 = {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1}}
c.of("aws-metadata-v2", TEMPLATE).good(
    V2, {"metadataOptions": {"httpEndpoint": "disabled"}}, {"metadataOptions": UNKNOWN}
)
c.good({"metadataOptions": {"httpTokens": UNKNOWN}})
c.bad({}, "metadataOptions.httpTokens").bad(
    {"metadataOptions": {"httpTokens": "optional"}}, "metadataOptions.httpTokens", engine=False
)
c.of("aws-metadata-v2", INSTANCE).good({**LAUNCH, **V2}, {"launchTemplate": {"id": "lt-1"}})
c.bad(LAUNCH, "metadataOptions.httpTokens")
c.of("aws-metadata-hop-limit", TEMPLATE).good({}, V2, {"metadataOptions": {"httpPutResponseHopLimit": UNKNOWN}})
c.bad(
    {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2}},
    "metadataOptions.httpPutResponseHopLimit",
)

c.of("aws-volumes-encrypted", TEMPLATE)
c.good(
    {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"}}]},
    {"blockDeviceMappings": UNKNOWN},
    {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"encrypted": UNKNOWN}}]},
    {"blockDeviceMappings": [{"deviceName": "/dev/xvdb", "virtualName": "ephemeral0"}]},
)
c.bad({}, "blockDeviceMappings", engine=False)
c.bad(
    {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 8}}]},
    "blockDeviceMappings[0].ebs.encrypted",
)
c.of("aws-volumes-encrypted", INSTANCE)
c.good({**LAUNCH, "rootBlockDevice": {"encrypted": True}, "ebsBlockDevices": [{"deviceName": "b", "encrypted": True}]})
c.bad({**LAUNCH, "ebsBlockDevices": [{"deviceName": "/dev/sdb"}]}, "rootBlockDevice", "ebsBlockDevices[0].encrypted")
c.of("aws-volumes-encrypted", "aws:ebs/volume:Volume").good({"encrypted": True}, {"encrypted": UNKNOWN})
c.bad({"availabilityZone": "us-east-1a", "size": 8}, "encrypted")

c.of("aws-no-secrets-in-user-data", TEMPLATE)
c.good(
    {}, {"userData": UNKNOWN}, {"userData": encoded("#!/bin/sh\nexport TOKEN=$(aws secretsmanager get-secret-value)")}
)
c.good({"userData": encoded('{"token_limit": 20480000, "password": "${PASSWORD}", "secret": "<yours-of-2026>"}')})
c.bad({"userData": encoded(f"export AWS_ACCESS_KEY_ID={KEY}")}, "userData")
c.bad({"userData": encoded("-----BEGIN RSA PRIVATE KEY-----", packed=True)}, "userData", engine=False)
c.bad({"userData": encoded("wandb login --token=abcdef0123456789")}, "userData", engine=False)
c.bad({"userData": encoded(f"git clone https://ci:glpat-{'aB3-' * 6}@gitlab.com/a")}, "userData", engine=False)
c.bad({"userData": encoded(f"serve --with sk-ant-{'aB3-' * 6}")}, "userData", engine=False)
c.bad({"userData": encoded(f"aws_secret_access_key = {'aB3/' * 10}")}, "userData", engine=False)
IN_LINES = base64.encodebytes(f"#!/bin/sh\n# {'a' * 80}\nexport KEY={KEY}".encode()).decode()
c.bad({"userData": IN_LINES}, "userData", engine=False)
c.of("aws-no-secrets-in-user-data", INSTANCE)
c.bad({**LAUNCH, "userData": f"#!/bin/sh\nkey={KEY}"}, "userData")

c.of("aws-fleet-ends-instances", FLEET).good(fleet(terminateInstances=True), fleet(terminateInstances=UNKNOWN))
c.bad(fleet(*SIX, tags=TAGS), "terminateInstances")
c.of("aws-fleet-ends-instances", SPOT_FLEET).good({"terminateInstancesOnDelete": "true"}).bad(
    {}, "terminateInstancesOnDelete", engine=False
)

FOUR = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
c.of("aws-bucket-not-public", "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock")
c.good({"bucket": "b", **dict.fromkeys(FOUR, True)}, {"bucket": "b", **dict.fromkeys(FOUR, UNKNOWN)})
c.bad({"bucket": "b", **dict.fromkeys(FOUR[:3], True)}, FOUR[3])
c.bad({"bucket": "b", **dict.fromkeys(FOUR, False)}, *FOUR, engine=False)
c.of("aws-bucket-not-public", "aws:s3/bucketAcl:BucketAcl").good({"bucket": "b", "acl": "private"}).bad(
    {"bucket": "b", "acl": "public-read"}, "acl"
)

PLAIN = {"Bool": {"aws:SecureTransport": "false"}}
TLS = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", "Condition": PLAIN}
c.of("aws-bucket-tls-only", "aws:s3/bucketPolicy:BucketPolicy")
c.good(
    {"policy": document(TLS)},
    {"policy": UNKNOWN},
    {"policy": document({**TLS, "Principal": {"AWS": ["*"]}, "Condition": {"Bool": {"aws:SecureTransport": [False]}}})},
)
ONE = "arn:aws:iam::123456789012:role/one"
c.bad({"bucket": "b", "policy": document(allow("s3:GetObject", Principal={"AWS": ONE}))}, "policy")
c.bad({"policy": document({**TLS, "Action": "s3:PutObject"})}, "policy", engine=False)

c.of("aws-bucket-encrypted", "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration")
BY = "applyServerSideEncryptionByDefault"
c.good(
    {"bucket": "b", "rules": [{BY: {"sseAlgorithm": "aws:kms"}}]},
    {"rules": UNKNOWN},
    {"rules": [{BY: {"sseAlgorithm": UNKNOWN}}]},
)
c.bad({"bucket": "b", "rules": [{"bucketKeyEnabled": True}]}, f"rules[0].{BY}.sseAlgorithm")
c.of("aws-bucket-encrypted", BUCKET).good({})

c.of("aws-bucket-versioned", "aws:s3/bucketVersioning:BucketVersioning")
c.good({"versioningConfiguration": {"status": "Enabled"}}, {"versioningConfiguration": UNKNOWN})
c.bad({"bucket": "b", "versioningConfiguration": {"status": "Suspended"}}, "versioningConfiguration.status")

c.of("aws-bucket-uploads-aborted", "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration")
ABORT = {"id": "a", "status": "Enabled", "abortIncompleteMultipartUpload": {"daysAfterInitiation": 2}}
c.good({"rules": [ABORT]}, {"rules": UNKNOWN}, {"rules": [{**ABORT, "abortIncompleteMultipartUpload": UNKNOWN}]})
c.bad(
    {"bucket": "b", "rules": [{"id": "o", "status": "Enabled", "filter": {"prefix": "a/"}, "expiration": {"days": 3}}]},
    "rules",
)
c.bad({"rules": [{**ABORT, "status": "Disabled"}]}, "rules", engine=False)

c.of("aws-queue-encrypted", "aws:sqs/queue:Queue").good(
    {}, {"sqsManagedSseEnabled": True}, {"sqsManagedSseEnabled": UNKNOWN}
)
c.good({"sqsManagedSseEnabled": False, "kmsMasterKeyId": "alias/a"})
c.bad({"sqsManagedSseEnabled": False, "tags": TAGS}, "sqsManagedSseEnabled")

c.of("aws-policy-not-for-everybody", "aws:sqs/queuePolicy:QueuePolicy")
EVENTS = {"Service": "events.amazonaws.com"}
c.good({"policy": document(allow("sqs:SendMessage", Principal=EVENTS))}, {"policy": UNKNOWN}, {"policy": "no document"})
c.good(
    {"policy": document(allow("sqs:SendMessage", Principal="*", Condition={"ArnEquals": {"aws:SourceArn": ["arn:a"]}}))}
)
SEND = allow("sqs:SendMessage", Principal={"AWS": "*"})
c.bad({"queueUrl": "https://sqs.us-east-1.amazonaws.com/1/q", "policy": document(TLS, SEND)}, "policy.Statement[1]")
c.bad(
    {"policy": document({**SEND, "Condition": {"StringNotEquals": {"aws:SourceArn": "a"}}})},
    "policy.Statement[0]",
    engine=False,
)
c.bad(
    {"policy": document({**SEND, "Condition": {"ArnLike": {"aws:SourceArn": "*"}}})},
    "policy.Statement[0]",
    engine=False,
)
BY_ACCOUNT = {"ArnLike": {"aws:SourceArn": "arn:aws:events:us-east-1:123456789012:rule/*"}}
BY_BUCKET = {"ArnLike": {"aws:SourceArn": "arn:aws:s3:::acme-data*"}}
BY_PATH = {"ForAnyValue:StringLike": {"aws:PrincipalOrgPaths": "o-a1b2/r-ab12/*"}}
BY_ITSELF = {"StringEquals": {"aws:PrincipalAccount": "${aws:ResourceAccount}"}}
c.good(*({"policy": document({**SEND, "Condition": each})} for each in (BY_ACCOUNT, BY_BUCKET, BY_PATH, BY_ITSELF)))
for condition in (
    {"StringLike": {"aws:PrincipalArn": "arn:aws:iam::*:*"}},
    {"ArnLike": {"aws:SourceArn": "arn:*:*:*:*:*"}},
    {"ArnLike": {"aws:SourceArn": ["arn:aws:s3:::acme-data", "arn:aws:s3:::*"]}},
    {"StringLike": {"aws:PrincipalOrgID": "o-*"}},
    {"StringEquals": {"aws:PrincipalArn": "${aws:PrincipalArn}"}},
    {"Null": {"aws:SourceArn": "true"}},
    {"ForAllValues:StringEquals": {"aws:PrincipalAccount": "123456789012"}},
):
    c.bad({"policy": document({**SEND, "Condition": condition})}, "policy.Statement[0]", engine=False)
c.of("aws-policy-not-for-everybody", BUCKET).good({"policy": document(TLS)}).bad(
    {"policy": document(allow("s3:GetObject", Principal="*"))}, "policy.Statement[0]", engine=False
)
c.of("aws-policy-not-for-everybody", "aws:kms/key:Key")
c.good({"policy": document(allow("kms:*", Principal={"AWS": "arn:aws:iam::123456789012:root"}))})
c.bad(
    {"enableKeyRotation": True, "tags": TAGS, "policy": document(allow("kms:*", Principal="*"))}, "policy.Statement[0]"
)

c.of("aws-no-star-permissions", "aws:iam/rolePolicy:RolePolicy")
c.good(
    {"policy": document(allow("s3:*"))}, {"policy": document(allow("*", "arn:aws:s3:::b/*"))}, {"policy": UNKNOWN}, {}
)
c.good({"policy": document({"Effect": "Deny", "Action": "*", "Resource": "*"})})
c.bad({"role": "r", "policy": document(allow("s3:GetObject", "b"), allow())}, "policy.Statement[1]")
c.bad({"policy": document(allow(["IAM:*"]))}, "policy.Statement[0]", engine=False)
c.bad(
    {"policy": document({"Effect": "Allow", "NotAction": "s3:*", "Resource": "*"})}, "policy.Statement[0]", engine=False
)
for action, resource in (
    ("**", "*"),
    ("*", "**"),
    ("iam:?*", "*"),
    ("iam:*", "arn:aws:iam::*:*"),
    ("*", "arn:aws:iam::123456789012:*"),
):
    c.bad({"policy": document(allow(action, resource))}, "policy.Statement[0]", engine=False)
c.good({"policy": document(allow("iam:*", "arn:aws:iam::123456789012:role/acme/*"))})
c.of("aws-no-star-permissions", "aws:iam/rolePolicyAttachment:RolePolicyAttachment")
c.good({"role": "r", "policyArn": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"})
c.bad({"role": "r", "policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}, "policyArn")
EC2 = document({**ROLE_TRUST, "Principal": {"Service": "ec2.amazonaws.com"}})
c.of("aws-no-star-permissions", ROLE).good(
    {"assumeRolePolicy": EC2, "inlinePolicies": [{"policy": document(allow("s3:*"))}]}
)
c.bad(
    {"assumeRolePolicy": EC2, "inlinePolicies": [{"name": "all", "policy": document(allow())}]},
    "inlinePolicies[0].policy.Statement[0]",
    engine=False,
)

c.of("aws-pass-role-limited", "aws:iam/policy:Policy")
c.good({"policy": document(allow("iam:PassRole", ONE))}, {"policy": document(allow("ec2:*"))}, {"policy": UNKNOWN})
c.bad({"policy": document(allow(["ec2:RunInstances", "iam:PassRole"]))}, "policy.Statement[0]")
c.bad({"policy": document(allow("iam:Pass*", "arn:aws:iam::123456789012:role/*"))}, "policy.Statement[0]", engine=False)

for action in ("iam:*Role", "iam:P*Role", "iam:?assRole", "*:PassRole"):
    c.bad({"policy": document(allow(action))}, "policy.Statement[0]", engine=False)
ROLES = "arn:aws:iam::*:role/*"
c.bad(
    {"policy": document({"Effect": "Allow", "NotAction": "s3:*", "Resource": ROLES})},
    "policy.Statement[0]",
    engine=False,
)
c.good({"policy": document({"Effect": "Allow", "NotAction": "iam:*", "Resource": ROLES})})
c.good({"policy": document(allow("iam:*Role", "arn:aws:iam::*:role/acme-*"))})

c.of("aws-trust-named", ROLE)
SUB = {"StringLike": {f"{GITHUB}:sub": "repo:acme/train:*"}}
c.good(
    {"assumeRolePolicy": EC2},
    {"assumeRolePolicy": UNKNOWN},
    {"assumeRolePolicy": document({**FEDERATED, "Condition": SUB})},
)
c.good(
    {"assumeRolePolicy": document({**FEDERATED, "Condition": {"StringEquals": {f"{GITHUB}:repository_id": "4711"}}})}
)
c.good(
    {
        "assumeRolePolicy": document(
            {**ROLE_TRUST, "Principal": "*", "Condition": {"StringEquals": {"aws:PrincipalOrgID": "o-1"}}}
        )
    }
)
TRUST = "assumeRolePolicy.Statement[0]"
c.bad({"assumeRolePolicy": document({**ROLE_TRUST, "Principal": {"AWS": "*"}})}, TRUST)
OTHER = "arn:aws:iam::123456789012:oidc-provider/gitlab.com"
ELSEWHERE = {**ROLE_TRUST, "Action": "sts:AssumeRoleWithWebIdentity", "Principal": {"Federated": OTHER}}
c.good({"assumeRolePolicy": document({**ELSEWHERE, "Condition": {"StringEquals": {"gitlab.com:sub": "acme"}}})})
c.bad({"assumeRolePolicy": document(ELSEWHERE)}, TRUST, engine=False)
for condition in (
    {"StringNotEquals": {"aws:PrincipalOrgID": "o-1"}},
    {"StringEqualsIfExists": {"aws:PrincipalOrgID": "o-1"}},
    {"StringLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/ci"}},
):
    trusting = {**ROLE_TRUST, "Principal": {"AWS": "*"}, "Condition": condition}
    c.bad({"assumeRolePolicy": document(trusting)}, TRUST, engine=False)
for condition in (
    {},
    {"StringEquals": {f"{GITHUB}:aud": "sts.amazonaws.com"}},
    {"StringLike": {f"{GITHUB}:sub": "repo:acme/*"}},
    {"StringLike": {f"{GITHUB}:sub": ["repo:acme/train:*", "repo:*"]}},
    {"ForAllValues:StringLike": {f"{GITHUB}:sub": "repo:acme/train:*"}},
    {"StringEqualsIfExists": {f"{GITHUB}:repository_id": "4711"}},
    {"StringNotEquals": {f"{GITHUB}:repository": "acme/train"}},
):
    c.bad({"assumeRolePolicy": document({**FEDERATED, "Condition": condition})}, TRUST, engine=False)

c.of("aws-no-access-keys", "aws:iam/accessKey:AccessKey").bad({"user": "u"}, "")
c.of("aws-no-access-keys", "aws:iam/user:User").good({})

c.of("aws-key-rotates", "aws:kms/key:Key").good({"enableKeyRotation": True}, {"enableKeyRotation": UNKNOWN})
c.good({"customerMasterKeySpec": "RSA_2048", "keyUsage": "SIGN_VERIFY"}, {"customKeyStoreId": "cks-1"})
c.bad({"tags": TAGS}, "enableKeyRotation")

c.of("aws-logs-kept", "aws:cloudwatch/logGroup:LogGroup").good({"retentionInDays": 30}, {"retentionInDays": UNKNOWN})
c.bad({"tags": TAGS}, "retentionInDays").bad({"retentionInDays": 0}, "retentionInDays", engine=False)

c.of("aws-tags", BUCKET).good({"tags": TAGS}, {"tags": UNKNOWN}, {"tags": {"Team": "a"}, "tagsAll": TAGS})
c.good({"tags": {**TAGS, "Team": UNKNOWN}})
c.bad({"tags": {"Team": "ml", "Project": " "}}, "tags")
c.of("aws-tags", GROUP)
c.good({"tags": [{"key": k, "value": v, "propagateAtLaunch": True} for k, v in TAGS.items()]})
c.bad(
    {
        "minSize": 0,
        "maxSize": 1,
        "availabilityZones": ["us-east-1a"],
        "tags": [{"key": "Team", "value": "a", "propagateAtLaunch": True}],
    },
    "tags",
    engine=False,
)
c.of("aws-tags", TEMPLATE)
SPECIFIED = [{"resourceType": kind, "tags": TAGS} for kind in ("instance", "volume")]
c.good({"tags": TAGS, "tagSpecifications": SPECIFIED}, {"tags": TAGS, "tagSpecifications": UNKNOWN})
c.bad({"tags": TAGS, "tagSpecifications": SPECIFIED[:1]}, "tagSpecifications[volume].tags")
c.bad({"tagSpecifications": SPECIFIED}, "tags", engine=False)

c.of("aws-spot-pools", FLEET).good(fleet(*SIX), fleet(*SIX[:2], spot=0), fleet({"instanceRequirements": {}}))
c.good(fleet(*[{"instanceType": "m6i.large", "subnetId": UNKNOWN}] * 6), {**fleet(), "launchTemplateConfigs": UNKNOWN})
c.good(
    fleet(
        {"instanceType": "m6i.large"},
        targetCapacitySpecification={"defaultTargetCapacityType": "on-demand", "totalTargetCapacity": 4},
    )
)
c.bad(fleet(*SIX[:5], terminateInstances=True, tags=TAGS), "launchTemplateConfigs")
c.bad(fleet(*SIX[:3], *SIX[:3]), "launchTemplateConfigs", engine=False)
c.of("aws-spot-pools", GROUP).good(
    mixed("m6i.large", "m7i.large", zones=3), {"minSize": 1, "maxSize": 1}, mixed("m6i.large", percent=100)
)
c.bad(mixed("m6i.large", zones=2), "mixedInstancesPolicy.launchTemplate.overrides", engine=False)

c.of("aws-spot-allocation", FLEET).good(
    fleet(spotOptions={"allocationStrategy": "priceCapacityOptimized"}), fleet(spot=0), fleet(spotOptions=UNKNOWN)
)
c.bad(fleet(*SIX, terminateInstances=True, tags=TAGS), "spotOptions.allocationStrategy")
c.bad(fleet(spotOptions={"allocationStrategy": "lowestPrice"}), "spotOptions.allocationStrategy", engine=False)
c.of("aws-spot-allocation", GROUP).good(mixed("m6i.large"))
c.bad(
    mixed("m6i.large", strategy=None), "mixedInstancesPolicy.instancesDistribution.spotAllocationStrategy", engine=False
)
c.of("aws-spot-allocation", SPOT_FLEET).good({"allocationStrategy": "capacityOptimized"}).bad(
    {}, "allocationStrategy", engine=False
)

c.of("aws-max-price", FLEET).good(
    fleet(*SIX),
    fleet({"instanceType": "m6i.large", "maxPrice": "0.09"}),
    fleet({"instanceType": "x.none", "maxPrice": "0.01"}),
)
c.good(
    fleet({"instanceType": UNKNOWN, "maxPrice": "0.0001"}), fleet({"instanceType": "m6i.large", "maxPrice": UNKNOWN})
)
CHEAP = [{**each, "maxPrice": "0.0001", "weightedCapacity": 2} for each in SIX[:1]]
c.bad(fleet(*CHEAP, *SIX, terminateInstances=True, tags=TAGS), "launchTemplateConfigs[0].overrides[0].maxPrice")

c.of("aws-production-protected", BUCKET)
PRODUCTION = {"tags": {**TAGS, "Environment": "aws-prod"}}
c.good(PRODUCTION, {"tags": TAGS}).good(PRODUCTION, protected=True).good({"tags": TAGS}, {}, protected=False)
c.bad(PRODUCTION, "", protected=False).bad({}, "", environment="prod", protected=False, engine=False)

CASES = c.listed
