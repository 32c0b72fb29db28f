"""Checkov's word on what the repository's stacks declare, and on the faults that the rules' tables plant.

Every finding in a stack is fixed, or listed with its reason in second_opinion.csv. A reason without a finding is an
error.
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from everspot_policy.rule import Subject
from everspot_policy.rules import RULES
from second_opinion import judged
from stack_helpers import NAMES

sys.path.append(str(Path(__file__).resolve().parents[1] / "policy"))

import cases_aws
import cases_gcp

REASONS = Path(__file__).with_name("second_opinion.csv")

# Rules that Checkov also checks, where Checkov finds none of the planted faults.
ALONE = {
    "aws-bucket-encrypted": "its check takes any declared encryption for one",
    "aws-bucket-versioned": "its check looks at buckets, and is content with any versioning that refers to one",
    "aws-default-group-empty": "its check looks at networks that have such a group, of which none is planted",
}

pytestmark = [pytest.mark.opinion, pytest.mark.timeout(900)]


def test_every_finding_is_mended_or_has_its_reason(declared: Callable[[str], list[Subject]], tmp_path: Path) -> None:
    by_stack = judged(tmp_path, {stack: declared(stack) for stack in NAMES})
    with REASONS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert all(len(row["reason"]) > 20 for row in rows)
    explained = {(row["check"], row["type"]) for row in rows}
    assert len(explained) == len(rows)
    kinds = {(each.check, each.type) for findings in by_stack.values() for each in findings}
    assert kinds == explained, {
        stack: sorted(f for f in findings if (f.check, f.type) not in explained) for stack, findings in by_stack.items()
    }


def test_two_opinions_agree_on_what_is_planted(tmp_path: Path) -> None:
    bad = [case for case in (*cases_aws.CASES, *cases_gcp.CASES) if case.paths and case.engine]
    planted = {
        cloud: [Subject(c.type, c.inputs, c.name) for c in bad if c.type.startswith(cloud)] for cloud in ("aws", "gcp")
    }
    by_stack = judged(tmp_path, planted)
    agreed = {
        case.rule
        for case in bad
        for findings in by_stack.values()
        for each in findings
        if each.name == case.name and each.check in RULES[case.rule].checkov
    }
    assert {rule.id for rule in RULES.values() if rule.checkov} - agreed == set(ALONE)
