"""Types, tags and inputs of AWS that the tables of cases share."""

import base64
import gzip

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
PLAIN = {"Bool": {"aws:SecureTransport": "false"}}
TLS = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", "Condition": PLAIN}
ONE = "arn:aws:iam::123456789012:role/one"
