"""The metadata service over HTTP, and boto3's credentials from it."""

import http.client
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlparse

import boto3
import botocore.session
import pytest
from botocore.exceptions import ClientError

TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)


class Metadata:
    """One instance's service, spoken to in HTTP."""

    def __init__(self, kit: Any, instance_id: str) -> None:
        self.endpoint = kit.cloud.account.metadata.endpoint(instance_id)
        self.token = self.put("60")[1]

    def call(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        connection = http.client.HTTPConnection(urlparse(self.endpoint).netloc, timeout=300)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def put(self, ttl: str) -> tuple[int, str]:
        return self.call("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": ttl})

    def get(self, path: str, token: str | None = None) -> tuple[int, str]:
        return self.call("GET", path, {"X-aws-ec2-metadata-token": token or self.token})


@pytest.fixture
def profile(kit: Any) -> str:
    iam = kit.client("iam")
    iam.create_role(RoleName="worker", AssumeRolePolicyDocument=TRUST)
    arn = iam.create_instance_profile(InstanceProfileName="workers")["InstanceProfile"]["Arn"]
    iam.add_role_to_instance_profile(InstanceProfileName="workers", RoleName="worker")
    kit.wait_for_profile("workers")
    return str(arn)


def test_what_an_instance_knows_of_itself(kit: Any, profile: str) -> None:
    template = kit.template(UserData="eyJoZWxsbyI6MX0=", IamInstanceProfile={"Arn": profile})
    (instance_id,) = kit.spot(template=template)
    here = Metadata(kit, instance_id)
    instance = kit.instance(instance_id)
    for path, expected in {
        "meta-data/instance-id": instance_id,
        "meta-data/instance-type": instance["InstanceType"],
        "meta-data/placement/availability-zone": instance["Placement"]["AvailabilityZone"],
        "meta-data/placement/region": "us-east-1",
        "meta-data/instance-life-cycle": "spot",
        "meta-data/iam/security-credentials/": "worker",
        "user-data": '{"hello":1}',
    }.items():
        assert here.get(f"/latest/{path}") == (200, expected)
    identity = json.loads(here.get("/latest/dynamic/instance-identity/document")[1])
    assert (identity["instanceId"], identity["region"]) == (instance_id, "us-east-1")
    assert json.loads(here.get("/latest/meta-data/iam/info")[1])["InstanceProfileArn"] == profile
    assert Metadata(kit, kit.run()).get("/latest/meta-data/instance-life-cycle") == (200, "on-demand")


def test_user_data_of_every_version_of_a_template(kit: Any) -> None:
    """The first's, a later one's own, and none."""
    template = kit.template(UserData="eyJoZWxsbyI6MX0=")
    machine = {"ImageId": "ami-12c6146b", "InstanceType": "m6i.large"}
    for more in ({"UserData": "eyJoZWxsbyI6Mn0="}, {}):
        kit.ec2.create_launch_template_version(LaunchTemplateId=template, LaunchTemplateData={**machine, **more})
    launched = [kit.run(LaunchTemplate={"LaunchTemplateId": template, "Version": f"{n}"}) for n in (1, 2, 3)]
    first, two, none = (Metadata(kit, name).get("/latest/user-data") for name in launched)
    assert (first, two) == ((200, '{"hello":1}'), (200, '{"hello":2}'))
    assert none[0] == 404
    with pytest.raises(ClientError, match="does not support SourceVersion"):
        kit.ec2.create_launch_template_version(LaunchTemplateId=template, SourceVersion="2", LaunchTemplateData=machine)


def test_a_token_is_required_and_expires_and_belongs_to_one_instance(kit: Any, helpers: Any) -> None:
    template = kit.template(MetadataOptions={"HttpTokens": "required"})
    first, second = kit.spot(2, template=template)
    here, other = Metadata(kit, first), Metadata(kit, second)
    path = "/latest/meta-data/instance-id"
    assert here.call("GET", path, {})[0] == 401
    assert here.get(path, "made-up")[0] == 401
    assert here.get(path, other.token)[0] == 401
    assert here.get(path)[0] == 200
    assert [here.put(ttl)[0] for ttl in ("0", "21601", "soon")] == [400] * 3
    short = here.put("1")[1]
    helpers.until(lambda: here.get(path, short)[0] == 401)


def test_without_tokens_required_the_old_way_works_and_switched_off_nothing_does(kit: Any) -> None:
    path = "/latest/meta-data/instance-id"
    old = kit.run(MetadataOptions={"HttpTokens": "optional"})
    assert Metadata(kit, old).call("GET", path, {}) == (200, old)
    off = kit.run(MetadataOptions={"HttpEndpoint": "disabled"})
    assert Metadata(kit, off).get(path)[0] == 403


def test_notices_are_absent_until_they_come(kit: Any, helpers: Any) -> None:
    (instance_id,) = kit.spot()
    here = Metadata(kit, instance_id)
    action, rebalance = "/latest/meta-data/spot/instance-action", "/latest/meta-data/events/recommendations/rebalance"
    assert [here.get(path)[0] for path in (action, rebalance)] == [404, 404]
    with kit.still():
        now = kit.cloud.market.clock.now()
        kit.do("rebalance", instance=instance_id)
        assert datetime.fromisoformat(json.loads(here.get(rebalance)[1])["noticeTime"]) == now
        assert here.get(action)[0] == 404
        kit.do("interrupt", instance=instance_id)
        notice = json.loads(here.get(action)[1])
        at = datetime.fromisoformat(notice["time"])
        assert notice["action"] == "terminate"
        assert at == now + timedelta(seconds=120)
        mark = kit.mark(at)
    kit.reaches(instance_id, "terminated")
    ended = datetime.fromisoformat(kit.log("end")[0]["at"])
    assert at <= ended <= helpers.until(lambda: mark)[0]


def test_tags_are_told_only_when_the_template_allows_it(kit: Any) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "everspot:role", "Value": "agent"}]}]
    silent, open_ = (
        kit.spot(template=kit.template(TagSpecifications=tags, MetadataOptions={"InstanceMetadataTags": allowed}))[0]
        for allowed in ("disabled", "enabled")
    )
    path = "/latest/meta-data/tags/instance/everspot:role"
    assert Metadata(kit, silent).get(path)[0] == 404
    assert Metadata(kit, open_).get(path) == (200, "agent")


def test_boto3_gets_the_roles_credentials_by_itself(
    kit: Any, profile: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    instance_id = kit.run(IamInstanceProfile={"Arn": profile})
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", kit.cloud.account.metadata.endpoint(instance_id))
    session = boto3.Session(botocore_session=botocore.session.Session(), region_name="us-east-1")
    credentials = session.get_credentials()
    assert credentials.method == "iam-role"
    caller = session.client("sts", endpoint_url=kit.cloud.endpoint).get_caller_identity()
    assert caller["Arn"] == f"arn:aws:sts::123456789012:assumed-role/worker/{instance_id}"


def test_credentials_are_renewed_before_they_expire(kit: Any, profile: str) -> None:
    instance = kit.cloud.machines.find(kit.run(IamInstanceProfile={"Arn": profile})).instance
    source = kit.cloud.account.metadata.source.credentials
    short = source.role_credentials(instance, life=timedelta(minutes=30))
    renewed = source.role_credentials(instance)
    assert short["AccessKeyId"] != renewed["AccessKeyId"]
    assert source.role_credentials(instance) is renewed
    assert datetime.fromisoformat(renewed["Expiration"]) - datetime.now(UTC) > timedelta(hours=5)


def test_no_profile_no_credentials(kit: Any) -> None:
    here = Metadata(kit, kit.run())
    assert here.get("/latest/meta-data/iam/security-credentials/")[0] == 404
    assert here.get("/latest/meta-data/iam/info")[0] == 404


def test_the_service_ends_with_its_instance(kit: Any) -> None:
    instance_id = kit.run()
    here = Metadata(kit, instance_id)
    kit.ec2.terminate_instances(InstanceIds=[instance_id])
    kit.reaches(instance_id, "terminated")
    with pytest.raises(ConnectionRefusedError):
        here.get("/latest/meta-data/instance-id")


def test_an_unknown_profile_is_refused(kit: Any) -> None:
    with pytest.raises(ClientError) as caught:
        kit.run(IamInstanceProfile={"Name": "nobody"})
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert "Invalid IAM Instance Profile name" in str(caught.value)
