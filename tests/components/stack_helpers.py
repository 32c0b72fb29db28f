"""The repository's own stacks under mocks, with the declared resources in the form that rules read."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from everspot_policy.rule import Subject

STACKS = Path(__file__).resolve().parents[2] / "stacks"
NAMES = sorted(path.name.split(".")[1] for path in STACKS.glob("Pulumi.*.yaml"))


class Written:
    """A stack's own settings, as the engine hands them over."""

    name = "everspot"

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def get(self, name: str) -> str | None:
        section = self.config.get(f"everspot:{name}")
        return None if section is None else json.dumps(section)


@pytest.fixture
def declared(
    declare: Callable[..., Any], recorder_kind: type[Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], list[Subject]]]:
    """All resources of a stack, as rules see them."""

    def resources(stack: str) -> list[Subject]:
        config = yaml.safe_load((STACKS / f"Pulumi.{stack}.yaml").read_text())["config"]
        region = config.get("aws:region") or config.get("gcp:region")
        subjects: list[Subject] = []
        answers, register = recorder_kind.call, pulumi.runtime.mocks.MockMonitor.RegisterResource

        def call(self: Any, args: Any) -> Any:
            """The account is in the stack's region, and all that it names is offered in all zones."""
            zones = {"aws": [f"{region}{z}" for z in "abc"], "gcp": [f"{region}-{z}" for z in "abcf"]}
            names = args.args.get("filters", [{"values": []}])[0]["values"] if "Offerings" in args.token else []
            pairs = [(name, zone) for name in names for zone in zones["aws"]]
            offers = {"instanceTypes": [n for n, _ in pairs], "locations": [z for _, z in pairs], "locationTypes": []}
            overrides = {
                "aws:index/getRegion:getRegion": {"region": region},
                "aws:index/getAvailabilityZones:getAvailabilityZones": {"names": zones["aws"]},
                "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": offers,
                "gcp:compute/getZones:getZones": {"names": zones["gcp"]},
            }
            if args.token == "gcp:organizations/getClientConfig:getClientConfig":
                return {**answers(self, args), "region": region}
            return overrides.get(args.token) or answers(self, args)

        def note(self: Any, request: Any) -> Any:
            answer = register(self, request)
            inputs = {args.name: args.inputs for args in self.mocks.resources}
            subjects.append(
                Subject(
                    request.type, inputs.get(request.name, {}), request.name, stack, request.protect, answer.urn,
                    tuple(request.dependencies),
                )
            )  # fmt: skip
            return answer

        def program() -> dict[str, Any]:
            parsed = settings.read_settings(Written(config), stack=stack)
            names = {"bootstrap": "everspot-bootstrap", "account": "everspot", "cluster": settings.cluster_name(stack)}
            for part, name in names.items():
                if (section := getattr(parsed, part)) is not None:
                    getattr(choices.CHOICES[section.cloud], part)(name, section.args)
            return {}

        monkeypatch.syspath_prepend(str(STACKS))
        settings, choices = importlib.import_module("settings"), importlib.import_module("choices")
        monkeypatch.setattr(recorder_kind, "call", call)
        monkeypatch.setattr(pulumi.runtime.mocks.MockMonitor, "RegisterResource", note)
        declare(program)
        return subjects

    yield resources
    for module in ("settings", "choices", "choice_aws", "choice_gcp", "choice_kubernetes"):
        sys.modules.pop(module, None)
