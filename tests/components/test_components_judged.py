"""What the repository's own stacks declare breaks no rule, of any level, with the settings that stand beside them."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from everspot_policy.rule import Level, Subject, problems
from everspot_policy.rules import RULES
from everspot_policy.settings import read
from everspot_policy.stack import STACK_RULES

STACKS = Path(__file__).resolve().parents[2] / "stacks"
NAMES = sorted(path.name.split(".")[1] for path in STACKS.glob("Pulumi.*.yaml"))


class Written:
    """A stack's own settings, as the engine hands them over."""

    name = "everspot"

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def get(self, name: str) -> str | None:
        found = self.config.get(f"everspot:{name}")
        return None if found is None else json.dumps(found)


@pytest.fixture
def declared(
    declare: Callable[..., Any], recorder_kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], list[Subject]]]:
    """All resources of a stack, as rules see them."""

    def resources(stack: str) -> list[Subject]:
        config = yaml.safe_load((STACKS / f"Pulumi.{stack}.yaml").read_text())["config"]
        region = config.get("aws:region") or config.get("gcp:region")
        seen: list[Subject] = []
        answers, register = recorder_kind.call, pulumi.runtime.mocks.MockMonitor.RegisterResource

        def call(self: Any, args: Any) -> Any:
            """The account is in the stack's region, and all that it names is offered in all zones."""
            zones = {"aws": [f"{region}{z}" for z in "abc"], "gcp": [f"{region}-{z}" for z in "abcf"]}
            names = args.args.get("filters", [{"values": []}])[0]["values"] if "Offerings" in args.token else []
            pairs = [(name, zone) for name in names for zone in zones["aws"]]
            offers = {"instanceTypes": [n for n, _ in pairs], "locations": [z for _, z in pairs], "locationTypes": []}
            ours = {
                "aws:index/getRegion:getRegion": {"region": region},
                "aws:index/getAvailabilityZones:getAvailabilityZones": {"names": zones["aws"]},
                "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": offers,
                "gcp:compute/getZones:getZones": {"names": zones["gcp"]},
            }
            if args.token == "gcp:organizations/getClientConfig:getClientConfig":
                return {**answers(self, args), "region": region}
            return ours.get(args.token) or answers(self, args)

        def note(self: Any, request: Any) -> Any:
            answer = register(self, request)
            known = {args.name: args.inputs for args in self.mocks.seen}
            seen.append(
                Subject(
                    request.type, known.get(request.name, {}), request.name, stack, request.protect, answer.urn,
                    tuple(request.dependencies),
                )
            )  # fmt: skip
            return answer

        def program() -> dict[str, Any]:
            given = settings.read_settings(Written(config), stack=stack)
            for section, made in ((given.account, "account"), (given.cluster, "cluster")):
                if section is not None:
                    name = "everspot" if made == "account" else settings.cluster_name(stack)
                    getattr(choices.CLOUDS[section.cloud], made)(name, section.args)
            return {}

        monkeypatch.syspath_prepend(str(STACKS))
        settings, choices = importlib.import_module("settings"), importlib.import_module("choices")
        monkeypatch.setattr(recorder_kind, "call", call)
        monkeypatch.setattr(pulumi.runtime.mocks.MockMonitor, "RegisterResource", note)
        declare(program)
        return seen

    yield resources
    for module in ("settings", "choices", "choice_aws", "choice_gcp"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize("stack", NAMES)
def test_a_stack_breaks_no_rule(declared: Callable[[str], list[Subject]], stack: str) -> None:
    settings, subjects = read((STACKS / "rules.yaml").read_text()), declared(stack)
    assert any(subject.type.startswith(("aws:", "gcp:")) for subject in subjects)
    found = [
        (rule.id, subject.name, str(problem))
        for rule in RULES.values()
        for subject in subjects
        for problem in problems(rule, subject)
        if settings.level(rule.id, stack) is not Level.OFF
    ]
    found += [
        (rule.id, urn, str(problem))
        for rule in STACK_RULES.values()
        for urn, problem in rule.look(subjects, settings.bounds(stack))
    ]
    assert found == []


def test_what_they_declare_is_looked_at(declared: Callable[[str], list[Subject]]) -> None:
    subjects = [*declared("aws-prod"), *declared("gcp-prod")]
    looked = {rule.id for rule in RULES.values() if any(rule.concerns(subject.type) for subject in subjects)}
    assert len(looked) > len(RULES) / 2
    protected = {s.type.rpartition(":")[2] for s in subjects if s.protected}
    assert {"Fleet", "Bucket", "RegionInstanceGroupManager"} <= protected
