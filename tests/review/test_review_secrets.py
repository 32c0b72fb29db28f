"""Values with a secret's name that are not marked as secrets are never displayed."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from everspot_clouds.base.resources import ResourceKinds
from everspot_review.drift import drift
from everspot_review.engine import Ended, Engine
from everspot_review.events import read
from everspot_review.judge import judge
from everspot_review.report import PropertyChange
from everspot_review.values import masked

PLANTED = "hunter2;of the planted, secret"
END = json.dumps({"summaryEvent": {"result": "succeeded"}})
URN = "urn:pulumi:dev::p::aws:lambda/function:Function::f"


def changes(before: dict[str, Any], after: dict[str, Any], *paths: str) -> list[PropertyChange]:
    """Return the reported property changes of an update that differs at these paths."""
    sides = {
        side: {"urn": URN, "type": URN.split("::")[2], "custom": True, "id": "f", "inputs": inputs}
        for side, inputs in (("old", before), ("new", after))
    }
    diff = {path: {"diffKind": "update"} for path in paths}
    step = {"op": "update", "urn": URN, "type": URN.split("::")[2], "detailedDiff": diff, **sides}
    log = read([json.dumps({"resourcePreEvent": {"metadata": step}}), END])
    (updated_step,) = judge(log, environment="dev", stack="dev", kinds=ResourceKinds()).steps
    return list(updated_step.changes)


def containers(value: str) -> str:
    return json.dumps([{"name": "train", "environment": [{"name": "DB_PASSWORD", "value": value}]}])


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        ({"env": {"WANDB_API_KEY": "first"}}, {"env": {"WANDB_API_KEY": PLANTED}}, "env.WANDB_API_KEY"),
        ({"e": [{"name": "TOKEN", "value": "first"}]}, {"e": [{"name": "TOKEN", "value": PLANTED}]}, "e[0].value"),
        ({"e": []}, {"e": [{"Name": "MY_TOKEN", "Value": PLANTED}]}, "e"),
        ({"containers": containers("first")}, {"containers": containers(PLANTED)}, "containers"),
        ({"script": "first"}, {"script": base64.b64encode(f'export PASSWORD="{PLANTED}"'.encode()).decode()}, "script"),
        ({"passwords": ["first"]}, {"passwords": [PLANTED]}, "passwords[0]"),
        ({"all": {}}, {"all": {"adminPassword": PLANTED, "passwords": [PLANTED]}}, "all"),
    ],
    ids=["key", "pair", "new pair", "document", "packed", "list", "object"],
)  # fmt: skip
def test_a_value_that_its_name_calls_a_secret_is_not_shown(before: Any, after: Any, path: str) -> None:
    (change,) = changes(before, after, path)
    assert PLANTED not in (change.before or "") + (change.after or "") and "[secret]" in (change.after or "")


def test_names_that_only_sound_so_and_where_a_secret_is_kept_are_shown() -> None:
    before = {"metadataOptions": {"httpTokens": "required"}, "secret": "arn:aws:secretsmanager:eu:1:secret:a"}
    after = {"metadataOptions": {"httpTokens": "optional"}, "secret": "arn:aws:secretsmanager:eu:1:secret:b"}
    tokens, secret = changes(before, after, "metadataOptions", "secret")
    assert (tokens.before, tokens.after) == ('{"httpTokens": "required"}', '{"httpTokens": "optional"}')
    assert secret.after == '"arn:aws:secretsmanager:eu:1:secret:b"'


@pytest.mark.parametrize(
    "text", [f"hf_{'a1B2' * 9}", "curl -H 'Authorization: Bearer abcdefghijklmnop'", "mysql --password hunter22"]
)
def test_texts_of_programs_are_masked(text: str) -> None:
    assert masked(text) == text[: len(text) - len(text.split(" ")[-1])] + "[secret]" + "'" * text.endswith("'")


def test_what_drifts_and_is_no_secret_any_more_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    marked = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
    sides = {"old": {"outputs": {"note": marked}}, "new": {"outputs": {"note": PLANTED}}}
    step = {"op": "update", "urn": URN, "type": "t", "detailedDiff": {"note": {}}, **sides}

    def refreshed(self: Engine, environment: str, log: Path, limit: Any) -> Ended:
        log.write_text(json.dumps({"resOutputsEvent": {"metadata": step}}) + "\n")
        return Ended(code=7, pid=1, output="")

    monkeypatch.setattr(Engine, "refresh", refreshed)
    monkeypatch.setattr(Engine, "state", lambda *_: {"deployment": {"resources": []}})
    drift_report = drift(Engine(Path(), "pulumi"), "dev")
    ((change,),) = [resource.changes for resource in drift_report.resources]
    assert (change.before, change.after) == ("[secret]", "[secret]")
