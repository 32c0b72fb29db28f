"""Evaluation of policies by IAM's rules, as a table."""

import json
from typing import Any

import pytest
from everspot_local.aws.iam.policy_language import Call, PolicyDecision, UnknownCondition, decide, like

BUCKET = "arn:aws:s3:::control"


def allow(action: Any, resource: Any = "*", **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def verdict(*statements: dict[str, Any], **call: Any) -> PolicyDecision:
    call_fields = {"action": "s3:GetObject", "resource": f"{BUCKET}/records/a.json", **call}
    return decide([{"Version": "2012-10-17", "Statement": list(statements)}], Call(**call_fields))


def test_no_matching_statement_denies() -> None:
    assert verdict() is PolicyDecision.IMPLICIT
    assert verdict(allow("s3:PutObject")) is PolicyDecision.IMPLICIT
    assert verdict(allow("s3:GetObject", f"{BUCKET}/heads/*")) is PolicyDecision.IMPLICIT


def test_patterns_match_the_whole_and_actions_in_any_case() -> None:
    assert verdict(allow("S3:get*", [f"{BUCKET}/records/*"])) is PolicyDecision.ALLOW
    assert verdict(allow("s3:GetObject", f"{BUCKET}/records")) is PolicyDecision.IMPLICIT
    assert like("a?c*", "abcd")
    assert not like("[ab]", "a")


def test_a_denial_wins_whatever_the_order() -> None:
    deny = {"Effect": "Deny", "Action": "*", "Resource": f"{BUCKET}/records/*"}
    assert verdict(deny, allow("*")) is verdict(allow("*"), deny) is PolicyDecision.DENY
    assert verdict({"Effect": "Deny", "NotAction": "s3:GetObject", "Resource": "*"}, allow("*")) is PolicyDecision.ALLOW


@pytest.mark.parametrize(
    ("condition", "context", "satisfied"),
    [
        ({"StringEquals": {"s3:prefix": "jobs/"}}, {"s3:prefix": ("jobs/",)}, True),
        ({"StringEquals": {"s3:prefix": "jobs/"}}, {}, False),
        ({"StringLikeIfExists": {"s3:prefix": ["code/*", "jobs/*"]}}, {"s3:prefix": ("jobs/a",)}, True),
        ({"StringLikeIfExists": {"s3:prefix": "jobs/*"}}, {"s3:prefix": ("other/",)}, False),
        ({"StringLikeIfExists": {"s3:prefix": "jobs/*"}}, {}, True),
        ({"StringNotEquals": {"aws:requestedregion": "us-east-1"}}, {"aws:requestedregion": ("us-east-1",)}, False),
        ({"StringNotEquals": {"aws:requestedregion": "us-east-1"}}, {}, True),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:securetransport": ("true",)}, False),
        ({"Null": {"aws:requesttag/team": "true"}}, {}, True),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}}, {"aws:tagkeys": ("a", "c")}, False),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": ["a", "b"]}}, {"aws:tagkeys": ("a", "c")}, True),
        ({"ArnLike": {"aws:SourceArn": "arn:aws:*:rule/x*"}}, {"aws:sourcearn": ("arn:aws:r:1:rule/xy",)}, True),
    ],
)  # fmt: skip
def test_conditions(condition: Any, context: Any, satisfied: bool) -> None:
    expected = PolicyDecision.ALLOW if satisfied else PolicyDecision.IMPLICIT
    assert verdict(allow("*", Condition=condition), context=context) is expected


def test_a_condition_that_is_not_known_is_not_guessed() -> None:
    with pytest.raises(UnknownCondition, match="IpAddress"):
        verdict(allow("*", Condition={"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}))


def test_a_resource_policy_names_its_principal() -> None:
    statement = allow("sqs:SendMessage", "q", Principal={"Service": "events.amazonaws.com"})
    document = json.loads(json.dumps({"Statement": statement}))
    call = Call("sqs:SendMessage", "q")
    assert decide([document], call, principal="events.amazonaws.com") is PolicyDecision.ALLOW
    assert decide([document], call, principal="sns.amazonaws.com") is PolicyDecision.IMPLICIT
