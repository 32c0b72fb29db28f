"""Every rule finds its planted fault through the real engine: for each cloud, one preview of one program with all
faults.

The providers are the real ones behind the bridge, in a preview and without a cloud: they check the inputs, and the pack
sees them as they leave the check.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aws_values
import cases_aws
import cases_everywhere
import cases_gcp
import pytest
from cases import Case
from everspot_policy.rule import judge
from everspot_policy.rules import RULES
from everspot_policy.settings import KNOWN
from everspot_policy.stack import STACK_RULES

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".everspot" / "toolchain"
SECONDS = 420

# A resource of any type with any inputs, in camelCase as they are: as little of the SDK as there is.
PROGRAM = """
import json, pulumi
made = {}
for each in json.load(open("planted.json")):
    inputs = {k: pulumi.Output.secret(v) if k == "userData" else v for k, v in each["inputs"].items()}
    after = [made[name] for name in each["after"]]
    options = pulumi.ResourceOptions(protect=each["protected"], depends_on=after)
    made[each["name"]] = pulumi.CustomResource(each["type"], each["name"], inputs, options)
"""

PROVIDERS = {
    "aws": {
        "aws:region": "us-east-1", "aws:accessKey": "test", "aws:secretKey": "test",
        "aws:skipRequestingAccountId": "true",
        "aws:skipCredentialsValidation": "true", "aws:skipMetadataApiCheck": "true",
    },
    "gcp": {"gcp:project": "planted-1", "gcp:region": "europe-west4", "gcp:accessToken": "token"},
}  # fmt: skip
SETTINGS = """
environments:
  dev: {budgetUsdPerMonth: 100, teams: [vision]}
exceptions:
  - {rule: aws-no-access-keys, resource: aws-no-access-keys-accesskey, reason: Planted so., until: 2099-12-31}
  - {rule: gcp-no-account-keys, resource: gcp-no-account-keys-key, reason: Planted so., until: 2099-12-31}
"""

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


# The rules over a whole stack need a standing capacity of development that is on-demand.
STANDING = {
    "aws": [
        Case("standing", aws_values.FLEET, {
            **aws_values.fleet(terminateInstances=True, tags=aws_values.TAGS),
            "targetCapacitySpecification": {"defaultTargetCapacityType": "on-demand", "totalTargetCapacity": 99},
        }),
    ],
    "gcp": [
        Case("standing", cases_gcp.TEMPLATE, cases_gcp.SOUND),
        Case("standing", cases_gcp.GROUP, {
            "baseInstanceName": "i", "region": "europe-west4", "targetSize": 3, "versions": [{"instanceTemplate": "t"}],
            "instanceFlexibilityPolicy": {"instanceSelections": [{"name": "a", "machineTypes": ["e2-standard-2"]}]},
        }),
    ],
}  # fmt: skip


def planted(cases: Sequence[Case]) -> list[dict[str, Any]]:
    listed = [{"type": c.type, "name": c.name, "inputs": c.inputs, "protected": bool(c.protected)} for c in cases]
    return [
        {**each, "after": [listed[i - 1]["name"]] if each["type"] == cases_gcp.GROUP else []}
        for i, each in enumerate(listed)
    ]


def previewed(home: Path, cloud: str, resources: list[dict[str, Any]]) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code of a preview with the pack, the events, and what it said."""
    (home / "__main__.py").write_text(PROGRAM)
    (home / "planted.json").write_text(json.dumps(resources))
    (home / "Pulumi.yaml").write_text(
        f"name: planted\nruntime: {{name: python, options: {{virtualenv: {sys.prefix}}}}}\n"
    )
    (home / "Pulumi.dev.yaml").write_text(json.dumps({"config": PROVIDERS[cloud]}))
    (home / "settings.yaml").write_text(SETTINGS)
    (home / "config.json").write_text(json.dumps({"cost-within-budget": {"highUsdPerMonth": 100.01}}))
    (home / "state").mkdir()
    paths = [TOOLS / "bin", TOOLS / "plugins", Path(sys.executable).parent]
    env = {
        **os.environ,
        "PATH": os.pathsep.join([*map(str, paths), os.environ["PATH"]]),
        "PULUMI_HOME": str(home / "home"), "PULUMI_BACKEND_URL": f"file://{home / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "x", "PULUMI_SKIP_UPDATE_CHECK": "1", "PULUMI_DEBUG_COMMANDS": "true",
        "EVERSPOT_POLICY_SETTINGS": str(home / "settings.yaml"),
    }  # fmt: skip
    pack = Path(sys.executable).parent / "everspot-policy"
    preview = ["preview", "--policy-pack", str(pack), "--policy-pack-config", "config.json", "--event-log", "events"]
    for command in (["stack", "init", "dev"], [*preview, "--non-interactive", "--color=never"]):
        done = subprocess.run(
            ["pulumi", *command], cwd=home, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    log = home / "events"
    events = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return done.returncode, events, done.stdout + done.stderr


@pytest.mark.parametrize(("cloud", "cases"), [("aws", cases_aws.CASES), ("gcp", cases_gcp.CASES)])
def test_every_rule_fires_on_a_planted_fault(tmp_path: Path, cloud: str, cases: Sequence[Case]) -> None:
    everywhere = [case for case in cases_everywhere.CASES if case.type.startswith(cloud)]
    bad = [case for case in (*cases, *everywhere) if case.paths and case.engine]
    own = {rule for rule in RULES if rule.startswith((cloud, "no-"))}
    assert len({case.name for case in bad}) == len(bad)
    code, events, output = previewed(tmp_path, cloud, planted([*bad, *STANDING[cloud]]))
    judged = [event["policyEvent"] for event in events if "policyEvent" in event]
    violations = [event for event in judged if "covers nothing: " not in event["message"]]
    (idle,) = [
        event for event in judged if event not in violations
    ]  # the exception that is for the other cloud's planted key
    other = "gcp-no-account-keys" if cloud == "aws" else "aws-no-access-keys"
    assert (idle["policyName"], idle["enforcementLevel"]) == (other, "advisory"), idle
    by = {(event["resourceUrn"].rpartition("::")[2], event["policyName"]): event for event in violations}
    assert len(by) == len(violations), output  # one event for a resource and a rule
    expected = {
        (case.name, rule.id)
        for case in bad
        for rule in RULES.values()
        if judge(rule, case.type, case.inputs, environment="dev", protected=bool(case.protected))
    }
    assert {each for each in by if each[1] in RULES and not each[0].startswith("standing")} == expected, output
    # All of them, and none of the other cloud's; the ones over a stack, which have no name of a resource, too.
    assert {rule for _, rule in by} == own | {
        rule for rule in STACK_RULES if cloud == "aws" or not rule.startswith("aws-")
    }
    assert code == 1, code
    excepted = {
        event["policyName"] for event in violations if "Excepted until 2099-12-31: Planted so." in event["message"]
    }
    assert excepted == {"aws-no-access-keys" if cloud == "aws" else "gcp-no-account-keys"}
    for event in violations:
        level = "advisory" if event["policyName"] in excepted else KNOWN[event["policyName"]].value
        assert event["enforcementLevel"] == level, event
    diagnostics = [event["diagnosticEvent"] for event in events if "diagnosticEvent" in event]
    wrong = [
        event["message"]
        for event in diagnostics
        if event["severity"] == "error" and "preview failed" not in event["message"]
    ]
    assert wrong == []  # of the providers, which took all inputs
    assert "Traceback" not in output
    passed = {rule for event in events for rule in event.get("policyAnalyzeSummaryEvent", {}).get("passed") or ()}
    assert len(passed) > 10 and passed <= own  # where they apply at all
