"""The rule that compares a month's cost with the budget gets the same figure that the comment shows."""

import json
from typing import Any

import pytest
from desk import Desk, step


def address() -> dict[str, Any]:
    """An event about one public address, which costs $3.65 a month."""
    event = step("create", "door", None, {"tags": {"Team": "a"}})
    kind = "aws:ec2/eip:Eip"
    text = json.dumps(event).replace("aws:sqs/queue:Queue", kind)
    return dict(json.loads(text))


def settings(desk: Desk, text: str) -> None:
    desk.write("rules.yaml", text)
    desk.env["EVERSPOT_POLICY_SETTINGS"] = str(desk.root / "rules.yaml")


def database(op: str) -> dict[str, Any]:
    """An event about a resource that has no price here."""
    inputs = {"tags": {"Team": "a"}}
    text = json.dumps(step(op, "data", None if op == "create" else inputs, inputs))
    return dict(json.loads(text.replace("aws:sqs/queue:Queue", "aws:rds/instance:Instance")))


def previewed(desk: Desk, *packs: str, more: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """The report on a preview of dev that would make an address, and `more`."""
    desk.answers("preview", "dev", [address(), *more])
    options = [option for pack in packs for option in ("--policy", pack)]
    done = desk.run("preview", "dev", "--json", "--out", str(desk.engine / "reports"), *options)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    return dict(report)


def test_a_budget_that_the_estimate_passes_blocks_with_the_comment_s_own_figure(desk: Desk) -> None:
    settings(desk, "environments: {dev: {budgetUsdPerMonth: 3}}")
    desk.write("other/PulumiPolicy.yaml", "runtime: python\n")
    report = previewed(desk, "everspot-policy", str(desk.root / "other"))
    high = report["estimate"]["after"]["total"]["high"]
    (rule,) = report["rules"]
    assert high == pytest.approx(3.65)
    assert (rule["rule"], rule["level"], rule["severity"]) == ("cost-within-budget", "mandatory", "high")
    assert rule["message"].startswith(f"may cost up to ${high:,.2f} a month; its budget is $3.00.")
    done = desk.run("comment", str(desk.engine / "reports"), "--show")
    assert (done.returncode, "cost-within-budget" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("text", "packs"),
    [
        ("environments: {dev: {budgetUsdPerMonth: 4}}", ["everspot-policy"]),
        ("environments: {prod: {budgetUsdPerMonth: 3}}", ["everspot-policy"]),
        ("environments: {dev: {budgetUsdPerMonth: 3, levels: {cost-within-budget: off}}}", ["everspot-policy"]),
        ("environments: {dev: {budgetUsdPerMonth: 3}}", []),
    ],
    ids=["kept", "another's", "off", "no pack"],
)
def test_nothing_is_said_where_no_budget_is_passed(desk: Desk, text: str, packs: list[str]) -> None:
    settings(desk, text)
    assert previewed(desk, *packs)["rules"] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("environments: {dev: {budgetUsdPerMonth: 3}}", 1),
        ("environments: {'*': {budgetUsdPerMonth: 3}}", 1),
        ("environments: {dev: {}}", 0),
    ],
)
def test_a_budget_that_no_pack_judges_is_told_so(desk: Desk, text: str, expected: int) -> None:
    settings(desk, text)
    desk.write("other/PulumiPolicy.yaml", "runtime: python\n")
    report = previewed(desk, str(desk.root / "other"))
    words = [diagnostic["text"] for diagnostic in report["diagnostics"]]
    assert sum("not judged against the budget" in each for each in words) == expected
    assert report["rules"] == []


NOT_JUDGED = "This change is not judged against the budget: it adds data, whose price is not known."
JUDGED = {"policyAnalyzeStackSummaryEvent": {"passed": ["cost-within-budget", "one-team"]}}
LACKS = "What the budget is compared with lacks the cost of data: no price is known."


@pytest.mark.parametrize(
    ("budget", "op", "text", "passed", "broken"),
    [
        pytest.param(4, "create", NOT_JUDGED, ["one-team"], [], id="added"),
        pytest.param(4, "same", LACKS, ["cost-within-budget", "one-team"], [], id="there-before"),
        pytest.param(3, "create", LACKS, ["one-team"], ["cost-within-budget"], id="over-the-budget-without-it"),
    ],
)
def test_a_budget_is_not_kept_by_a_figure_that_lacks_what_the_change_adds(
    desk: Desk, budget: int, op: str, text: str, passed: list[str], broken: list[str]
) -> None:
    settings(desk, f"environments: {{dev: {{budgetUsdPerMonth: {budget}}}}}")
    report = previewed(desk, "everspot-policy", more=(database(op), JUDGED))
    assert [diagnostic["text"] for diagnostic in report["diagnostics"]] == [text]
    assert (report["passed"], [rule["rule"] for rule in report["rules"]]) == (passed, broken)
    assert previewed(desk, "everspot-policy")["diagnostics"] == []


def test_the_settings_may_be_named_from_where_one_is(desk: Desk) -> None:
    desk.write("rules.yaml", "environments: {dev: {budgetUsdPerMonth: 3}}")
    desk.env["EVERSPOT_POLICY_SETTINGS"] = "rules.yaml"
    assert [rule["rule"] for rule in previewed(desk, "everspot-policy")["rules"]] == ["cost-within-budget"]


def test_an_exception_excuses_it_until_its_day_and_says_why(desk: Desk) -> None:
    reason = "The whole team trains for the deadline."
    exception = f"exceptions: [{{rule: cost-within-budget, resource: dev, reason: {reason}, until: 2099-01-01}}]"
    settings(desk, f"environments: {{dev: {{budgetUsdPerMonth: 3}}}}\n{exception}")
    (rule,) = previewed(desk, "everspot-policy")["rules"]
    assert (rule["level"], rule["excepted"]["until"], rule["excepted"]["reason"]) == ("advisory", "2099-01-01", reason)


def test_an_update_over_the_budget_is_refused(desk: Desk) -> None:
    settings(desk, "environments: {dev: {budgetUsdPerMonth: 4}}")
    digest = previewed(desk, "everspot-policy")["digest"]
    settings(desk, "environments: {dev: {budgetUsdPerMonth: 3}}")
    done = desk.run("apply", "dev", "--reviewed", digest, "--policy", "everspot-policy", GITHUB_TOKEN="")
    assert (done.returncode, "up" in desk.verbs()) == (1, False)
    assert "rule broken: cost-within-budget" in done.stderr


def test_settings_that_are_wrong_are_told_and_nothing_is_judged(desk: Desk) -> None:
    settings(desk, "environments: {dev: {budgetUsdPerMonth: free}}")
    desk.answers("preview", "dev", [address()])
    done = desk.run("preview", "dev", "--policy", "everspot-policy", "--out", str(desk.engine / "reports"))
    assert done.returncode == 4 and "does not judge the cost" in done.stderr and "Traceback" not in done.stderr
