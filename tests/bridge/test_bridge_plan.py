"""The bridge's planning rules, tested without a cloud."""

import copy

import pytest
from everspot_local.bridge.ignored import ignore
from everspot_local.bridge.plan import changes, proposed, replacements
from everspot_local.bridge.providers.aws import TABLE
from everspot_local.bridge.schema import Field, Node
from everspot_local.bridge.state import described
from everspot_local.bridge.upstream import UNKNOWN, environment
from everspot_local.bridge.wire import SECRET, SIGNATURE, UNKNOWN_STRING, plain


def text(name, **flags):
    return Field(name, Node("string"), pulumi=name, **flags)


RULE = Node("object", fields={f.tf: f for f in (text("cidr", optional=True), text("id", computed=True))}, block=True)
TYPE = Node(
    "object",
    fields={
        f.tf: f
        for f in (
            text("name", required=True),
            text("arn", computed=True),
            text("zone", optional=True, computed=True),
            Field("rule", Node("set", RULE, block=True), pulumi="rules"),
            Field("opts", Node("list", RULE, block=True), pulumi="opts", flat=True),
        )
    },
)


def config(**overrides):
    return {"name": "a", "arn": None, "zone": None, "rule": [], "opts": [], **overrides}


def test_what_is_computed_and_not_configured_keeps_its_prior_value():
    prior = config(arn="arn:1", zone="z")
    assert proposed(TYPE, config(name="b"), prior) == config(name="b", arn="arn:1", zone="z")
    assert proposed(TYPE, config(zone="y"), prior)["zone"] == "y"
    assert proposed(TYPE, config(), None) == config()


def test_blocks_of_a_set_are_matched_by_what_is_configured_in_them():
    prior = config(rule=[{"cidr": "1", "id": "r1"}, {"cidr": "2", "id": "r2"}])
    desired = config(rule=[{"cidr": "2", "id": None}, {"cidr": "3", "id": None}])
    assert proposed(TYPE, desired, prior)["rule"] == [{"cidr": "2", "id": "r2"}, {"cidr": "3", "id": None}]


def test_the_order_of_a_set_is_no_change_and_an_unknown_is_one():
    a, b = {"cidr": "1", "id": "r1"}, {"cidr": "2", "id": "r2"}
    assert not list(changes(TYPE, config(rule=[a, b]), config(rule=[b, a])))
    assert [c.path for c in changes(TYPE, config(arn="x"), config(arn=UNKNOWN))] == ["arn"]


def test_a_path_that_forces_a_replacement_counts_only_when_its_value_changes():
    prior, planned = (
        config(zone="a", opts=[{"cidr": "1", "id": None}]),
        config(zone="a", opts=[{"cidr": "2", "id": None}]),
    )
    assert replacements(TYPE, prior, planned, [("zone",), ("opts", 0, "cidr")]) == ["opts.cidr"]


def test_ignored_changes_take_the_prior_value():
    prior, desired = (
        config(zone="a", opts=[{"cidr": "0", "id": None}]),
        config(zone="b", opts=[{"cidr": None, "id": None}]),
    )
    ignore(TYPE, desired, prior, ["opts.cidr"])
    assert desired["opts"][0]["cidr"] == "0" and desired["zone"] == "b"


R1, R2, R3 = ({"cidr": f"{n}", "note": f"n{n}", "id": f"r{n}"} for n in (1, 2, 3))
NOTED = Node("object", fields={**RULE.fields, "note": text("note", optional=True)}, block=True)
SETS = Node("object", fields={"rule": Field("rule", Node("set", NOTED, block=True), pulumi="rules")})


def wish(rule, **more):
    return {**rule, "id": None, **more}


@pytest.mark.parametrize(
    ("path", "desired", "expected"),
    [
        ("rules[0]", [wish(R2), wish(R3)], [wish(R2), wish(R3)]),
        ("rules[0].note", [wish(R3, note="x"), wish(R1)], [wish(R3), wish(R1)]),
        ("rules[*].note", [wish(R3, note="x"), wish(R1, note="y")], [wish(R3), wish(R1)]),
        (
            "rules[1].note",
            [wish(R1), {"cidr": "9", "note": "x", "id": None}],
            [wish(R1), {"cidr": "9", "note": "x", "id": None}],
        ),
        ("rules[7].note", [wish(R1)], [wish(R1)]),
        ("rules[*]", [wish(R1)], [R1, R2, R3]),
        ("rules", [], [R1, R2, R3]),
    ],
)
def test_an_element_of_a_set_is_known_by_what_it_says_and_not_by_its_place(path, desired, expected):
    desired_config = {"rule": copy.deepcopy(desired)}
    ignore(SETS, desired_config, {"rule": [R1, R2, R3]}, [path])
    assert desired_config["rule"] == expected


def test_wrappers_of_secrets_are_taken_off_at_every_depth():
    assert plain({"a": [{SIGNATURE: SECRET, "value": {"b": UNKNOWN_STRING}}]}) == {"a": [{"b": UNKNOWN_STRING}]}


def test_an_endpoint_that_is_an_address_is_its_own_proxy_and_no_other_is():
    address = {TABLE.proxied: "http://127.0.0.1:9"}
    assert TABLE.proxied == "AWS_ENDPOINT_URL"
    assert environment(address, TABLE.proxied)["HTTP_PROXY"] == "http://127.0.0.1:9"
    assert "HTTP_PROXY" not in environment({TABLE.proxied: "https://cloud.example"}, TABLE.proxied)
    assert environment({**address, "HTTP_PROXY": "p"}, TABLE.proxied)["HTTP_PROXY"] == "p"
    assert "HTTP_PROXY" not in environment(address, "")


A, B, C = ({"cidr": cidr, "id": f"r{cidr}"} for cidr in "123")


@pytest.mark.parametrize(
    ("written", "upstream_rules", "expected_rules"),
    [
        (["1", "2", "3"], [C, A, B], ["1", "2", "3"]),  # in upstream's order: nothing has changed
        (["2", "1"], [A, C], ["3", "1"]),  # one is another now, and stays in its place
        (["2", "1", "3"], [A, C], ["1", "3"]),  # one is gone
        (["2"], [A, B], ["2", A]),  # one has come: with everything that is known of it
        (["1", "1"], [A], ["1"]),
    ],
)
def test_a_refresh_keeps_the_order_in_which_a_set_was_written(written, upstream_rules, expected_rules):
    rules = [{"cidr": cidr} for cidr in written]
    expected = [rule if isinstance(rule, dict) else {"cidr": rule} for rule in expected_rules]
    assert described(TYPE, {"name": "a", "rules": rules}, {"name": "b", "arn": "x", "rules": upstream_rules}) == {
        "name": "b",
        "rules": expected,
    }
