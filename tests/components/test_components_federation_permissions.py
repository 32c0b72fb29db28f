"""The permissions of a cluster's scheduler in its peer's buckets."""

from typing import Any

import pytest
from everspot_core.jobs.visit_records import visit_prefix
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, decide
from everspot_local.gcp.iam.conditions import is_true
from federated_pair import AWS, GOOGLE, NEAR, ON_AWS, ON_GOOGLE, ROLE, Pair, statements

CONTROL, DATA = "arn:everspot-aws-store-control", "arn:everspot-aws-store-data"
MINE, THEIRS = (f"{visit_prefix(home)}{'5' * 16}-v1" for home in (GOOGLE, NEAR))
"""A visit of the peer, and one of another peer."""
MAY = [
    ("s3:GetObject", f"{CONTROL}/cluster.json", True),
    ("s3:GetObject", f"{CONTROL}/pools.json", True),
    *[("s3:GetObject", f"{CONTROL}/{place}/{MINE}.json", True) for place in ("visits", "records", "heads")],
    ("s3:GetObject", f"{CONTROL}/events/{MINE}/1.json", True),
    ("s3:GetObject", f"{CONTROL}/archive/2026-01/{MINE}.json", True),
    ("s3:GetObject", f"{CONTROL}/archive/2026-01/train.json", False),
    *[("s3:GetObject", f"{CONTROL}/jobs/{job}.json", False) for job in ("train", MINE)],
    ("s3:GetObject", f"{CONTROL}/records/train-v1.json", False),
    ("s3:GetObject", f"{CONTROL}/ledger/launches/i-1.json", False),
    *[("s3:PutObject", f"{CONTROL}/{place}/{MINE}.json", True) for place in ("visits", "heads", "cancels")],
    *[
        ("s3:PutObject", f"{CONTROL}/{place}/{other}.json", False)
        for place in ("visits", "heads", "cancels")
        for other in ("train", "train-v1", "visit-0-v1", THEIRS)
    ],
    ("s3:PutObject", f"{CONTROL}/jobs/{MINE}.json", False),
    ("s3:PutObject", f"{CONTROL}/records/{MINE}.json", False),
    ("s3:PutObject", f"{CONTROL}/cluster.json", False),
    ("s3:DeleteObject", f"{CONTROL}/visits/{MINE}.json", True),
    ("s3:DeleteObject", f"{CONTROL}/visits/{THEIRS}.json", False),
    ("s3:DeleteObject", f"{CONTROL}/heads/{MINE}.json", False),
    ("s3:PutObject", f"{DATA}/jobs/{MINE}/checkpoints/1", True),
    ("s3:GetObject", f"{DATA}/jobs/{MINE}/outputs/1", True),
    *[
        (f"s3:{verb}Object", f"{DATA}/jobs/{job}/checkpoints/1", False)
        for verb in ("Get", "Put")
        for job in ("train", "train-v1", THEIRS)
    ],
    ("s3:PutObject", f"{DATA}/code/abc", True),
    ("s3:DeleteObject", f"{DATA}/code/abc", False),
    ("s3:GetObject", f"{DATA}/agents/i-1", False),
]


@pytest.fixture(scope="module")
def policy_cache() -> dict[str, Any]:
    return {}


@pytest.mark.parametrize(("action", "resource", "allowed"), MAY)
def test_a_visitor_on_aws_may_this_and_no_more(
    pair: Pair, policy_cache: dict[str, Any], action: str, resource: str, allowed: bool
) -> None:
    if not policy_cache:  # declared once
        policy_cache["policy"] = statements(pair.aws(ON_GOOGLE)[0], f"{AWS}-peer-{GOOGLE}-permissions")
    assert (decide(policy_cache["policy"], Call(action, resource)) is PolicyDecision.ALLOW) is allowed


def test_a_visitor_on_google_may_this_and_no_more(pair: Pair) -> None:
    google, _ = pair.google(ON_AWS)
    control, data = f"{GOOGLE}-store-control", f"{GOOGLE}-store-data"
    roles = {
        f"projects/everspot-local/roles/{args.name}": args.inputs["permissions"]
        for args in google.of_type("gcp:projects/iAMCustomRole:IAMCustomRole")
    }
    email = f"{google.inputs(f'{GOOGLE}-peer-{AWS}')['accountId']}@everspot-local.iam.gserviceaccount.com"
    own = [
        a.inputs
        for a in google.resources
        if a.typ.endswith("IAMMember") and a.inputs["member"] == f"serviceAccount:{email}"
    ]
    assert own and all("bucket" in binding and "condition" in binding for binding in own)

    def may(permission: str, bucket: str, key: str) -> bool:
        name = f"projects/_/buckets/{bucket}/objects/{key}" if key else f"projects/_/buckets/{bucket}"
        return any(
            b["bucket"] == bucket
            and permission in roles[b["role"]]
            and is_true(b["condition"]["expression"], {"resource.name": name})
            for b in own
        )

    own_visit, other_visit = (f"{visit_prefix(home)}{'5' * 16}-v1" for home in (AWS, NEAR))
    read, write, delete = "storage.objects.get", "storage.objects.create", "storage.objects.delete"
    published = ("cluster.json", "pools.json")
    of_visits = ("visits/", "records/", "heads/", "events/", "cancels/")
    assert all(may(read, control, key) for key in published)
    assert all(may(read, control, f"{place}{own_visit}.json") for place in (*of_visits, "archive/2026-01/"))
    assert may("storage.objects.list", control, "") and may("storage.objects.list", data, "")
    assert all(may(write, control, f"{place}{own_visit}.json") for place in ("visits/", "heads/", "cancels/"))
    assert not may(read, control, f"jobs/{own_visit}.json")
    assert not any(may(write, control, k) for k in (f"jobs/{own_visit}.json", f"records/{own_visit}.json", *published))
    for other in (other_visit, "train", "train-v1", "visit-"):
        keys = [f"{place}{other}.json" for place in (*of_visits, "jobs/", "archive/2026-01/")]
        assert not any(may(verb, control, key) for verb in (read, write, delete) for key in keys), other
        assert not any(may(verb, data, f"jobs/{other}/part") for verb in (read, write, delete)), other
    assert all(may(write, data, k) for k in (f"jobs/{own_visit}/part", "code/x", "datasets/x", "wheels/x"))
    assert may(delete, control, f"visits/{own_visit}.json") and may(delete, data, "code/named/x/y")
    assert not any(may(delete, data, k) for k in ("code/x", "code/own/train/x", "datasets/x", "wheels/x"))
    assert not any(may(p, data, "agents/i-1") for p in (read, write))


def test_a_home_may_carry_jobs_out_of_its_own_buckets_and_without_peers_it_may_not(pair: Pair) -> None:
    aws, _ = pair.aws(ON_GOOGLE)
    own = statements(aws, f"{AWS}-federation")
    for action, resource, allowed in (
        ("s3:GetObject", f"{DATA}/jobs/train/checkpoints/1", True),
        ("s3:PutObject", f"{DATA}/jobs/train/outputs/1", True),
        ("s3:PutObject", f"{DATA}/code/x", False),
        ("s3:PutObject", f"{CONTROL}/heads/train.json", True),
        ("s3:PutObject", f"{CONTROL}/visits/train-v1.json", True),
        ("s3:PutObject", f"{CONTROL}/cluster.json", False),
        ("sts:AssumeRole", f"{ROLE}", False),
    ):
        assert (decide(own, Call(action, resource)) is PolicyDecision.ALLOW) is allowed, resource
    alone, _ = pair.aws()
    assert not [args.name for args in alone.resources if "peer" in args.name or "federation" in args.name]
    assert not [args.name for args in pair.google()[0].resources if "peer" in args.name or "federation" in args.name]
