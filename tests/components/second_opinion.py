"""What resources would be to Terraform: a plan's document, by the bridge's tables of names; and Checkov's word on it.

Checkov looks at Terraform's names only, and at what is said: nulls and empty lists are left out, because several of its
checks take them for values.
"""

import json
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everspot_local.bridge import providers
from everspot_local.bridge.resources import ProviderResources
from everspot_local.bridge.sdk import Sdk
from everspot_local.bridge.upstream import Upstream
from everspot_local.bridge.values import to_upstream, without_unknowns
from everspot_policy.request import plain
from everspot_policy.rule import Subject

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".everspot" / "toolchain"
CHECKOV = ROOT / ".everspot" / "second-opinion" / "bin" / "checkov"
SECONDS = 300
QUIETLY = ("--output", "json", "--quiet", "--compact", "--skip-download")  # the last: it asks nobody for guidelines

# Checkov knows the one that is not of a region, which has the same attributes.
SAME_AS = {"google_compute_region_instance_template": "google_compute_instance_template"}


UNREAD = ("aws:costexplorer/", "gcp:billing/")
"""Types that the built providers do not name and Checkov does not check."""


@dataclass(frozen=True, order=True)
class Finding:
    """One check that one resource failed."""

    check: str
    type: str
    name: str


def judged(folder: Path, stacks: dict[str, list[Subject]]) -> dict[str, set[Finding]]:
    """Return Checkov's findings in each stack, from one run over all stacks."""
    bridges: dict[str, ProviderResources] = {}
    try:
        for stack, subjects in stacks.items():
            (folder / f"{stack}.json").write_text(json.dumps(_plan(subjects, bridges)))
    finally:
        for bridge in bridges.values():
            bridge.upstream.stop()
    command = [str(CHECKOV), "--directory", str(folder), "--framework", "terraform_plan", *QUIETLY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode in (0, 1), done.stderr
    findings: dict[str, set[Finding]] = defaultdict(set)
    for each in json.loads(done.stdout)["results"]["failed_checks"]:
        type_, _, name = each["resource"].partition(".")
        findings[Path(each["file_path"]).stem].add(Finding(each["check_id"], type_, name))
    return findings


def _plan(subjects: Iterable[Subject], bridges: dict[str, ProviderResources]) -> dict[str, Any]:
    """The document of a plan that would make all of them."""
    resources, references = [], []
    planned = [s for s in subjects if s.type.startswith(("aws:", "gcp:")) and not s.type.startswith(UNREAD)]
    upstream = {s.name: _bridge(s, bridges).mapping(s.type) for s in planned}
    for subject in planned:
        mapping = upstream[subject.name]
        inputs = plain(dict(subject.inputs), lambda _: None)
        values = _drop_empty(without_unknowns(to_upstream(mapping.node, inputs)))
        type_ = SAME_AS.get(mapping.upstream, mapping.upstream)
        address = {"address": f"{type_}.{subject.name}", "mode": "managed", "type": type_, "name": subject.name}
        resources.append({**address, "values": values})
        expressions = {
            attribute: {"references": [f"{upstream[other].upstream}.{other}.id", f"{upstream[other].upstream}.{other}"]}
            for attribute, value in values.items()
            for other in upstream
            if _names(json.dumps(value), other)
        }
        references.append({**address, "expressions": expressions})
    changes = [
        {
            **{k: v for k, v in each.items() if k != "values"},
            "change": {"actions": ["create"], "before": None, "after": each["values"], "after_unknown": {}},
        }
        for each in resources
    ]
    return {
        "format_version": "1.2",
        "terraform_version": "1.13.0",
        "planned_values": {"root_module": {"resources": resources}},
        "resource_changes": changes,
        "configuration": {"root_module": {"resources": references}},
    }


def _names(value: str, other: str) -> bool:
    """Return whether a value contains another resource's id. Under mocks the id is the name with the suffix -id on AWS,
    and the end of a path on Google Cloud."""
    return f'"{other}-id"' in value or f'/{other}"' in value


def _bridge(subject: Subject, bridges: dict[str, ProviderResources]) -> ProviderResources:
    cloud = subject.type.partition(":")[0]
    if cloud not in bridges:
        table = providers.table(cloud)
        bridges[cloud] = ProviderResources(
            Upstream(TOOLS / "bin" / table.binary, TOOLS / "stubs"), Sdk(table.sdk), table
        )
    return bridges[cloud]


def _drop_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_empty(each) for name, each in value.items() if each is not None and each != []}
    return [_drop_empty(each) for each in value] if isinstance(value, list) else value
