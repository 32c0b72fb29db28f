"""Egress from an existing VPC, as tables: valid settings, and subnets without a route."""

from typing import Any

import pytest
from everspot_clouds.aws.egress import Subnet, Ways, egress_problems, no_proxy, proxy_port, way_problems
from everspot_clouds.aws.endpoints import endpoints_cost
from everspot_core.cluster.manifest import Proxy
from everspot_core.validation.problems import Problems

NEEDED = ("ec2", "sqs")


@pytest.mark.parametrize(
    ("table", "routes", "ways", "unreached"),
    [
        ("rtb-1", (), Ways(("rtb-1",), NEEDED, (), False), []),
        ("rtb-2", (), Ways(("rtb-1",), NEEDED, (), False), ["S3"]),
        ("rtb-1", (), Ways(None, NEEDED, (), False), ["S3"]),
        ("rtb-1", (), Ways(("rtb-1",), ("ec2",), (), False), ["sqs"]),
        ("rtb-1", (), Ways(None, (), (), False), ["S3", "ec2, sqs"]),
        # A NAT gateway is a way only where the security group lets instances use it.
        ("rtb-1", ("0.0.0.0/0",), Ways(None, (), ("0.0.0.0/0",), False), []),
        ("rtb-1", ("0.0.0.0/0",), Ways(None, (), (), False), ["ec2, sqs"]),
        # Central endpoints behind a transit gateway.
        ("rtb-1", ("10.200.0.0/16",), Ways(("rtb-1",), (), ("10.200.4.0/24",), False), []),
        ("rtb-1", ("10.7.0.0/16",), Ways(("rtb-1",), (), ("10.200.4.0/24",), False), ["ec2, sqs"]),
        ("rtb-1", ("pl-1",), Ways(("rtb-1",), (), ("pl-1",), False), []),
        ("rtb-1", ("pl-1",), Ways(("rtb-1",), (), ("pl-2",), False), ["ec2, sqs"]),
        ("rtb-1", (), Ways(None, (), (), True), []),
    ],
)
def test_a_subnet_reaches_what_its_routes_and_the_settings_lead_to(
    table: str, routes: tuple[str, ...], ways: Ways, unreached: list[str]
) -> None:
    problems = Problems()
    way_problems(problems, [Subnet("subnet-1", table, routes)], ways, NEEDED)
    assert [p.reason.split("cannot reach ")[1].split(":")[0] for p in problems.collected] == unreached
    assert {p.path for p in problems.collected} <= {"subnetIds[0]"}


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://proxy.corp:3128", 3128),
        ("https://proxy.corp", 443),
        ("http://10.0.0.1/", 80),
        ("http://user:word@proxy.corp:3128", None),
        ("proxy.corp:3128", None),
        ("http://proxy.corp:99999", None),
        ("http://proxy.corp:0", None),
    ],
)
def test_a_proxy_is_a_host_and_a_port_without_credentials(url: str, port: int | None) -> None:
    assert proxy_port(url) == port


def test_every_wrong_way_out_is_named() -> None:
    problems, egress = Problems(), dict[str, Any]()
    egress |= {"cidrs": ["10.0.0.0/8", "x"], "prefix_list_ids": ["pl-1", "sg-1"], "security_group_ids": ["sg-x"]}
    egress |= {"no_proxy": ["a b"], "proxy_cidrs": []}
    egress_problems(problems, egress)
    assert [p.path for p in problems.collected] == [
        "cidrs[1]", "prefixListIds[1]", "securityGroupIds[0]", "proxyCidrs", "noProxy", "noProxy[0]",
    ]  # fmt: skip


def test_the_metadata_service_is_never_asked_through_a_proxy() -> None:
    own = Proxy(url="http://p:1", no_proxy=no_proxy("eu-west-1", None)).environment()
    assert own["HTTPS_PROXY"] == own["https_proxy"] == own["HTTP_PROXY"] == "http://p:1"
    assert {"169.254.169.254", ".s3.eu-west-1.amazonaws.com"} <= set(own["NO_PROXY"].split(","))
    hosts = no_proxy("eu-west-1", ["10.0.0.0/8"])
    assert "10.0.0.0/8" in hosts
    assert "169.254.169.254" in hosts
    assert not any("s3" in host for host in hosts)


def test_what_endpoints_cost_is_said_with_its_source_and_where_it_is_not_known() -> None:
    assert endpoints_cost("us-east-1", ["ec2", "sqs"], 3) == (
        "6 interface endpoints (ec2, sqs; 3 zones each) cost $0.060 an hour, $43.80 a month, and $0.01 per GB "
        "(list price of 2025-10-01). S3's gateway endpoint is free."
    )
    sentence = endpoints_cost("eu-west-1", ["ec2"], 1)
    assert "1 interface endpoints (ec2; 1 zone each) cost at least $0.010 an hour" in sentence
    assert "us-east-1's list price of 2025-10-01; eu-west-1's is not known here" in sentence
