"""The real engine runs programs through the bridge and the real upstream provider against a local cloud."""

import os
import re
import signal
import time
from pathlib import Path

import pytest

from .conftest import REGION, VARIABLES, opened

pytestmark = pytest.mark.engine

CONFIG = """
config:
  aws:s3UsePathStyle: "true"
  aws:defaultTags: {tags: {Project: everspot}}
"""
NETWORK = """
zones = aws.get_availability_zones(state="available")
vpc = aws.ec2.Vpc("vpc", cidr_block="{cidr}", tags={{"Name": "{name}"}})
for i in range(2):
    aws.ec2.Subnet(f"subnet-{{i}}", vpc_id=vpc.id, cidr_block=f"10.0.{{i}}.0/24", availability_zone=zones.names[i])
rule = aws.cloudwatch.EventRule("spot", event_pattern=json.dumps({{"source": ["aws.ec2"]}}))
secret = aws.ssm.Parameter("key", type="SecureString", value=pulumi.Output.secret("s3cr3t"))
pulumi.export("vpc", vpc.id)
pulumi.export("rule", rule.name)
pulumi.export("key", secret.name)
pulumi.export("tags", vpc.tags_all)
"""
FLEET = """
lt = aws.ec2.LaunchTemplate("train", image_id="ami-12c6146b", instance_type="g5.xlarge")
aws.ec2.Fleet("fleet", type="maintain", terminate_instances=False,
    launch_template_configs=[{{"launch_template_specification": {{"launch_template_id": lt.id, "version": "1"}},
        "overrides": [{{"instance_type": "g5.xlarge", "availability_zone": "us-east-1a", "weighted_capacity": 1}}]}}],
    target_capacity_specification={{"default_target_capacity_type": "spot", "total_target_capacity": 1}},
    spot_options={{"allocation_strategy": "price-capacity-optimized"}},
    opts=pulumi.ResourceOptions(ignore_changes={ignored}))
"""
FALSE = ["spotOptions.instancePoolsToUseCount"]
ROLES = """
trust = json.dumps({{"Version": "2012-10-17", "Statement": [
    {{"Effect": "Allow", "Principal": {{"Service": "ec2.amazonaws.com"}}, "Action": "sts:AssumeRole"}}]}})
aws.iam.Role("fixed", name="engine-fixed", path="{path}", assume_role_policy=trust)
auto = aws.iam.Role("auto", path="{path}", assume_role_policy=trust)
aws.ec2.Vpc("old", cidr_block="10.7.0.0/16", tags={{"made": "elsewhere"}}, opts=pulumi.ResourceOptions(import_={vpc}))
pulumi.export("auto", auto.name)
"""
SETS = """
ground = aws.ec2.Vpc("ground", cidr_block="10.9.0.0/16")
for name, (ignored, rules) in {groups}.items():
    ingress = [{{"protocol": "tcp", "from_port": port, "to_port": port, "cidr_blocks": ["10.9.0.0/16"],
                "description": said}} for port, said in rules]
    group = aws.ec2.SecurityGroup(name, vpc_id=ground.id, ingress=ingress, tags={{"round": "{round}"}},
        opts=pulumi.ResourceOptions(ignore_changes=ignored))
    pulumi.export(name, group.id)
"""
RULES = [(443, "tls"), (22, "shell"), (8080, "page")]
SETTLED = {443: "tls", 22: "shell", 8080: "page"}
GROUPS = {  # the ignored inputs, the rules of the second program, the cloud's rules afterwards
    "same": (["ingress[0]"], RULES, SETTLED),
    "whole": (["ingress[1]"], [RULES[0], (22, "a shell"), RULES[2]], SETTLED),
    "part": (["ingress[2].description"], [*RULES[:2], (8080, "new")], SETTLED),
    "parts": (["ingress[*].description"], [(p, f"{d}?") for p, d in RULES], SETTLED),
    "fewer": (["ingress[0]"], [RULES[0], RULES[2]], {443: "tls", 8080: "page"}),
}
FIRST = SETS.format(round=1, groups={name: ([], RULES) for name in GROUPS})
SECOND = SETS.format(round=2, groups={name: (ignored, rules) for name, (ignored, rules, _) in GROUPS.items()})


def program(*, cidr="10.0.0.0/16", name="two", path="/b/", vpc=None, ignored=(), sets=SECOND):
    parts = NETWORK.format(cidr=cidr, name=name), ROLES.format(path=path, vpc=repr(vpc))
    return "".join((*parts, FLEET.format(ignored=list(ignored)), sets))


def made_stack(folder, endpoint):
    """A new stack on the local AWS, without resources."""
    stack = opened(folder, endpoint, {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": REGION, **VARIABLES})
    with (folder / "Pulumi.test.yaml").open("a") as settings:
        settings.write(CONFIG)
    return stack


@pytest.fixture
def stack(tmp_path, endpoint):
    return made_stack(tmp_path, endpoint)


@pytest.fixture(scope="module")
def life(tmp_path_factory, endpoint):
    """One stack, through whose life the tests that have it go in this order."""
    return made_stack(tmp_path_factory.mktemp("life"), endpoint)


@pytest.fixture(scope="module")
def before(life):
    """The outputs of the first `up`; `old`: a VPC that existed before."""
    ec2 = life.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    tags = [{"Key": "made", "Value": "elsewhere"}, {"Key": "Project", "Value": "everspot"}]
    ec2.create_tags(Resources=[vpc], Tags=tags)
    life.up(program(name="one", path="/a/", vpc=vpc, sets=FIRST))
    return {**life.outputs(), "old": vpc, "role": life.client("iam").get_role(RoleName="engine-fixed")["Role"]}


def tags(stack, vpc):
    return {t["Key"]: t["Value"] for t in stack.client("ec2").describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"]}


def test_what_is_declared_is_there_and_what_was_there_is_imported(life, before):
    assert before["tags"] == tags(life, before["vpc"]) == {"Name": "one", "Project": "everspot"}
    assert before["rule"].startswith("spot-") and len(before["rule"]) == len("spot-") + 7
    assert before["role"]["Path"] == "/a/"
    assert life.resources()["old"]["id"] == before["old"]
    assert "s3cr3t" not in life.run("stack", "export")


def test_what_was_deleted_behind_its_back_is_found_and_a_plan_names_each_replacement_and_why(life, before):
    life.client("events").delete_rule(Name=before["rule"])
    names = ("spot", "vpc", "key", *GROUPS)
    urns = [resource["urn"] for name, resource in life.state().items() if name in names]
    life.run("refresh", "--yes", "--skip-preview", *(argument for urn in urns for argument in ("--target", urn)))
    assert len(urns) == len(names) and "spot" not in life.state()
    for name in GROUPS:  # a set comes back in an order of its own; the inputs keep the program's
        assert [rule["fromPort"] for rule in life.state()[name]["inputs"]["ingress"]] == [443, 22, 8080]

    planned = life.preview(program(cidr="10.0.0.0/17", sets=FIRST))
    assert {name: op for name, (op, _) in planned.items() if "replace" not in op} == {"spot": "create"}
    assert set(planned) - {"spot"} == {"vpc", "subnet-0", "subnet-1", "fixed", "auto", "fleet"}
    kinds = {
        name: {path: resource["kind"] for path, resource in detail.items()} for name, (_, detail) in planned.items()
    }
    assert kinds["vpc"]["cidrBlock"] == "update-replace"
    assert kinds["fixed"] == kinds["auto"] == {"path": "update-replace"}
    assert kinds["fleet"] == dict.fromkeys(FALSE, "update-replace")  # upstream's, for no reason


def test_a_change_is_what_the_plan_called_it_and_what_is_to_be_ignored_is(life, before):
    second = program(ignored=FALSE)
    life.up(second)
    out, iam = life.outputs(), life.client("iam")
    assert out["vpc"] == before["vpc"]
    assert tags(life, out["vpc"])["Name"] == "two"
    after = iam.get_role(RoleName="engine-fixed")["Role"]
    assert after["Path"] == "/b/" and after["RoleId"] != before["role"]["RoleId"]
    assert out["auto"] != before["auto"]
    assert before["auto"] not in {r["RoleName"] for r in iam.list_roles()["Roles"]}
    # An index into a set ignores what it names, and loses nothing.
    for name, (_, _, expected) in GROUPS.items():
        (group,) = life.client("ec2").describe_security_groups(GroupIds=[out[name]])["SecurityGroups"]
        assert {p["FromPort"]: p["IpRanges"][0]["Description"] for p in group["IpPermissions"]} == expected, name
        assert {t["Key"]: t["Value"] for t in group["Tags"]}["round"] == "2", name
    life.up(second, "--expect-no-changes")


def test_what_the_state_has_lost_is_imported_by_its_name_and_destroy_leaves_nothing(life, before):
    name, iam = life.outputs()["auto"], life.client("iam")
    life.run("state", "delete", "--yes", life.resources()["auto"]["urn"])
    life.run("import", "aws:iam/role:Role", "auto", name, "--yes", "--skip-preview", "--protect=false",
             "--generate-code=false")  # fmt: skip
    assert life.resources()["auto"]["outputs"]["path"] == "/b/"

    life.run("destroy", "--yes", "--skip-preview")
    vpcs = life.client("ec2").describe_vpcs()["Vpcs"]
    assert not {before["vpc"], before["old"]} & {v["VpcId"] for v in vpcs}
    assert not {"engine-fixed", name} & {r["RoleName"] for r in iam.list_roles()["Roles"]}
    assert not life.state()


def test_what_upstream_refuses_is_refused_in_its_words(life):
    text = life.up(
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
    assert not life.resources()


def test_a_creation_that_fails_half_way_is_kept_in_the_state_and_orphans_nothing(life):
    life.up(
        """
aws.sqs.Queue("half", name="engine-half", opts=pulumi.ResourceOptions(
    custom_timeouts=pulumi.CustomTimeouts(create="1s", delete="1s")))
""",
        fails=True,
    )
    half = life.resources()["half"]
    assert half["id"] == life.client("sqs").get_queue_url(QueueName="engine-half")["QueueUrl"]
    assert any("timeout while waiting" in reason for reason in half["initErrors"])
    assert life.preview('aws.sqs.Queue("half", name="engine-half")')["half"][0] == "update"

    # Upstream would look for a minute whether it is gone: the deletion's own timeout is shorter.
    text = life.run("destroy", "--yes", "--skip-preview", fails=True)
    assert "timeout while waiting" in text
    assert "QueueUrls" not in life.client("sqs").list_queues(QueueNamePrefix="engine-half")


def test_the_death_of_upstream_is_one_sentence_that_names_its_log(stack):
    stack.write('aws.sqs.Queue("late", name="engine-late")')
    running = stack.start("up", "--yes", "--skip-preview")
    os.kill(find_upstream(stack), signal.SIGKILL)
    output = running.communicate(timeout=60)[0]
    assert running.returncode != 0
    assert set(re.findall(r"the upstream provider .*", output)) == {
        "the upstream provider ended (killed by signal 9) in the middle of its work; run the same command again, after "
        f"`pulumi refresh`; its log: {stack.folder / 'bridge.log'}"
    }, output


def find_upstream(stack):
    """The process of the upstream provider behind a stack's plugin, once a queue is being made."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        is_creating = "QueueUrls" in stack.client("sqs").list_queues(QueueNamePrefix="engine-late")
        for entry in Path("/proc").glob("[0-9]*") if is_creating else ():
            try:
                belongs_to_stack = f"EVERSPOT_BRIDGE_LOG={stack.folder}/" in (entry / "environ").read_text(
                    errors="replace"
                )
                if belongs_to_stack and b"terraform-provider-aws" in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                    return int(entry.name)
            except OSError:
                continue
        time.sleep(0.1)
    raise AssertionError("there is no upstream provider")
