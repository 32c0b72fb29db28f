"""An exception without a finding is reported, and never fails a preview."""

from datetime import date

import pytest
from everspot_policy.analyzer import Analyzer
from everspot_policy.settings import read
from google.protobuf import struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as pb

BUCKET = "aws:s3/bucket:Bucket"
URN = f"urn:pulumi:prod::p::{BUCKET}::mine"


def unused_messages(rule: str, resource: str, until: str = "2026-06-30", environments: str = "[]") -> list[str]:
    """Return the pack's messages about a stack with an untagged bucket, without those about the bucket itself."""
    text = f"{{rule: {rule}, resource: {resource}, reason: It is so., until: {until}, environments: {environments}}}"
    levels = "aws-bucket-has-policy: off, aws-no-nat: off"
    settings = read(f'environments: {{"*": {{levels: {{{levels}}}}}}}\nexceptions: [{text}]')
    pack = Analyzer(settings, "1.2.3", lambda: date(2026, 6, 30))
    pack.ConfigureStack(pb.AnalyzerStackConfigureRequest(stack="prod"), None)
    bucket = pb.AnalyzeRequest(type=BUCKET, name="mine", urn=URN, properties=struct_pb2.Struct())
    pack.Analyze(bucket, None)
    listed = [
        pb.AnalyzerResource(type=BUCKET, name="mine", urn=URN),
        pb.AnalyzerResource(type="a:b:C", name="all-of-it"),
    ]
    diagnostics = pack.AnalyzeStack(pb.AnalyzeStackRequest(resources=listed), None).diagnostics
    assert all(
        each.enforcementLevel == pb.ADVISORY and each.policyName == rule and not each.urn for each in diagnostics
    )
    return [each.message.split("\n", 1)[1] for each in diagnostics]


@pytest.mark.parametrize(
    ("rule", "resource", "lacking"),
    [
        ("aws-tags", "mines", "no resource of this stack has that name (did you mean mine?)."),
        ("aws-tags", "all-of-it", "the rule is not about resources of this type."),
        ("one-team", "yours", "no resource of this stack has that name."),
        ("cost-within-budget", "all-of-it", "`resource` has to be the stack's name, prod."),
        ("on-demand-share", "mine", "`resource` has to be the stack's name, prod."),
    ],
)
def test_an_exception_that_meets_nothing_is_told_with_what_it_lacks(rule: str, resource: str, lacking: str) -> None:
    (message,) = unused_messages(rule, resource)
    assert (
        message.startswith(f"covers nothing: the exception for {resource}, until 2026-06-30: ") and lacking in message
    )


@pytest.mark.parametrize(
    ("rule", "resource"),
    [
        ("aws-tags", "mine"),
        ("aws-tags", URN),
        ("one-team", "mine"),
        ("cost-within-budget", "prod"),
        ("aws-no-nat", "x"),
    ],
)
def test_an_exception_that_applies_or_whose_rule_is_off_is_not_reported(rule: str, resource: str) -> None:
    assert unused_messages(rule, f'"{resource}"') == []


def test_one_for_another_environment_is_told_there_alone() -> None:
    assert unused_messages("aws-tags", "nobodys", environments="[dev]") == []
    assert len(unused_messages("aws-tags", "nobodys", environments="[dev, prod]")) == 1


def test_one_that_ended_is_told_with_its_date_and_once() -> None:
    (message,) = unused_messages("aws-tags", "nobodys", "2026-06-29")
    assert message.startswith("covers nothing: the exception for nobodys ended on 2026-06-29. Take it out")
    assert unused_messages("aws-tags", "mine", "2026-06-29") == [], (
        "what the bucket breaks is told with the end of its exception"
    )
