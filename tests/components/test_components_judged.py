"""The repository's own stacks with their own settings break no rule of any level."""

from collections.abc import Callable

import pytest
from everspot_policy.rule import Level, Subject, problems
from everspot_policy.rules import RULES
from everspot_policy.settings import read
from everspot_policy.stack import STACK_RULES
from stack_helpers import NAMES, STACKS


@pytest.mark.parametrize("stack", NAMES)
def test_a_stack_breaks_no_rule(declared: Callable[[str], list[Subject]], stack: str) -> None:
    settings, subjects = read((STACKS / "rules.yaml").read_text()), declared(stack)
    assert any(subject.type.startswith(("aws:", "gcp:")) for subject in subjects)
    violations = [
        (rule.id, subject.name, str(problem))
        for rule in RULES.values()
        for subject in subjects
        for problem in problems(rule, subject)
        if settings.level(rule.id, stack) is not Level.OFF
    ]
    violations += [
        (rule.id, urn, str(problem))
        for rule in STACK_RULES.values()
        for urn, problem in rule.check(subjects, settings.bounds(stack))
    ]
    assert violations == []


def test_what_they_declare_is_looked_at(declared: Callable[[str], list[Subject]]) -> None:
    subjects = [*declared("aws-prod"), *declared("gcp-prod")]
    looked = {rule.id for rule in RULES.values() if any(rule.concerns(subject.type) for subject in subjects)}
    assert len(looked) > len(RULES) / 2
    protected = {s.type.rpartition(":")[2] for s in subjects if s.protected}
    assert {"Fleet", "Bucket", "RegionInstanceGroupManager"} <= protected
