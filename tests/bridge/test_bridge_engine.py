"""The real engine, the bridge, the real upstream provider, the local cloud."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

NETWORK = """
zones = aws.get_availability_zones(state="available")
vpc = aws.ec2.Vpc("vpc", cidr_block="{cidr}", tags={{"Name": "{name}"}})
for i in range({subnets}):
    aws.ec2.Subnet(f"subnet-{{i}}", vpc_id=vpc.id, cidr_block=f"10.0.{{i}}.0/24", availability_zone=zones.names[i])
rule = aws.cloudwatch.EventRule("spot", event_pattern=json.dumps({{"source": ["aws.ec2"]}}))
secret = aws.ssm.Parameter("key", type="SecureString", value=pulumi.Output.secret("s3cr3t"))
pulumi.export("vpc", vpc.id)
pulumi.export("rule", rule.name)
pulumi.export("key", secret.name)
pulumi.export("tags", vpc.tags_all)
"""


def network(cidr="10.0.0.0/16", name="one", subnets=2):
    return NETWORK.format(cidr=cidr, name=name, subnets=subnets)


def tags(stack, vpc):
    return {t["Key"]: t["Value"] for t in stack.client("ec2").describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"]}


def test_a_stack_lives_from_up_to_destroy(stack):
    stack.up(network())
    out = stack.outputs()
    assert out["tags"] == tags(stack, out["vpc"]) == {"Name": "one", "Project": "everspot"}
    assert out["rule"].startswith("spot-") and len(out["rule"]) == len("spot-") + 7
    assert "s3cr3t" not in stack.run("stack", "export")

    stack.up(network(), "--expect-no-changes")

    stack.up(network(name="two"))
    assert stack.outputs()["vpc"] == out["vpc"]
    assert tags(stack, out["vpc"])["Name"] == "two"

    planned = stack.preview(network(cidr="10.0.0.0/17", name="two"))
    assert "replace" in planned["vpc"][0]
    assert planned["vpc"][1]["cidrBlock"]["kind"] == "update-replace"

    stack.client("events").delete_rule(Name=out["rule"])
    assert "spot" in stack.state()
    stack.run("refresh", "--yes", "--skip-preview")
    assert "spot" not in stack.state()
    assert {n: op for n, (op, _) in stack.preview(network(name="two")).items() if n == "spot"} == {"spot": "create"}

    stack.run("destroy", "--yes", "--skip-preview")
    found = stack.client("ec2").describe_vpcs()["Vpcs"]
    assert out["vpc"] not in {v["VpcId"] for v in found}
    assert not stack.state()


def test_what_upstream_refuses_is_refused_in_its_words(stack):
    text = stack.up(
        """
aws.ec2.Fleet("fleet",
    launch_template_configs=[{"launch_template_specification": {"launch_template_id": "lt-1", "version": "1"}}],
    target_capacity_specification={"default_target_capacity_type": "spot", "total_target_capacity": 1},
    spot_options={"allocation_strategy": "priceCapacityOptimized"})
""",
        fails=True,
    )
    assert "priceCapacityOptimized" in text
    assert "price-capacity-optimized" in text  # upstream lists what it allows
    text = stack.up('aws.ec2.LaunchTemplate("train", metadata_options={"httpToken": "required"})', fails=True)
    assert "'httpToken' is not expected here" in text and "httpTokens" in text
    assert not stack.resources()


FLEET = """
lt = aws.ec2.LaunchTemplate("train", image_id="ami-12c6146b", instance_type="g5.xlarge")
aws.ec2.Fleet("fleet", type="maintain", terminate_instances=True,
    launch_template_configs=[{{"launch_template_specification": {{"launch_template_id": lt.id, "version": "1"}},
        "overrides": [{{"instance_type": "g5.xlarge", "availability_zone": "us-east-1a", "weighted_capacity": 1}}]}}],
    target_capacity_specification={{"default_target_capacity_type": "spot", "total_target_capacity": 1}},
    spot_options={{"allocation_strategy": "price-capacity-optimized"}},
    opts=pulumi.ResourceOptions(ignore_changes={ignored}))
"""


def test_the_plan_of_a_fleet_shows_upstreams_false_replacement_and_ignoring_it_works(stack):
    stack.up(FLEET.format(ignored=[]))
    op, detail = stack.preview(FLEET.format(ignored=[]))["fleet"]
    assert "replace" in op
    assert {path: d["kind"] for path, d in detail.items()} == {"spotOptions.instancePoolsToUseCount": "update-replace"}
    assert stack.preview(FLEET.format(ignored=["spotOptions.instancePoolsToUseCount"])) == {}


ROLE = """
trust = json.dumps({{"Version": "2012-10-17", "Statement": [
    {{"Effect": "Allow", "Principal": {{"Service": "ec2.amazonaws.com"}}, "Action": "sts:AssumeRole"}}]}})
aws.iam.Role("fixed", name="engine-fixed", path="{path}", assume_role_policy=trust)
auto = aws.iam.Role("auto", path="{path}", assume_role_policy=trust)
aws.ec2.Vpc("old", cidr_block="10.7.0.0/16", tags={{"made": "elsewhere"}}, opts=pulumi.ResourceOptions(import_={vpc}))
pulumi.export("auto", auto.name)
"""


def test_what_the_plan_calls_a_replacement_is_one_and_what_was_there_is_imported(stack):
    iam, ec2 = stack.client("iam"), stack.client("ec2")
    tags = [{"Key": "made", "Value": "elsewhere"}, {"Key": "Project", "Value": "everspot"}]
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=tags)

    stack.up(ROLE.format(path="/a/", vpc=repr(vpc)))
    before, auto = iam.get_role(RoleName="engine-fixed")["Role"], stack.outputs()["auto"]
    assert stack.resources()["old"]["id"] == vpc
    assert before["Path"] == "/a/"

    program = ROLE.format(path="/b/", vpc=None)
    planned = stack.preview(program)
    assert set(planned) == {"fixed", "auto"}
    assert all("replace" in op for op, _ in planned.values())
    assert {d["path"]["kind"] for _, d in planned.values()} == {"update-replace"}
    stack.up(program)
    after = iam.get_role(RoleName="engine-fixed")["Role"]
    assert after["Path"] == "/b/" and after["RoleId"] != before["RoleId"]
    assert stack.outputs()["auto"] != auto
    assert auto not in {r["RoleName"] for r in iam.list_roles()["Roles"]}

    name = stack.outputs()["auto"]
    stack.run("state", "delete", "--yes", stack.resources()["auto"]["urn"])
    stack.run("import", "aws:iam/role:Role", "auto", name, "--yes", "--skip-preview", "--protect=false",
              "--generate-code=false")  # fmt: skip
    assert stack.resources()["auto"]["outputs"]["path"] == "/b/"

    stack.run("destroy", "--yes", "--skip-preview")
    assert not {"engine-fixed", name} & {r["RoleName"] for r in iam.list_roles()["Roles"]}


def test_a_creation_that_fails_half_way_is_kept_in_the_state_and_orphans_nothing(stack):
    stack.up(
        """
aws.sqs.Queue("half", name="engine-half", opts=pulumi.ResourceOptions(
    custom_timeouts=pulumi.CustomTimeouts(create="1s", delete="1s")))
""",
        fails=True,
    )
    half = stack.resources()["half"]
    assert half["id"] == stack.client("sqs").get_queue_url(QueueName="engine-half")["QueueUrl"]
    assert any("timeout while waiting" in reason for reason in half["initErrors"])
    assert stack.preview('aws.sqs.Queue("half", name="engine-half")')["half"][0] == "update"

    # Upstream would look for a minute whether it is gone: the deletion's own timeout is shorter.
    text = stack.run("destroy", "--yes", "--skip-preview", fails=True)
    assert "timeout while waiting" in text
    assert "QueueUrls" not in stack.client("sqs").list_queues(QueueNamePrefix="engine-half")


SETS = """
vpc = aws.ec2.Vpc("vpc", cidr_block="10.9.0.0/16")
for name, (ignored, rules) in {groups}.items():
    ingress = [{{"protocol": "tcp", "from_port": port, "to_port": port, "cidr_blocks": ["10.9.0.0/16"],
                "description": said}} for port, said in rules]
    group = aws.ec2.SecurityGroup(name, vpc_id=vpc.id, ingress=ingress, tags={{"round": "{round}"}},
        opts=pulumi.ResourceOptions(ignore_changes=ignored))
    pulumi.export(name, group.id)
"""
RULES = [(443, "tls"), (22, "shell"), (8080, "page")]
SETTLED = {443: "tls", 22: "shell", 8080: "page"}
GROUPS = {  # what is ignored, the rules of the second program, what the cloud has then
    "same": (["ingress[0]"], RULES, SETTLED),
    "whole": (["ingress[1]"], [RULES[0], (22, "a shell"), RULES[2]], SETTLED),
    "part": (["ingress[2].description"], [*RULES[:2], (8080, "new")], SETTLED),
    "parts": (["ingress[*].description"], [(p, f"{d}?") for p, d in RULES], SETTLED),
    "fewer": (["ingress[0]"], [RULES[0], RULES[2]], {443: "tls", 8080: "page"}),
}


def test_an_index_into_a_set_ignores_what_it_names_and_loses_nothing(stack):
    stack.up(SETS.format(round=1, groups={name: ([], RULES) for name in GROUPS}))
    second = SETS.format(round=2, groups={name: (ignored, rules) for name, (ignored, rules, _) in GROUPS.items()})
    stack.up(second)
    ids = stack.outputs()
    for name, (_, _, expected) in GROUPS.items():
        (group,) = stack.client("ec2").describe_security_groups(GroupIds=[ids[name]])["SecurityGroups"]
        assert {p["FromPort"]: p["IpRanges"][0]["Description"] for p in group["IpPermissions"]} == expected, name
        assert {t["Key"]: t["Value"] for t in group["Tags"]}["round"] == "2", name
    assert stack.preview(second) == {}


def test_the_death_of_upstream_is_one_sentence_that_names_its_log(stack):
    stack.write('aws.sqs.Queue("late", name="engine-late")')
    running = stack.start("up", "--yes", "--skip-preview")
    os.kill(upstream_of(stack), signal.SIGKILL)
    said = running.communicate(timeout=60)[0]
    assert running.returncode != 0
    assert set(re.findall(r"the upstream provider .*", said)) == {
        "the upstream provider ended (killed by signal 9) in the middle of its work; run the same command again, after "
        f"`pulumi refresh`; its log: {stack.folder / 'bridge.log'}"
    }, said


def upstream_of(stack):
    """The process of the upstream provider behind a stack's plugin, once a queue is being made."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        made = "QueueUrls" in stack.client("sqs").list_queues(QueueNamePrefix="engine-late")
        for entry in Path("/proc").glob("[0-9]*") if made else ():
            try:
                ours = f"EVERSPOT_BRIDGE_LOG={stack.folder}/" in (entry / "environ").read_text(errors="replace")
                if ours and b"terraform-provider-aws" in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                    return int(entry.name)
            except OSError:
                continue
        time.sleep(0.1)
    raise AssertionError("there is no upstream provider")
