"""A role on an instance, held to its policies, for tests of several files."""

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from everspot_local.options import Options

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)
ARN = "arn:aws:ec2:us-east-1:123456789012"


def enforcing(state: Path) -> Options:
    """Settings of a cloud that holds roles to their policies."""
    return Options(state_dir=state, scale=120, boot_command=None)


class Worker:
    """A role on an instance, and clients with its credentials."""

    def __init__(self, kit: Any) -> None:
        self.kit = kit
        iam = kit.client("iam")
        iam.create_role(RoleName="worker", AssumeRolePolicyDocument=TRUST)
        iam.create_instance_profile(InstanceProfileName="workers")
        iam.add_role_to_instance_profile(InstanceProfileName="workers", RoleName="worker")
        kit.wait_for_profile("workers")
        self.instance_id = kit.run(IamInstanceProfile={"Name": "workers"})

    def may(self, *statements: dict[str, Any]) -> None:
        document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **s} for s in statements]})
        self.kit.client("iam").put_role_policy(RoleName="worker", PolicyName="all", PolicyDocument=document)

    def client(self, service: str) -> Any:
        cloud = self.kit.cloud
        credentials = cloud.account.metadata.source.credentials.role_credentials(
            cloud.machines.find(self.instance_id).instance
        )
        return self.kit.client(
            service,
            aws_access_key_id=credentials["AccessKeyId"],
            aws_secret_access_key=credentials["SecretAccessKey"],
            aws_session_token=credentials["Token"],
        )


def refused(call: Any, **arguments: Any) -> str:
    """The code of a refusal."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return str(caught.value.response["Error"]["Code"])
