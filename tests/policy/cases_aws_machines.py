"""Cases for AWS: addresses, security groups, metadata, volumes and user data of instances; how fleets end them."""

import base64
import textwrap

from aws_values import (
    CONFIGURATION,
    FLEET,
    INSTANCE,
    KEY,
    LATEST,
    LAUNCH,
    SECURITY,
    SIX,
    SPOT_FLEET,
    TAGS,
    TEMPLATE,
    encoded,
    fleet,
)
from cases import Cases
from everspot_core.cluster.declared import UNKNOWN

c = Cases()

c.select("aws-no-public-address", TEMPLATE)
c.good({}, {"networkInterfaces": [{"associatePublicIpAddress": "false"}]}, {"networkInterfaces": UNKNOWN})
c.good({"networkInterfaces": [{"associatePublicIpAddress": UNKNOWN}]})
c.bad(
    {"networkInterfaces": [{"deviceIndex": 0}, {"associatePublicIpAddress": "true"}]},
    "networkInterfaces[1].associatePublicIpAddress",
)
c.select("aws-no-public-address", INSTANCE).good(LAUNCH)
c.bad({**LAUNCH, "associatePublicIpAddress": True}, "associatePublicIpAddress")
c.select("aws-no-public-address", CONFIGURATION).bad(
    {"imageId": "ami-0123456789abcdef0", "instanceType": "m6i.large", "associatePublicIpAddress": True},
    "associatePublicIpAddress",
)
c.select("aws-no-public-address", "aws:ec2/subnet:Subnet")
c.good({"vpcId": "vpc-1", "mapPublicIpOnLaunch": False}, {"vpcId": "vpc-1"})
c.bad({"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24", "mapPublicIpOnLaunch": True}, "mapPublicIpOnLaunch")
c.good({"vpcId": "vpc-1", "assignIpv6AddressOnCreation": True})  # EKS needs it, behind an egress-only gateway
c.select("aws-subnet-ipv6", "aws:ec2/subnet:Subnet")
c.good({"vpcId": "vpc-1", "assignIpv6AddressOnCreation": False}, {"assignIpv6AddressOnCreation": UNKNOWN})
IPV6 = {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24", "ipv6CidrBlock": "2001:db8::/64", "tags": TAGS}
c.bad({**IPV6, "assignIpv6AddressOnCreation": True}, "assignIpv6AddressOnCreation")
c.select("aws-no-public-address", "aws:ec2/networkInterface:NetworkInterface")
c.good({"ipv6AddressCount": 0}, {"ipv6AddressCount": UNKNOWN}, {"ipv6Addresses": []})
c.bad({"ipv6AddressCount": 1}, "ipv6AddressCount", engine=False)
c.select("aws-no-public-address", INSTANCE).bad({**LAUNCH, "ipv6Addresses": [UNKNOWN]}, "ipv6Addresses", engine=False)
c.select("aws-no-public-address", TEMPLATE).bad(
    {"networkInterfaces": [{"ipv6PrefixCount": 1}]}, "networkInterfaces[0].ipv6PrefixCount", engine=False
)
c.select("aws-no-public-address", "aws:ec2/eip:Eip").good({"domain": "vpc", "tags": TAGS})
c.bad({"domain": "vpc", "instance": "i-0123456789abcdef0", "tags": TAGS}, "instance")
c.select("aws-no-public-address", "aws:ec2/eipAssociation:EipAssociation").bad(
    {"allocationId": "eipalloc-1", "instanceId": "i-1"}, ""
)

c.select("aws-nothing-open", SECURITY).good({}, {"ingress": UNKNOWN}, {"ingress": [{"cidrBlocks": ["10.0.0.0/8"]}]})
c.good(
    {"ingress": [{"cidrBlocks": [UNKNOWN], "securityGroups": ["sg-1"]}]}, {"egress": [{"cidrBlocks": ["0.0.0.0/0"]}]}
)
ANY = {"protocol": "tcp", "fromPort": 22, "toPort": 22}
c.bad(
    {"ingress": [{**ANY, "cidrBlocks": ["10.0.0.0/8"]}, {**ANY, "cidrBlocks": ["0.0.0.0/0"]}]}, "ingress[1].cidrBlocks"
)
c.bad({"ingress": [{**ANY, "ipv6CidrBlocks": ["::/0"]}]}, "ingress[0].ipv6CidrBlocks", engine=False)
c.bad({"ingress": [{**ANY, "cidrBlocks": ["0.0.0.0/1", "128.0.0.0/1"]}]}, *["ingress[0].cidrBlocks"] * 2, engine=False)
EIGHTS = [f"{number}.0.0.0/8" for number in range(256)]
c.bad({"ingress": [{**ANY, "cidrBlocks": EIGHTS}]}, "ingress[0].cidrBlocks", engine=False)
c.bad({"ingress": [{**ANY, "cidrBlocks": EIGHTS[1:]}]}, "ingress[0].cidrBlocks", engine=False)
c.good({"ingress": [{**ANY, "cidrBlocks": ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]}]})
c.select("aws-nothing-open", "aws:ec2/securityGroupRule:SecurityGroupRule")
OLD = {"securityGroupId": "sg-1", "protocol": "tcp", "fromPort": 22, "toPort": 22}
c.good({**OLD, "type": "egress", "cidrBlocks": ["0.0.0.0/0"]}, {**OLD, "type": "ingress", "self": True})
c.bad({**OLD, "type": "ingress", "cidrBlocks": ["0.0.0.0/0"]}, "cidrBlocks")
c.select("aws-nothing-open", "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule")
NEW = {"securityGroupId": "sg-1", "ipProtocol": "tcp", "fromPort": 443, "toPort": 443}
c.good({**NEW, "cidrIpv4": "10.0.0.0/8"}, {**NEW, "referencedSecurityGroupId": "sg-2"}, {**NEW, "cidrIpv4": UNKNOWN})
c.bad({**NEW, "cidrIpv4": "0.0.0.0/0"}, "cidrIpv4").bad({**NEW, "cidrIpv6": "::/0"}, "cidrIpv6", engine=False)

c.select("aws-nothing-open", "aws:ec2/managedPrefixList:ManagedPrefixList")
c.good({"entries": [{"cidr": "10.0.0.0/8"}]}, {"entries": UNKNOWN})
c.bad({"entries": [{"cidr": "10.0.0.0/8"}, {"cidr": "0.0.0.0/0"}]}, "entries[1].cidr", engine=False)
c.select("aws-nothing-open", "aws:ec2/managedPrefixListEntry:ManagedPrefixListEntry")
c.good({"cidr": "10.1.0.0/16"}).bad({"cidr": "::/0"}, "cidr", engine=False)

c.select("aws-nothing-open", "aws:eks/cluster:Cluster")
API = "vpcConfig.publicAccessCidrs"
c.good(
    {"vpcConfig": {"endpointPublicAccess": False}},
    {"vpcConfig": {"publicAccessCidrs": ["203.0.113.0/24"]}},
    {"vpcConfig": {"publicAccessCidrs": UNKNOWN}},
)
c.bad({"vpcConfig": {"publicAccessCidrs": ["0.0.0.0/0"]}}, API, engine=False)
c.bad({"vpcConfig": {"subnetIds": [LATEST]}}, API, engine=False)  # what EKS does where nothing is said
c.select("aws-nothing-open", "aws:lambda/functionUrl:FunctionUrl").good({"authorizationType": "AWS_IAM"}).bad(
    {"authorizationType": "NONE"}, "authorizationType", engine=False
)
c.select("aws-nothing-open", "aws:lightsail/instancePublicPorts:InstancePublicPorts")
c.good({"portInfos": [{"cidrs": ["203.0.113.0/24"]}]})
c.bad({"portInfos": [{"cidrs": ["0.0.0.0/0"]}]}, "portInfos[0].cidrs", engine=False)

c.select("aws-no-nat", "aws:ec2/natGateway:NatGateway").bad(
    {"subnetId": LATEST, "allocationId": "eipalloc-1", "tags": TAGS}, ""
)
c.select("aws-no-nat", "aws:ec2/vpc:Vpc").good({"cidrBlock": "10.0.0.0/16"})

c.select("aws-default-group-empty", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
c.good({"vpcId": "vpc-1"}, {"vpcId": "vpc-1", "ingress": [], "egress": UNKNOWN})
c.bad({"vpcId": "vpc-1", "ingress": [{**ANY, "cidrBlocks": ["10.0.0.0/8"]}]}, "ingress")

V2 = {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1}}
c.select("aws-metadata-v2", TEMPLATE).good(
    V2, {"metadataOptions": {"httpEndpoint": "disabled"}}, {"metadataOptions": UNKNOWN}
)
c.good({"metadataOptions": {"httpTokens": UNKNOWN}})
c.bad({}, "metadataOptions.httpTokens").bad(
    {"metadataOptions": {"httpTokens": "optional"}}, "metadataOptions.httpTokens", engine=False
)
c.select("aws-metadata-v2", INSTANCE).good({**LAUNCH, **V2}, {"launchTemplate": {"id": "lt-1"}})
c.bad(LAUNCH, "metadataOptions.httpTokens")
c.select("aws-metadata-hop-limit", TEMPLATE).good({}, V2, {"metadataOptions": {"httpPutResponseHopLimit": UNKNOWN}})
c.bad(
    {"metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2}},
    "metadataOptions.httpPutResponseHopLimit",
)

c.select("aws-volumes-encrypted", TEMPLATE)
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
c.select("aws-volumes-encrypted", INSTANCE)
c.good({**LAUNCH, "rootBlockDevice": {"encrypted": True}, "ebsBlockDevices": [{"deviceName": "b", "encrypted": True}]})
c.bad({**LAUNCH, "ebsBlockDevices": [{"deviceName": "/dev/sdb"}]}, "rootBlockDevice", "ebsBlockDevices[0].encrypted")
c.select("aws-volumes-encrypted", "aws:ebs/volume:Volume").good({"encrypted": True}, {"encrypted": UNKNOWN})
c.bad({"availabilityZone": "us-east-1a", "size": 8}, "encrypted")

c.select("aws-no-secrets-in-user-data", TEMPLATE)
c.good(
    {}, {"userData": UNKNOWN}, {"userData": encoded("#!/bin/sh\nexport TOKEN=$(aws secretsmanager get-secret-value)")}
)
c.good({"userData": encoded('{"token_limit": 20480000, "password": "${PASSWORD}", "secret": "<yours-of-2026>"}')})
c.bad({"userData": encoded(f"export AWS_ACCESS_KEY_ID={KEY}")}, "userData")
c.bad({"userData": encoded("-----BEGIN RSA PRIVATE KEY-----", packed=True)}, "userData", engine=False)
c.bad({"userData": encoded("wandb login --token=abcdef0123456789")}, "userData", engine=False)
c.bad({"userData": encoded(f"git clone https://ci:glpat-{'aB3-' * 6}@gitlab.com/a")}, "userData", engine=False)
HEX = "0a1b2c3d4e" * 4
for command in (
    "PGPASSWORD=hunter psql -h db", "export MYSQL_PWD='hunter two'", '  - MYSQL_PWD: "hunter"', "-e PGPASSWORD=hunter",
    '{"PGPASSWORD": "hunter"}',
    f"wandb login {HEX}", f"wandb login --relogin --host=https://w.b '{HEX}'", f"python -m wandb login local-{HEX}",
    "huggingface-cli login --token abcdefgh --add-to-git-credential",
    "hf auth login --add-to-git-credential --token=abcdefgh",
):  # fmt: skip
    c.bad({"userData": encoded(f"#!/bin/sh\n{command}\n")}, "userData", engine=False)
for command in (
    'export PGPASSWORD="$(aws secretsmanager get-secret-value)"', "PGPASSWORD=$PASS psql", "MYSQL_PWD=`pass db`",
    "export MYSQL_PWD=${PASS}", "unset PGPASSWORD", "PGPASSWORD= psql", "PGPASSWORD=<yours>",
    "# set PGPASSWORD: see the handbook",
    "PGPASSWORD='{{ secret }}'", "PGPASSWORDFILE=/etc/pg", 'wandb login "$WANDB_API_KEY"', "wandb login --relogin",
    f"git checkout {HEX}", f"wandb sync run-{HEX}", "huggingface-cli login --token $HF_TOKEN",
    'hf auth login --token "$(cat /run/token)"', "huggingface-cli download --token-file /run/t org/model",
):  # fmt: skip
    c.good({"userData": encoded(f"#!/bin/sh\n{command}\n")})
c.bad({"userData": encoded(f"serve --with sk-ant-{'aB3-' * 6}")}, "userData", engine=False)
c.bad({"userData": encoded(f"aws_secret_access_key = {'aB3/' * 10}")}, "userData", engine=False)
IN_LINES = base64.encodebytes(f"#!/bin/sh\n# {'a' * 80}\nexport KEY={KEY}".encode()).decode()
c.bad({"userData": IN_LINES}, "userData", engine=False)
FILES = "#cloud-config\nwrite_files:\n- {path: /etc/job, encoding: %s, content: %s}\n"
for packed in (False, True):
    config = FILES % ("gz+b64" if packed else "b64", encoded(f"[default]\naws_access_key_id = {KEY}\n", packed=packed))
    c.bad({"userData": encoded(config)}, "userData", engine=False)
    c.bad({"userData": encoded(FILES % ("b64", encoded(config)), packed=packed)}, "userData", engine=False)
BLOCK = "\n    ".join(textwrap.wrap(encoded("# no secret here, but many words\n" * 6 + f"key={KEY}\n"), 76))
c.bad(
    {"userData": encoded(f"#cloud-config\nwrite_files:\n- content: !!binary |\n    {BLOCK}\n")},
    "userData",
    engine=False,
)
c.good({"userData": encoded(FILES % ("b64", encoded("[default]\nregion = us-east-1\n" * 9)))})
c.select("aws-no-secrets-in-user-data", INSTANCE)
c.bad({**LAUNCH, "userData": f"#!/bin/sh\nkey={KEY}"}, "userData")

c.select("aws-fleet-ends-instances", FLEET).good(fleet(terminateInstances=True), fleet(terminateInstances=UNKNOWN))
c.bad(fleet(*SIX, tags=TAGS), "terminateInstances")
c.select("aws-fleet-ends-instances", SPOT_FLEET).good({"terminateInstancesOnDelete": "true"}).bad(
    {}, "terminateInstancesOnDelete", engine=False
)

CASES = c.listed
