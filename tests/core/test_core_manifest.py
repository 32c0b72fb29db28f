"""Unknown fields in a manifest that a person or a newer release wrote."""

import pytest
from everspot_core.cluster.manifest import Elastic, Manifest, left_out
from everspot_core.jobs.records import Market
from pydantic import ValidationError

BASE = '"cluster":"c","cloud":"folder","control_url":"file:///a","data_url":"file:///b"'


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ('"limits":{"lease_tll":"90s"}', "limits.lease_tll: unknown field (did you mean lease_ttl?)"),
        ('"limitz":{"lease_ttl":"90s"}', "limitz: unknown field (did you mean limits?)"),
        ('"standing":{"spot_unit":3}', "standing.spot_unit: unknown field (did you mean spot_units?)"),
        (
            '"instance_types":[{"name":"x.y","vcpus":2,"memory_gib":4,"gpuz":1,"arch":"x86_64"}]',
            "instance_types[0].gpuz: unknown field (did you mean gpu or gpus?)",
        ),
    ],
)
def test_a_field_that_is_not_known_is_read_over_and_named(part: str, expected: str) -> None:
    text = f"{{{BASE},{part}}}"
    assert Manifest.read(text).cluster == "c"
    (problem,) = left_out(text)
    assert str(problem).startswith(expected)


def test_of_a_manifest_that_is_understood_nothing_is_left_out() -> None:
    assert left_out(f'{{{BASE},"limits":{{"lease_ttl":"90s"}},"shares":{{"a":2}}}}') == []
    assert left_out(Manifest.read(f"{{{BASE}}}").to_json()) == []


@pytest.mark.parametrize("weight", ["NaN", '"NaN"', "-1", "0", "1e999", "true", "null"])
def test_a_weight_that_is_none_is_left_out_and_the_others_count(weight: str) -> None:
    text = f'{{{BASE},"shares":{{"vision":{weight},"speech":2}}}}'
    assert Manifest.read(text).shares == {"speech": 2.0}
    (problem,) = left_out(text)
    assert problem.path == "shares.vision"
    assert problem.reason.startswith("has to be a finite number greater than 0, not ")


def test_a_program_cannot_make_a_manifest_with_such_a_weight() -> None:
    with pytest.raises(ValidationError, match="shares"):
        Manifest(cluster="c", cloud="folder", control_url="file:///a", data_url="file:///b", shares={"a": -1})


@pytest.mark.parametrize(
    ("instance_type", "zone", "market", "offered"),
    [
        ("a", "z1", Market.SPOT, True),
        ("a", "z2", Market.SPOT, True),
        ("b", "z1", Market.SPOT, True),
        ("b", "z2", Market.SPOT, False),
        ("a", "z3", Market.SPOT, False),
        ("c", "z1", Market.SPOT, False),
        ("a", "z1", Market.ON_DEMAND, False),
    ],
)
def test_capacity_offers_its_types_in_their_zones_and_its_markets_alone(
    instance_type: str, zone: str, market: Market, offered: bool
) -> None:
    elastic = Elastic(
        types=["a", "b"], markets=[Market.SPOT], max_instances=1, template="t", template_version="1",
        places={"z1": "subnet-1", "z2": "subnet-2"}, zones={"b": ["z1", "z3"]},
    )  # fmt: skip
    assert elastic.offers(instance_type, zone, market) is offered
