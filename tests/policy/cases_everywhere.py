"""Cases of the rule about any resource of any cloud."""

import json

from aws_values import KEY, TAGS
from cases import Cases
from everspot_core.cluster.declared import UNKNOWN

c = Cases()
TOKEN = f"ghp_{'a1B2' * 9}"
c.select("no-plain-credentials", "aws:ec2/vpc:Vpc")
c.good(
    {"cidrBlock": "10.0.0.0/16", "tags": TAGS},
    {"tags": {**TAGS, "Owner": "ml-platform@example.com", "Image": "ami-04681a1dbd79675a5"}},
    {"tags": {**TAGS, "Revision": "0a1b2c3d4e" * 4}},
    {"tags": {**TAGS, "Key": "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"}},
    {"tags": UNKNOWN},
)  # fmt: skip
c.bad({"cidrBlock": "10.0.0.0/16", "tags": {**TAGS, "Owner": KEY}}, "tags.Owner")
c.bad({"tags": {**TAGS, "DbPassword": "hunter2", "Url": "postgres://me:pw@db.example.com/x"}},
      "tags.DbPassword", "tags.Url", engine=False)  # fmt: skip
c.bad({"tags": {**TAGS, TOKEN: "x"}}, "tags[a key]", engine=False)
c.select("no-plain-credentials", "aws:ecs/taskDefinition:TaskDefinition")
c.good({"containerDefinitions": json.dumps([{"environment": [{"name": "DB_PASSWORD", "value": "${PASSWORD}"}]}])})
c.bad({"containers": [{"environment": [{"name": "DB_PASSWORD", "value": "hunter2"}]}]},
      "containers[0].environment[0].value", engine=False)  # fmt: skip
c.bad({"family": "f", "containerDefinitions": json.dumps([{"environment": [{"name": "K", "value": TOKEN}]}])},
      "containerDefinitions", engine=False)  # fmt: skip
c.select("no-plain-credentials", "aws:lambda/function:Function")
c.good({"sourceCodeHash": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=", "environment": {"variables": {"TOKEN": ""}}})
c.good({"metadataOptions": {"httpTokens": "required"}, "passwordLength": 20, "secret": "wandb-key"})
c.bad({"environment": {"variables": {"KEY": "u8Jd92KslPq0aXz7Vb4NmT6rYw1EoCfGhQiZ3xB5"}}},
      "environment.variables.KEY", engine=False)  # fmt: skip
c.select("no-plain-credentials", "aws:lightsail/instance:Instance")
c.bad({"userData": f"export KEY={KEY}"}, "userData", engine=False)
c.select("no-plain-credentials", "aws:ec2/launchTemplate:LaunchTemplate")
c.good({"userData": f"export KEY={KEY}"})  # which another rule tells
c.select("no-plain-credentials", "gcp:storage/bucketObject:BucketObject")
c.good({"bucket": "b", "content": json.dumps({"cluster": "everspot-dev", "control_url": "gs://b"})})
c.bad({"bucket": "b", "name": "n", "content": f"token = {TOKEN}"}, "content")
CASES = c.listed
