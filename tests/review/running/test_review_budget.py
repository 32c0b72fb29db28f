"""The rule that holds a month's cost against the budget is told the very figure that the comment shows."""

import json
from typing import Any

import pytest
from desk import Desk, step


def address() -> dict[str, Any]:
    """An event about one public address, which costs $3.65 a month."""
    found = step("create", "door", None, {"tags": {"Team": "a"}})
    kind = "aws:ec2/eip:Eip"
    text = json.dumps(found).replace("aws:sqs/queue:Queue", kind)
    return dict(json.loads(text))


def settings(desk: Desk, text: str) -> None:
    desk.write("rules.yaml", text)
    desk.env["EVERSPOT_POLICY_SETTINGS"] = str(desk.root / "rules.yaml")


def previewed(desk: Desk, *packs: str) -> dict[str, Any]:
    """The report on a preview of dev that would make an address."""
    desk.answers("preview", "dev", [address()])
    options = [word for pack in packs for word in ("--policy", pack)]
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


def test_the_settings_may_be_named_from_where_one_is(desk: Desk) -> None:
    desk.write("rules.yaml", "environments: {dev: {budgetUsdPerMonth: 3}}")
    desk.env["EVERSPOT_POLICY_SETTINGS"] = "rules.yaml"
    assert [rule["rule"] for rule in previewed(desk, "everspot-policy")["rules"]] == ["cost-within-budget"]


def test_an_exception_excuses_it_until_its_day_and_says_why(desk: Desk) -> None:
    reason = "The whole team trains for the deadline."
    exception = f"exceptions: [{{rule: cost-within-budget, resource: dev, reason: {reason}, until: 2999-01-01}}]"
    settings(desk, f"environments: {{dev: {{budgetUsdPerMonth: 3}}}}\n{exception}")
    (rule,) = previewed(desk, "everspot-policy")["rules"]
    assert (rule["level"], rule["excepted"]["until"], rule["excepted"]["reason"]) == ("advisory", "2999-01-01", reason)


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
