"""Each rule's table of good and bad inputs, and properties for arbitrary inputs."""

import json
from collections import defaultdict

import cases_aws
import cases_everywhere
import cases_gcp
import cases_kubernetes
import pytest
from cases import Case
from everspot_clouds.plain_credentials import KINDS
from everspot_core.cluster.declared import UNKNOWN
from everspot_core.validation.problems import Problem
from everspot_policy.rule import Rule, Subject, judge, problems
from everspot_policy.rules import RULES
from hypothesis import given
from hypothesis import strategies as st

CASES = [*cases_aws.CASES, *cases_gcp.CASES, *cases_kubernetes.CASES, *cases_everywhere.CASES]
BY_RULE = defaultdict(list)
for case in CASES:
    BY_RULE[case.rule].append(case)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_finds_what_is_bad_and_nothing_else(rule: Rule) -> None:
    for case in BY_RULE[rule.id]:
        violations = judge(rule, case.type, case.inputs, environment=case.environment, protected=case.protected)
        assert tuple(problem.path for problem in violations) == case.paths, (case, violations)
    outcomes = {bool(case.paths) for case in BY_RULE[rule.id]}
    assert outcomes == {True, False}


def test_every_case_is_about_a_rule() -> None:
    assert set(BY_RULE) == set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_says_what_to_do(rule: Rule) -> None:
    assert rule.title and not rule.title.endswith(".") and rule.remedy.endswith(".")
    assert rule.id == rule.id.lower() and rule.id.partition("-")[0] in ("aws", "gcp", "kubernetes", "no")
    assert all(pattern.startswith(f"{rule.id.partition('-')[0]}:") or rule.types == ("*",) for pattern in rule.types)


WORDS = sorted(
    {text for case in CASES for text in json.dumps(case.inputs).split('"') if 1 < len(text) < 60 and "\\" not in text}
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*WORDS, UNKNOWN, ""])
ANY = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def bent(draw: st.DrawFn) -> tuple[str, object]:
    """A case's inputs, with anything in place of one part of them."""
    case = draw(st.sampled_from(CASES))
    inputs = json.loads(json.dumps(case.inputs))
    here = inputs
    while isinstance(here, dict | list) and here:
        step = draw(st.sampled_from(sorted(here) if isinstance(here, dict) else range(len(here))))
        if not isinstance(here[step], dict | list) or draw(st.booleans()):
            here[step] = draw(ANY)
            break
        here = here[step]
    return case.type, inputs


@given(bent(), st.sampled_from([True, False, None]))
def test_no_input_makes_a_rule_fail(bent: tuple[str, dict[str, object]], protected: bool | None) -> None:
    type_, inputs = bent
    for rule in RULES.values():
        violations = judge(rule, type_, inputs, environment="prod", protected=protected)
        assert all(isinstance(problem, Problem) and problem.reason for problem in violations)


@given(
    st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), ANY, max_size=6),
    st.sampled_from(sorted({c.type for c in CASES})),
)
def test_no_inputs_at_all_make_a_rule_fail(inputs: dict[str, object], type_: str) -> None:
    for rule in RULES.values():
        judge(rule, type_, inputs)


@pytest.mark.parametrize(
    "case", [c for c in CASES if ("secrets" in c.rule or "credentials" in c.rule) and c.paths], ids=lambda c: c.name
)
def test_a_credential_is_named_by_its_kind_and_never_shown(case: Case) -> None:
    violations = judge(RULES[case.rule], case.type, case.inputs)
    assert {str(problem).partition("seems to hold ")[2] for problem in violations} <= set(KINDS)


def test_what_the_engine_marks_as_secret_is_not_plain() -> None:
    rule, inputs = RULES["no-plain-credentials"], {"secretString": "hunter2", "tags": {"Password": "hunter3"}}
    subject = Subject("aws:secretsmanager/secretVersion:SecretVersion", inputs, secrets=frozenset({"hunter2"}))
    assert [problem.path for problem in problems(rule, subject)] == ["tags.Password"]


def test_a_deep_document_is_none() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert judge(RULES["aws-no-star-permissions"], "aws:iam/policy:Policy", {"policy": deep}) == []
