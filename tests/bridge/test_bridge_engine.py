"""The real engine, the bridge, the real upstream provider, plain moto."""

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

    text = stack.up('aws.ec2.LaunchTemplate("train", name="lt", image_id="ami-1")', fails=True)
    assert "name" in text and "3" in text

    text = stack.up('aws.ec2.LaunchTemplate("train", metadata_options={"httpToken": "required"})', fails=True)
    assert "'httpToken' is not expected here" in text and "httpTokens" in text


def test_the_plan_of_a_fleet_shows_upstreams_false_replacement_and_ignoring_it_works(stack):
    program = """
lt = aws.ec2.LaunchTemplate("train", image_id="ami-12c6146b", instance_type="m5.large")
aws.ec2.Fleet("fleet", type="maintain", terminate_instances=True,
    launch_template_configs=[{{"launch_template_specification": {{"launch_template_id": lt.id, "version": "1"}},
        "overrides": [{{"instance_type": "m5.large", "availability_zone": "us-east-1a", "weighted_capacity": 1}}]}}],
    target_capacity_specification={{"default_target_capacity_type": "spot", "total_target_capacity": 1}},
    spot_options={{"allocation_strategy": "price-capacity-optimized"}},
    opts=pulumi.ResourceOptions(ignore_changes={ignored}))
"""
    stack.up(program.format(ignored=[]))
    op, detail = stack.preview(program.format(ignored=[]))["fleet"]
    assert "replace" in op
    assert "spotOptions.instancePoolsToUseCount" in detail
    # moto answers two more fields that AWS would not; they are ignored too, to see the one alone.
    others = ["terminateInstancesWithExpiration", "validFrom"]
    left = stack.preview(program.format(ignored=others))["fleet"][1]
    assert set(left) >= {"spotOptions.instancePoolsToUseCount"}
    assert "fleet" not in stack.preview(program.format(ignored=[*others, "spotOptions.instancePoolsToUseCount"]))
