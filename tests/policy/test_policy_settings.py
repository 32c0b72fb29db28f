"""Levels by environment, bounds, and exceptions with an end date; one error reports every mistake."""

from datetime import date, timedelta

import pytest
from everspot_core.validation.problems import BadInputs
from everspot_policy.judgement import Judgement, weigh
from everspot_policy.rule import Level, Subject, problems
from everspot_policy.rules import RULES
from everspot_policy.settings import PolicySettings, read

TEXT = """
environments:
  "*":
    teams: [vision, speech]
    budgetUsdPerMonth: 100
    levels: {aws-no-nat: mandatory}
  dev:
    budgetUsdPerMonth: 40.5
    onDemandShare: 0.75
    levels: {aws-logs-kept: off, aws-no-nat: off}
exceptions:
  - rule: aws-logs-kept
    resource: audit
    environments: [prod]
    reason: The law wants them for ever.
    until: 2026-12-31
"""
LAST = date(2026, 12, 31)
AUDIT = Subject(
    "aws:cloudwatch/logGroup:LogGroup", {}, name="audit", environment="prod", urn="urn:pulumi:prod::p::t::audit"
)


def judgement(subject: Subject, settings: PolicySettings, today: date) -> Judgement:
    rule = RULES["aws-logs-kept"]
    level = settings.level(rule.id, subject.environment)
    return weigh(rule, problems(rule, subject), subject, level, settings, today)


def test_an_environments_word_goes_before_everybodys_and_that_before_the_rules() -> None:
    settings = read(TEXT)
    levels = {
        (rule, name): settings.level(rule, name) for rule in ("aws-no-nat", "aws-logs-kept") for name in ("dev", "prod")
    }
    assert levels == {
        ("aws-no-nat", "dev"): Level.OFF, ("aws-no-nat", "prod"): Level.MANDATORY,
        ("aws-logs-kept", "dev"): Level.OFF, ("aws-logs-kept", "prod"): Level.ADVISORY,
    }  # fmt: skip
    assert (settings.bounds("dev").budget, settings.bounds("prod").budget) == (40.5, 100)
    assert (float(settings.bounds("dev").on_demand_share), float(settings.bounds("prod").on_demand_share)) == (
        0.75,
        0.5,
    )
    assert settings.bounds("dev", 7.0).teams == ("vision", "speech")
    assert PolicySettings().bounds("x").teams == ()


@pytest.mark.parametrize("resource", ["audit", AUDIT.urn])
def test_an_exception_makes_a_problem_advisory_until_its_last_day(resource: str) -> None:
    settings = read(
        TEXT.replace("resource: audit", f"resource: {resource}").replace(
            "levels: {aws-no-nat: m", "levels: {aws-logs-kept: mandatory, aws-no-nat: m"
        )
    )
    excepted = judgement(AUDIT, settings, LAST)
    assert excepted.level is Level.ADVISORY
    assert str(excepted).endswith("Excepted until 2026-12-31: The law wants them for ever.")
    over = judgement(AUDIT, settings, LAST + timedelta(days=1))
    assert over.level is Level.MANDATORY
    assert "Its exception ended on 2026-12-31: The law wants them for ever. Set retentionInDays" in str(over)


def test_an_exception_covers_its_resource_in_its_environments_only() -> None:
    settings = read(TEXT)
    for other in (
        Subject(AUDIT.type, {}, name="audits", environment="prod"),
        Subject(AUDIT.type, {}, name="audit", environment="aws-prod"),
    ):
        verdict = judgement(other, settings, LAST)
        assert verdict.excepted is None and verdict.expired is None
    assert settings.exception("aws-tags", AUDIT) is None


@pytest.mark.parametrize("text", ["", "{}", "# nothing\n"])
def test_no_settings_are_the_rules_own(text: str) -> None:
    assert read(text) == PolicySettings()


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(BadInputs) as refused:
        read(
            """
            environment: {}
            environments:
              dev: {levels: {aws-no-natt: off, aws-tags: sometimes}, budgetUsdPerMonth: -1, onDemandShare: 2, teams: 3}
              prod: {budgetUsdPerMonth: .nan, teams: [yes]}
            exceptions:
              - {rule: gcp-label, resource: "", reason: short, until: some day}
              - {}
              - {rule: aws-tags, resource: audit, reason: long enough, until: 2026-13-01}
            """
        )
    assert [problem.path for problem in refused.value.problems] == [
        "line 5, environments.prod.teams[0]",
        "environments.dev.levels.aws-tags", "environments.dev.budgetUsdPerMonth", "environments.dev.teams",
        "environments.dev.onDemandShare", "environments.prod.budgetUsdPerMonth", "environments.prod.teams[0]",
        "exceptions[0].resource", "exceptions[0].reason", "exceptions[0].until",
        "exceptions[1].rule", "exceptions[1].resource", "exceptions[1].reason", "exceptions[1].until",
        "exceptions[2].until",
        "environment", "environments.dev.levels.aws-no-natt", "exceptions[0].rule",
    ]  # fmt: skip
    message = str(refused.value)
    assert "did you mean aws-no-nat or gcp-no-nat?" in message and "did you mean gcp-labels?" in message
    assert "'mandatory', 'advisory' or 'off'" in message


@pytest.mark.parametrize(
    "text", ["[1]", "a: b: c", "environments: 3", "exceptions: {}", "3", "x" * (1 << 20 | 1), "&a [*a]"]
)
def test_what_is_no_file_of_settings_is_refused(text: str) -> None:
    with pytest.raises(BadInputs):
        read(text)


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("environments: {dev: {teams: ['']}}", "environments.dev.teams[0]", "is empty"),
        ("environments: {dev: {teams: ['  ']}}", "environments.dev.teams[0]", "is empty"),
        ("environments: {dev: {teams: ['ml ']}}", "environments.dev.teams[0]", "begins or ends with a space"),
        ('environments: {dev: {teams: ["a\\eb"]}}', "environments.dev.teams[0]", "cannot be printed"),
        ("environments: {dev: {teams: [ml, ml]}}", "environments.dev.teams", "'ml': listed twice"),
        ("environments: {dev: {teams: [true]}}", "environments.dev.teams[0]", "valid string"),
        ("environments: {dev: {budgetUsdPerMonth: true}}", "environments.dev.budgetUsdPerMonth", "not True"),
        ("environments: {dev: {budgetUsdPerMonth: '100'}}", "environments.dev.budgetUsdPerMonth", "not '100'"),
        ("environments: {dev: {budgetUsdPerMonth: 1.0e-300}}", "environments.dev.budgetUsdPerMonth", "0.01"),
        ("environments: {dev: {budgetUsdPerMonth: 100000000000}}", "environments.dev.budgetUsdPerMonth", "less than"),
        ("environments: {dev: {onDemandShare: false}}", "environments.dev.onDemandShare", "not False"),
        ('environments: {"d\\u202ev": {}}', "environments.d\u202ev.[key]", "cannot be printed"),
        *(
            (f"exceptions: [{{rule: r, resource: a, reason: It is so., until: {day}}}]", "exceptions[0].until", reason)
            for day, reason in (
                ("0001-01-01", "the years 2020 to 2100"), ("9999-12-31", "the years 2020 to 2100"),
                ("2027-02-30", "is no day of the calendar"), ("1800000000", "has to be a day such as"),
                ("2027-06-30T12:00:00Z", "has to be a day such as"), ("true", "has to be a day such as"),
            )
        ),
        (
            f"exceptions: [{{rule: aws-tags, resource: {'x' * 2000}, reason: long enough, until: 2027-01-01}}]",
            "exceptions[0].resource", "has 2,000 characters; 1,024 are allowed",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_its_place(text: str, path: str, reason: str) -> None:
    with pytest.raises(BadInputs) as refused:
        read(text)
    reasons = {problem.path: problem.reason for problem in refused.value.problems}
    assert reason in reasons[path], reasons
    assert str(refused.value).replace("\n", "").isprintable()
