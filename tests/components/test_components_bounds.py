"""Bounds of fleets, tags and names: invalid values are refused by field, through every entry point."""

from typing import Any

import pulumi
import pytest
from everspot import AwsIdentity, AwsInterruptionEvents, AwsStore
from everspot.aws.checking import check_cluster
from everspot_core.validation.problems import camel

KEY = "arn:aws:kms:eu-west-1:111122223333:key/k"


def refused(spec: Any, name: str = "train", **changes: Any) -> dict[str, str]:
    """Reason by path."""
    with pytest.raises(pulumi.InputPropertiesError) as error:
        check_cluster(name, {**spec, **changes})
    assert isinstance(error.value, pulumi.RunError)  # which ends a program without a traceback
    assert error.value.errors is not None
    return {detail["property_path"]: detail["reason"] for detail in error.value.errors}


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("target", True, "has to be a whole number, not True"),
        ("target", -5, "has to lie between 0 and 10000, not -5"),
        ("target", 2.5, "has to be a whole number, not 2.5"),
        ("target", float("nan"), "has to be a whole number, not nan"),
        ("on_demand_base", 10**30, "has to lie between 0 and 10000"),
        ("on_demand_percentage", float("nan"), "has to be a number, not nan"),
        ("max_price", 1e308, "has to lie between 0.0001 and 10000"),
        ("weight_by", "cores", "'cores' is not allowed; one of: instance, vcpu, gpu, throughput"),
    ],
)
def test_a_fleets_numbers_are_bounded(spec: Any, field: str, value: Any, reason: str) -> None:
    part = "" if field == "max_price" else "standing."
    changed = {field: value} if not part else {"standing": {**spec["capacity"]["standing"], field: value}}
    reasons = refused(spec, capacity={**spec["capacity"], **changed})
    assert list(reasons) == [f"capacity.{part}{camel(field)}"]
    assert reason in next(iter(reasons.values()))


@pytest.mark.parametrize(
    ("entry", "path"),
    [
        ({"type": "m6i.large", "weight": 1e-9}, "weight"),
        ({"type": "m6i.large", "weight": float("inf")}, "weight"),
        ({"type": "m6i.large", "priority": -1}, "priority"),
        ({"type": "m6i.large", "priority": 0.5}, "priority"),
        ({"type": "m6i.large", "priority": float("inf")}, "priority"),
        ({"type": "m6i.large", "throughput": 0}, "throughput"),
        ({"type": "m6i.large", "max_price": float("nan")}, "maxPrice"),
        ({"type": "../../etc", "vcpus": 2, "memory_gib": 8}, "type"),
        ({"type": "x" * 70, "vcpus": 2, "memory_gib": 8}, "type"),
        ({"type": "own.large", "vcpus": True, "memory_gib": 8}, "vcpus"),
        ({"type": "own.large", "vcpus": 2, "memory_gib": 1e308}, "memoryGib"),
        ({"type": "own.large", "vcpus": 2, "memory_gib": 8, "gpus": -1}, "gpus"),
    ],
)
def test_the_numbers_of_a_type_are_bounded(spec: Any, entry: Any, path: str) -> None:
    assert set(refused(spec, capacity={"standing": {"target": 1}, "instance_types": [entry]})) == {
        f"capacity.instanceTypes[0].{path}"
    }


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [
        ("tick_every", "10d", "has to lie between 0.1s and 10m, not 10d"),
        ("notice_poll", "0s", "has to lie between 0.1s and 15s, not 0s"),
        ("notice_poll", "1h", "has to lie between 0.1s and 15s, not 1h"),
        ("poll_every", "-5s", "is not a duration"),
        ("orphan_limit", "99999999999999d", "lies between 0s and 3650d"),
        ("archive_after", "5s", "has to lie between 10m and 30d, not 5s"),
        ("archive_after", "31d", "has to lie between 10m and 30d, not 31d"),
        ("stop_margin", "2m", "has to lie between 0s and 1m, not 2m"),
    ],
)
def test_limits_are_bounded(spec: Any, limit: str, value: str, reason: str) -> None:
    (message,) = refused(spec, limits={limit: value}).values()
    assert reason in message


@pytest.mark.parametrize(
    ("limits", "path", "reason"),
    [
        ({"lease_ttl": "soon"}, "limits.leaseTtl", "'soon' is not a duration; write for example 45s, 10m, 1h30m or 2d"),
        ({"tick_every": [1]}, "limits.tickEvery", "must be a duration such as 45s, 10m or 1h30m"),
        ({"lease_tll": "1m"}, "limits.leaseTll", "unknown field (did you mean lease_ttl?); allowed: lease_ttl, "),
    ],
)
def test_limits_are_refused_in_the_words_of_job_files(spec: Any, limits: Any, path: str, reason: str) -> None:
    reasons = refused(spec, limits=limits)
    assert list(reasons) == [path]
    assert reasons[path].startswith(reason)


@pytest.mark.parametrize(
    ("facts", "field", "reason"),
    [
        ({"vcpus": 2}, "memoryGib", "is missing"),
        ({"vcpus": "two", "memory_gib": 8}, "vcpus", "must be a whole number, not 'two'"),
        ({"vcpus": 2, "memory_gib": "much"}, "memoryGib", "must be a number, not 'much'"),
        ({"vcpus": 2, "memory_gib": 8, "gpu": 3}, "gpu", "must be a text, not 3"),
    ],
)
def test_a_type_declared_in_place_is_refused_in_the_same_words(spec: Any, facts: Any, field: str, reason: str) -> None:
    capacity = {**spec["capacity"], "instance_types": [{"type": "m6i.large"}, {"type": "odd.large", **facts}]}
    reasons = refused(spec, capacity=capacity)
    assert reasons[f"capacity.instanceTypes[1].{field}"] == f"{reason} (a type declared in place)"


TAGS = {"Project": "vision", "Team": "ml", "Environment": "test"}


@pytest.mark.parametrize(
    ("tags", "path", "reason"),
    [
        ({"Cost": "R&D"}, "tags.Cost", "the value has '&'; IAM allows letters, digits, spaces and _.:/=+-@"),
        ({"Owner": "a,b\n"}, "tags.Owner", "the value has '\\n' ','"),
        ({"Kürzel;": "x"}, "tags.Kürzel;", "the key has ';'"),
        ({"AWS:owner": "x"}, "tags.AWS:owner", "tags under aws: cannot be set"),
        ({"everspot:role": "x"}, "tags.everspot:role", "tags under everspot: cannot be set"),
        ({"": "x"}, "tags", "the key has 0 characters; 1 to 128 are allowed"),
        ({"k" * 129: "x"}, f"tags.{'k' * 78}…", "the key has 129 characters"),
        ({"Owner": "v" * 257}, "tags.Owner", "has 257 characters; 256 are allowed"),
        ({"project": "x"}, "tags.project", "differs from Project in case only"),
        ({"Owner": 3}, "tags.Owner", "has to be a text, not 3"),
        ({f"t{n}": "x" for n in range(45)}, "tags", "at most 45 tags of one's own, 48 are given"),
    ],
)
def test_tags_are_what_every_service_takes(spec: Any, tags: Any, path: str, reason: str) -> None:
    reasons = refused(spec, tags={**TAGS, **tags})
    assert list(reasons) == [path]
    assert reason in reasons[path]


@pytest.mark.parametrize(
    ("team", "weight", "path", "reason"),
    [
        ("ants", 0, "shares.ants", "has to lie between 0.001 and 1000, not 0"),
        ("ants", -1.0, "shares.ants", "has to lie between 0.001 and 1000, not -1.0"),
        ("ants", 1001, "shares.ants", "has to lie between 0.001 and 1000"),
        ("ants", float("inf"), "shares.ants", "has to be a number, not inf"),
        ("ants", float("nan"), "shares.ants", "has to be a number, not nan"),
        ("ants", True, "shares.ants", "has to be a number, not True"),
        ("ants", "2", "shares.ants", "has to be a number, not '2'"),
        ("", 1, "shares.''", "a team's name is not empty, nor ends in spaces"),
        ("ants ", 1, "shares.'ants '", "a team's name is not empty, nor ends in spaces"),
        ("a" * 257, 1, f"shares.'{'a' * 78}…", "has 257 characters; 256 are allowed"),
    ],
)
def test_the_weight_of_a_team_is_a_number_that_leaves_others_something(
    spec: Any, team: str, weight: Any, path: str, reason: str
) -> None:
    reasons = refused(spec, shares={team: weight})
    assert list(reasons) == [path]
    assert reason in reasons[path]


def test_every_bad_threshold_of_anomalies_is_named(spec: Any) -> None:
    bad = {"job_times": 0.5, "team_usd": -1, "idle_share": 1.0, "idle_for": "1m", "price_times": float("nan")}
    reasons = refused(spec, anomalies=bad)
    assert set(reasons) == {
        f"anomalies.{name}" for name in ("jobTimes", "teamUsd", "idleShare", "idleFor", "priceTimes")
    }
    assert reasons["anomalies.idleShare"] == "has to lie between 0 and 0.99, not 1.0"
    assert reasons["anomalies.idleFor"] == "has to lie between 5m and 30d, not 1m"
    assert set(refused(spec, anomalies={"idle_for": "soon", "team_usd": "5 $"})) == {
        "anomalies.idleFor",
        "anomalies.teamUsd",
    }


def test_tags_at_the_limits_are_taken(spec: Any) -> None:
    most = {"k" * 128: "v" * 256, "Größe": "a b_.:/=+-@1"}
    check_cluster("train", {**spec, "tags": {**TAGS, **most, **{f"t{n}": "" for n in range(40)}}})


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("kms_key_arn", "my-key", "'my-key' is not an ARN (arn:aws:kms:…:key/…)"),
        ("kms_key_arn", KEY.replace("key/", "alias/"), "is not the ARN of kms key/…"),
        ("kms_key_arn", KEY.replace("key/k", "key/"), "is not the ARN of kms key/…"),
        ("kms_key_arn", KEY.replace("111122223333", "1"), "is not an ARN"),
        ("former_kms_key_arns", ["my-key"], "'my-key' is not an ARN (arn:aws:kms:…:key/…)"),
        ("permissions_boundary_arn", KEY, "is not the ARN of iam policy/…"),
    ],
)
def test_what_is_no_arn_is_refused(spec: Any, field: str, value: Any, reason: str) -> None:
    (message,) = refused(spec, **{field: value}).values()
    assert reason in message


@pytest.mark.parametrize(
    ("make", "room"),
    [
        (lambda name, more: AwsStore(name, more), 47),
        (lambda name, more: AwsInterruptionEvents(name, more), 43),
        (lambda name, more: AwsIdentity(name, {**more, "control_arn": "c", "data_arn": "d", "queue_arn": "q"}), 46),
    ],
    ids=["buckets", "rules", "roles"],
)
def test_a_name_that_makes_a_resources_name_too_long_is_refused(declare: Any, make: Any, room: int) -> None:
    def program(name: str) -> Any:
        return declare(lambda: {"x": make(name, {"cluster": "train", "tags": TAGS}).urn})

    program("n" * room)
    with pytest.raises(pulumi.InputPropertiesError, match=f"name: 'n+…?'? has {room + 1} characters.*room for {room}"):
        program("n" * (room + 1))
