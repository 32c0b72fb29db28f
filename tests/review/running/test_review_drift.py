"""A refresh that is refused: the resource and the refused call, in the terminal and in a separate issue."""

import json
from typing import Any

import pytest
from desk import Desk
from forge_double import Double

BUDGET = "urn:pulumi:dev::everspot::everspot:index:Guard$aws:budgets/budget:Budget::everspot-dev-budget"
STACK = "urn:pulumi:dev::everspot::pulumi:pulumi:Stack::everspot-dev"
CALL = (
    "reading AWS Budgets Budget (123456789012:everspot-dev): operation error Budgets: DescribeBudget, https response "
    "error StatusCode: 400, AccessDeniedException: User: arn:aws:sts::123456789012:assumed-role/drift/ci is not "
    "authorized to perform: budgets:ViewBudget"
)
REFUSED = f"Preview failed: refreshing {BUDGET}: 1 error occurred:\n\t* {CALL}\n\n"
PROGRESS = "".join(f" ~  aws:ec2:Subnet everspot-dev-{n} refreshing ({n}s)\n" for n in range(200))
TOLD = f"Refreshing (dev):\n{PROGRESS}Diagnostics:\n  aws:budgets:Budget (everspot-dev-budget):\n    error: {REFUSED}"
"""The progress lines after it are longer than the kept part of the engine's output."""


def diagnostic(text: str, urn: str = "", severity: str = "error", **more: Any) -> dict[str, Any]:
    return {"diagnosticEvent": {"prefix": f"{severity}: ", "message": text, "severity": severity, "urn": urn, **more}}


def refused(desk: Desk, *more: dict[str, Any], stderr: str = TOLD + PROGRESS) -> None:
    """Two applied environments; a refresh of dev is refused."""
    (desk.engine / "stacks.json").write_text(json.dumps([{"name": n, "resourceCount": 3} for n in ("dev", "prod")]))
    (desk.engine / "state.dev.json").write_text(json.dumps({"deployment": {"resources": []}}))
    (desk.engine / "state.prod.json").write_text(json.dumps({"deployment": {"resources": []}}))
    desk.answers("refresh", "dev", [*more], code=255, stderr=stderr)
    desk.answers("refresh", "prod", [])


EVENTS = (
    diagnostic("using pulumi-resource-aws from $PATH at /x\n", severity="warning"),
    diagnostic("resource tried it again", BUDGET, ephemeral=True),
    diagnostic(REFUSED, BUDGET),
    diagnostic("preview failed", STACK),
)


def test_a_refused_refresh_names_the_resource_and_the_call_and_the_next_environment_is_looked_at(desk: Desk) -> None:
    refused(desk, *EVENTS)
    done = desk.run("drift", "dev", "prod")
    assert done.returncode == 4, done.stderr
    assert f"aws:budgets/budget:Budget everspot-dev-budget: 1 error occurred: * {CALL}" in done.stdout
    assert "dev cannot be looked at" in done.stdout and "prod: as it was left" in done.stdout
    assert not [text for text in ("refreshing", "preview failed", "tried it again", "$PATH") if text in done.stdout]
    environments = json.loads(desk.run("drift", "--json").stdout)["environments"]
    assert [(e["environment"], e["drifted"]) for e in environments] == [("dev", None), ("prod", False)]
    assert CALL in environments[0]["not_looked_at"][0]


@pytest.mark.parametrize(
    ("stderr", "shown", "not_shown"),
    [
        (TOLD, "budgets:ViewBudget", "everspot-dev-199 refreshing"),
        ("error: could not get cloud url: no backend", "no backend", "None"),
        ("", "exit code 255", "None"),
    ],
    ids=["diagnostics", "nothing was begun", "no word"],
)
def test_without_an_event_that_explains_it_the_engine_s_own_diagnostics_are_shown(
    desk: Desk, stderr: str, shown: str, not_shown: str
) -> None:
    refused(desk, stderr=stderr)
    done = desk.run("drift", "dev")
    assert (done.returncode, shown in done.stdout, not_shown in done.stdout) == (4, True, False)


def test_an_issue_says_it_until_the_refresh_works_and_what_had_drifted_stays(desk: Desk, hub: Double) -> None:
    refused(desk, *EVENTS)
    deleted = {"op": "delete", "urn": BUDGET.replace("Budget::", "Budget::other-"), "type": "aws:budgets/budget:Budget"}
    desk.answers("refresh", "dev", [{"resOutputsEvent": {"metadata": deleted}}], code=7)
    assert desk.run("drift", "dev", "--issue").returncode == 7
    desk.answers("refresh", "dev", [*EVENTS], code=255, stderr=PROGRESS)
    assert [desk.run("drift", "dev", "--issue").returncode for _ in range(2)] == [4, 4]
    assert [(i["title"], i["state"]) for i in hub.issues] == [
        ("dev has drifted", "open"),
        ("dev cannot be looked at for drift", "open"),
    ]
    assert "budgets:ViewBudget" in hub.issues[1]["body"] and "other-" in hub.issues[0]["body"]
    desk.answers("refresh", "dev", [])
    assert desk.run("drift", "dev", "--issue").returncode == 0
    assert [i["state"] for i in hub.issues] == ["closed", "closed"]


def test_no_secret_and_no_markup_of_a_refusal_is_shown(desk: Desk, hub: Double) -> None:
    secret = f"ghp_{'a1B2' * 9}"
    refused(desk, diagnostic(f"Preview failed: with token={secret} @acme/owners ```", BUDGET))
    done = desk.run("drift", "dev", "--issue")
    (issue,) = hub.issues
    assert secret not in done.stdout + done.stderr + issue["body"]
    assert "```\n" not in issue["body"].replace("'''", "```").partition("`")[0]
    assert f"`{'aws:budgets/budget:Budget everspot-dev-budget: with token=[secret]'}" in issue["body"]
