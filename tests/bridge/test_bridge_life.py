"""Operations on single resources through the plugin's gRPC interface: import, timeouts, partial failures, upgrades,
names."""

import base64
import json
import re
import time
from pathlib import Path

import grpc
import pytest
from everspot_local.bridge import wire
from everspot_local.bridge.state import TIMEOUTS_KEY, load
from everspot_local.bridge.upstream import Upstream
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import status_pb2

TOOLS = Path(__file__).parents[2] / ".everspot" / "toolchain"
ROLE, VPC, QUEUE = "aws:iam/role:Role", "aws:ec2/vpc:Vpc", "aws:sqs/queue:Queue"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PARAMETER, BUCKET = "aws:ssm/parameter:Parameter", "aws:s3/bucket:Bucket"
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    },
    sort_keys=True,  # as upstream writes it when it reads one
    separators=(",", ":"),
)
NONE = pb.DiffResponse.DIFF_NONE
ALL = [
    (ROLE, {"assumeRolePolicy": TRUST, "description": "of a test", "tags": {"a": "b"}}),
    (VPC, {"cidrBlock": "10.9.0.0/16", "enableDnsHostnames": True}),
    (PARAMETER, {"type": "String", "value": "7"}),
    (BUCKET, {"forceDestroy": False, "tags": {"a": "b"}}),
]


def initialization(error):
    """Return the engine's record of a resource whose creation failed halfway."""
    trailers = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    failure = pb.ErrorResourceInitFailed()
    assert status.details[0].Unpack(failure)
    return failure


@pytest.mark.parametrize(("token", "inputs"), ALL, ids=["role", "vpc", "parameter", "bucket"])
def test_a_resource_is_known_by_its_id_alone_and_needs_no_change(door, token, inputs):
    resource_id, news, outputs = door.create(token, inputs, name="adopted")
    read_id, described, read = door.read(token, resource_id)
    assert read_id == resource_id
    assert {k: v for k, v in read.items() if k != "__meta"}.keys() >= outputs.keys() - {"__meta", "forceDestroy"}
    program = {k: v for k, v in news.items() if k != "__defaults"}
    assert {k: described.get(k) for k in inputs if k != "forceDestroy"} == {
        k: v for k, v in inputs.items() if k != "forceDestroy"
    }
    for proposed_inputs in (described, program):
        checked, failures = door.check(token, proposed_inputs, olds=described)
        assert not failures
        assert door.diff(token, resource_id, read, checked).changes == NONE, proposed_inputs
    door.delete(token, resource_id, read)
    assert door.read(token, resource_id, read)[0] == ""


@pytest.mark.parametrize(("token", "inputs"), ALL, ids=["role", "vpc", "parameter", "bucket"])
def test_what_was_made_and_read_again_needs_no_change_and_gone_is_gone(door, token, inputs):
    resource_id, news, outputs = door.create(token, inputs)
    assert door.diff(token, resource_id, outputs, news).changes == NONE
    read_id, described, read = door.read(token, resource_id, outputs, news)
    assert (read_id, described) == (resource_id, news)
    assert door.diff(token, resource_id, read, news).changes == NONE
    door.delete(token, resource_id, read)
    assert door.read(token, resource_id, read, news)[0] == ""


def test_an_id_that_nothing_has_is_not_found(door):
    assert door.read(VPC, "vpc-0123456789abcdef0")[0] == ""


def test_a_creation_past_its_timeout_is_handed_over_half_done_and_can_be_deleted(door):
    with pytest.raises(grpc.RpcError, match="timeout while waiting") as caught:
        door.create(QUEUE, {"name": "slow", "delaySeconds": 3}, timeout=1)
    half = initialization(caught.value)
    assert half.id == door.client("sqs").get_queue_url(QueueName="slow")["QueueUrl"]
    assert "timeout while waiting" in half.reasons[0]
    outputs = wire.load(half.properties)
    assert outputs["name"] == "slow"
    assert wire.load(half.inputs)["delaySeconds"] == 3
    # The next `up` updates what is half done, also without a change in the program.
    outputs = door.update(QUEUE, half.id, outputs, wire.load(half.inputs))
    assert outputs["delaySeconds"] == 3 and outputs["url"] == half.id
    # The deletion's own timeout holds as well: upstream waits for longer than a second.
    with pytest.raises(grpc.RpcError, match="timeout while waiting"):
        door.delete(QUEUE, half.id, outputs, timeout=1)
    assert "QueueUrls" not in door.client("sqs").list_queues(QueueNamePrefix="slow")


def test_upstream_waits_between_two_looks_in_the_time_of_the_market(fast_door):
    began = time.monotonic()
    resource_id, _, outputs = fast_door.create(QUEUE, {"name": "swift"})
    fast_door.delete(QUEUE, resource_id, outputs)
    assert "QueueUrls" not in fast_door.client("sqs").list_queues(QueueNamePrefix="swift")
    # By the wall clock these are 6 looks 5 s apart, and 15 that are up to 10 s apart.
    assert time.monotonic() - began < 90


def test_a_creation_that_failed_from_the_start_leaves_nothing_to_hand_over(door):
    door.create(PARAMETER, {"name": "taken", "type": "String", "value": "1"})
    with pytest.raises(grpc.RpcError, match="ParameterAlreadyExists") as caught:
        door.create(PARAMETER, {"name": "taken", "type": "String", "value": "2"})
    assert "grpc-status-details-bin" not in dict(caught.value.trailing_metadata())


def test_timeouts_are_kept_with_the_resource(door):
    resource_id, _, outputs = door.create(BUCKET, {}, timeout=77)
    private = json.loads(base64.b64decode(json.loads(outputs["__meta"])["private"]))
    assert private[TIMEOUTS_KEY]["create"] == 77e9
    door.delete(BUCKET, resource_id, outputs, timeout=1_000_000)
    assert door.read(BUCKET, resource_id, outputs)[0] == ""


def test_a_state_of_an_older_schema_is_upgraded_by_upstream(door):
    resource_id, news, outputs = door.create(VPC, {"cidrBlock": "10.8.0.0/16"})
    now = json.loads(outputs["__meta"])["schema_version"]
    assert int(now) > 0
    old = {k: v for k, v in outputs.items() if k not in ("__meta", "assignGeneratedIpv6CidrBlock")}
    old |= {"__meta": json.dumps({"schema_version": "0"}), "ofAnotherAge": "x"}
    _, _, read = door.read(VPC, resource_id, old, news)
    assert json.loads(read["__meta"])["schema_version"] == now
    assert read["assignGeneratedIpv6CidrBlock"] is False and "ofAnotherAge" not in read
    assert door.diff(VPC, resource_id, old, news).changes == NONE
    door.delete(VPC, resource_id, old)
    assert door.read(VPC, resource_id, outputs)[0] == ""


def test_an_upgrade_reads_what_only_the_older_schema_had(resources):
    instance = resources.mapping("aws:ec2/instance:Instance")
    old = {"cpuCoreCount": 2, "cpuThreadsPerCore": 1, "ami": "ami-1", "__meta": json.dumps({"schema_version": "1"})}
    upgraded = load(resources.upstream, instance, "i-1", old)
    options = upgraded.value["cpu_options"][0]
    assert (options["core_count"], options["threads_per_core"]) == (2, 1)
    assert (upgraded.id, upgraded.value["ami"]) == ("i-1", "ami-1")
    assert "cpu_core_count" not in upgraded.value


def test_only_a_name_that_is_in_the_way_makes_the_deletion_come_first(door):
    def replaced(before, after):
        resource_id, news, outputs = door.create(
            ROLE, {"assumeRolePolicy": TRUST, "path": "/a/", **before}, name="named"
        )
        new_inputs, _ = door.check(ROLE, {"assumeRolePolicy": TRUST, "path": "/b/", **after}, olds=news, name="named")
        answer = door.diff(ROLE, resource_id, outputs, new_inputs)
        door.delete(ROLE, resource_id, outputs)
        assert "path" in answer.replaces
        assert answer.detailedDiff["path"].kind == pb.PropertyDiff.UPDATE_REPLACE
        return answer.deleteBeforeReplace

    assert replaced({"name": "mine"}, {"name": "mine"})
    assert not replaced({"name": "mine"}, {"name": "other"})
    assert not replaced({}, {})
    assert not replaced({"namePrefix": "mine-"}, {"namePrefix": "mine-"})


def test_an_update_is_no_replacement_and_keeps_the_name_that_was_made(door):
    resource_id, news, outputs = door.create(ROLE, {"assumeRolePolicy": TRUST})
    new_inputs, _ = door.check(ROLE, {"assumeRolePolicy": TRUST, "description": "new"}, olds=news)
    assert new_inputs["name"] == news["name"]
    answer = door.diff(ROLE, resource_id, outputs, new_inputs)
    assert list(answer.diffs) == ["description"] and not answer.replaces
    assert door.update(ROLE, resource_id, outputs, new_inputs)["uniqueId"] == outputs["uniqueId"]
    assert door.client("iam").get_role(RoleName=resource_id)["Role"]["Description"] == "new"


REFUSED = {
    "an unknown property": (VPC, {"cidrBlok": "10.0.0.0/16"}, "cidrBlok", "Did you mean 'cidrBlock'"),
    "an unknown part": (ROLE, {"inlinePolicies": [{"nam": "x"}], "assumeRolePolicy": TRUST}, "inlinePolicies[0].nam",
                        "Unsupported argument"),
    "an output as an input": (VPC, {"cidrBlock": "10.0.0.0/16", "arn": "a"}, "arn", "Unsupported argument"),
    "a missing property": (PARAMETER, {"value": "x"}, "type", "is required"),
    "a wrong word": (PARAMETER, {"type": "Text", "value": "x"}, "type", "SecureString"),
    "a wrong type": (VPC, {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": "perhaps"}, "enableDnsSupport", "bool"),
    "a bad address": (VPC, {"cidrBlock": "10.0.0.0"}, "cidrBlock", "10.0.0.0"),
    "a document that is none": (ROLE, {"assumeRolePolicy": "{"}, "assumeRolePolicy", "JSON"),
    "two that exclude each other": (QUEUE, {"name": "a", "namePrefix": "a"}, "name", "conflicts with"),
    "a bad name of a bucket": (BUCKET, {"bucket": "a" * 64}, "bucket", "63"),
    "a part spelt nearly right": (TEMPLATE, {"metadataOptions": {"httpToken": "required"}},
                                  "metadataOptions.httpToken", "Did you mean 'httpTokens'"),
    "a part that is not there": (TEMPLATE, {"metadataOptions": {"httpToken": "required"}},
                                 "metadataOptions.httpToken", "'httpToken' is not expected here"),
    "a bad name of a template": (TEMPLATE, {"name": "lt"}, "name", "3"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_inputs_are_refused_by_name_in_upstreams_words(door, case):
    token, inputs, name, words = REFUSED[case]
    _, failures = door.check(token, inputs)
    assert name in failures, failures
    assert words in failures[name]


def test_a_function_answers_what_the_cloud_says(door):
    ec2 = door.client("ec2")
    types = [{"Name": "instance-type", "Values": ["p4d.24xlarge", "c6i.large"]}]
    sold = ec2.describe_instance_type_offerings(LocationType="availability-zone", Filters=types)
    filters = [{"name": "instance-type", "values": types[0]["Values"]}]
    offerings = door.invoke("aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings",
                        {"filters": filters, "locationType": "availability-zone"})  # fmt: skip
    pairs = set(zip(offerings["instanceTypes"], offerings["locations"], strict=True))
    assert pairs == {(o["InstanceType"], o["Location"]) for o in sold["InstanceTypeOfferings"]} != set()
    key = door.client("kms").create_key()["KeyMetadata"]["Arn"]
    assert door.invoke("aws:kms/getKey:getKey", {"keyId": key})["keyManager"] == "CUSTOMER"
    with pytest.raises(grpc.RpcError, match=r"couldn't find resource|ParameterNotFound"):
        door.invoke("aws:ssm/getParameter:getParameter", {"name": "/there/is/none"})


def test_the_schema_has_every_type_that_was_built_and_refers_to_none_that_is_missing(door):
    schema = json.loads(door.stub.GetSchema(pb.GetSchemaRequest()).schema)
    vpc = schema["resources"]["aws:ec2/vpc:Vpc"]
    assert vpc["inputProperties"]["cidrBlock"] == {"type": "string"} and "arn" not in vpc["inputProperties"]
    assert vpc["properties"]["arn"] == {"type": "string"}
    fleet = schema["resources"]["aws:ec2/fleet:Fleet"]
    assert set(fleet["requiredInputs"]) == {"launchTemplateConfigs", "targetCapacitySpecification"}
    assert fleet["inputProperties"]["targetCapacitySpecification"] == {
        "$ref": "#/types/aws:ec2/FleetTargetCapacitySpecification:FleetTargetCapacitySpecification"
    }
    references = set(re.findall(r'"#/types/([^"]+)"', json.dumps(schema)))
    assert references == schema["types"].keys() and len(schema["resources"]) > 200


def test_upstream_leaves_no_socket_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    upstream = Upstream(TOOLS / "bin" / "terraform-provider-aws", TOOLS / "stubs")
    try:
        assert upstream.schema.resource_schemas
        assert not list(tmp_path.iterdir())
        assert upstream.call("GetSchema").resource_schemas
    finally:
        upstream.stop()
