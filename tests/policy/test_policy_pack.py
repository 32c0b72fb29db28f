"""The pack's answers to the engine: levels of the stack's environment, no secrets, and nothing about unknown values."""

import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from everspot_core.cluster.declared import UNKNOWN
from everspot_core.validation.problems import BadInputs
from everspot_policy import month_budget, pack, settings_source
from everspot_policy.analyzer import Analyzer
from everspot_policy.request import UNKNOWNS, plain
from everspot_policy.rules import RULES
from everspot_policy.settings import KNOWN, read
from google.protobuf import struct_pb2
from pulumi.runtime.proto import analyzer_pb2 as pb

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = {SIGNATURE: "1b47061264138c4ac30d75fd1eb44270"}
BUCKET = "aws:s3/bucket:Bucket"
MEMBER = "gcp:projects/iAMMember:IAMMember"
SETTINGS = """
environments:
  dev: {levels: {aws-tags: off, gcp-no-basic-roles: advisory}}
exceptions:
  - {rule: aws-tags, resource: mine, reason: It is nobody's., until: 2026-06-30}
"""


def analyzer(stack: str, today: str = "2026-06-30") -> Analyzer:
    pack = Analyzer(read(SETTINGS), "1.2.3", lambda: date.fromisoformat(today))
    pack.ConfigureStack(pb.AnalyzerStackConfigureRequest(stack=stack), None)
    return pack


def analyze_request(type_: str, inputs: Mapping[str, Any], name: str = "mine", **options: Any) -> pb.AnalyzeRequest:
    properties = struct_pb2.Struct()
    properties.update(dict(inputs))
    resource_options = pb.AnalyzerResourceOptions(**options)
    return pb.AnalyzeRequest(
        type=type_, name=name, urn=f"urn:pulumi:s::p::{type_}::{name}", properties=properties, options=resource_options
    )


def violations(answer: pb.AnalyzeResponse) -> list[tuple[str, str]]:
    return [(each.policyName, pb.EnforcementLevel.Name(each.enforcementLevel).lower()) for each in answer.diagnostics]


def test_the_engine_learns_of_every_rule_at_the_level_of_its_environment() -> None:
    info = analyzer("dev").GetAnalyzerInfo(None, None)
    levels = {each.name: pb.EnforcementLevel.Name(each.enforcementLevel).lower() for each in info.policies}
    own = {name: level.value for name, level in KNOWN.items()}
    assert levels == {**own, "aws-tags": "disabled", "gcp-no-basic-roles": "advisory"}
    assert (info.name, info.version, info.supportsConfig) == ("everspot", "1.2.3", True)
    elsewhere = {each.name: each.enforcementLevel for each in analyzer("prod").GetAnalyzerInfo(None, None).policies}
    assert elsewhere["aws-tags"] == pb.MANDATORY


def test_what_is_off_in_the_environment_is_not_told_there() -> None:
    request = analyze_request(BUCKET, {"tags": {}}, name="other")
    assert violations(analyzer("dev").Analyze(request, None)) == []
    assert violations(analyzer("staging").Analyze(request, None)) == [("aws-tags", "mandatory")]


def test_an_exception_counts_on_its_last_day_and_is_named_when_it_is_over() -> None:
    request = analyze_request(BUCKET, {"tags": {}})
    (excepted,) = analyzer("staging").Analyze(request, None).diagnostics
    assert excepted.enforcementLevel == pb.ADVISORY and "Excepted until 2026-06-30: It is nobody's." in excepted.message
    (over,) = analyzer("staging", "2026-07-01").Analyze(request, None).diagnostics
    assert (
        over.enforcementLevel == pb.MANDATORY and "Its exception ended on 2026-06-30: It is nobody's." in over.message
    )


def test_levels_and_the_estimate_that_the_engine_is_given_go_before_the_settings() -> None:
    pack = analyzer("dev")
    config = pb.ConfigureAnalyzerRequest()
    config.policyConfig["aws-tags"].enforcementLevel = pb.MANDATORY
    config.policyConfig["cost-within-budget"].enforcementLevel = pb.ADVISORY
    config.policyConfig["cost-within-budget"].properties.update({"highUsdPerMonth": 7})
    pack.Configure(config, None)
    assert ("aws-tags", "mandatory") in violations(pack.Analyze(analyze_request(BUCKET, {}, name="other"), None))
    pack._settings = read("environments: {dev: {budgetUsdPerMonth: 5}}")
    answer = pack.AnalyzeStack(pb.AnalyzeStackRequest(), None)
    assert violations(answer) == [("cost-within-budget", "advisory")]
    assert "$7.00" in answer.diagnostics[0].message


def test_a_secret_is_judged_and_never_printed() -> None:
    member = {"project": "p", "role": {**SECRET, "value": "roles/owner"}, "member": "user:me"}
    (violation,) = analyzer("dev").Analyze(analyze_request(MEMBER, member), None).diagnostics
    assert violation.policyName == "gcp-no-basic-roles"
    assert "roles/owner" not in violation.message and "role: [secret] is a basic role" in violation.message


@pytest.mark.parametrize("mark", sorted(UNKNOWNS))
def test_every_mark_of_what_is_unknown_is_the_one_that_rules_know(mark: str) -> None:
    noted: set[str] = set()
    value = {"a": [mark, {"b": mark}], "c": {**SECRET, "value": [3.0, True, "x"]}, "d": 2.5}
    assert plain(value, noted.add) == {"a": [UNKNOWN, {"b": UNKNOWN}], "c": [3, True, "x"], "d": 2.5}
    assert noted == {"3", "x"}
    assert violations(analyzer("staging").Analyze(analyze_request(BUCKET, {"tags": mark}), None)) == []


def test_a_rule_that_is_about_other_types_says_so() -> None:
    answer = analyzer("prod").Analyze(analyze_request("random:index/randomId:RandomId", {}), None)
    assert {each.policy_name for each in answer.not_applicable} == set(RULES) - {"no-plain-credentials"}
    assert not answer.diagnostics


def test_an_unprotected_bucket_of_production_is_told_by_the_stacks_name() -> None:
    tags = {"Project": "a", "Team": "b"}
    for protect, expected in ((True, []), (False, ["aws-production-protected"])):
        answer = analyzer("aws-prod").Analyze(analyze_request(BUCKET, {"tags": tags}, name="x", protect=protect), None)
        assert [name for name, _ in violations(answer) if name != "aws-tags"] == expected


def test_settings_come_from_the_file_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    assert settings_source.settings({}) == read("")
    file.write_text(SETTINGS)
    assert settings_source.settings({settings_source.SETTINGS: str(file)}) == read(SETTINGS)
    file.write_text("environment: {}")
    with pytest.raises(BadInputs, match=r"policy\.yaml has 1 bad input"):
        settings_source.settings({settings_source.SETTINGS: str(file)})


def test_bad_settings_end_the_program_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(settings_source.SETTINGS, str(tmp_path / "nowhere.yaml"))
    with pytest.raises(SystemExit, match=r"everspot-policy: .*nowhere\.yaml"):
        pack.main()


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_the_program_says_how_it_is_used_and_serves_nobody(option: str) -> None:
    program = Path(sys.executable).parent / "everspot-policy"
    done = subprocess.run([program, option], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert '--policy-pack "$(command -v everspot-policy)"' in done.stdout
    assert month_budget.USAGE.partition(": ")[2].partition(",")[0] in done.stdout
    assert settings_source.SETTINGS in done.stdout


@pytest.mark.parametrize("words", [[], ["dev"], ["dev", "much"], ["dev", "nan"], ["dev", "-1"], ["dev", "1", "2"]])
def test_a_malformed_cost_command_prints_its_usage(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="usage: everspot-policy cost STACK USD"):
        month_budget.main(words, {})
