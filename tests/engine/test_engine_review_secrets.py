"""A stack with many planted secrets, with the real engine on the local cloud: no output that people read contains
one."""

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/review/running"))  # the doubles of a forge, and what runs workflows

from desk import Desk  # noqa: E402
from forge_double import Double  # noqa: E402

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]
MARKED = 24
"""Secrets that are marked as such, in each of the two versions of the stack."""

# A resource of any type with any inputs. `secret(n)`: the n-th secret of this version of the settings.
PROGRAM = """
import base64, json, pathlib, pulumi
config = pulumi.Config("planted")
texts = json.loads(pathlib.Path("plain.json").read_text())
used = iter(range(MARKED))
def secret():
    return config.require_secret(f"s{next(used)}")
def made(kind, name, inputs):
    return pulumi.CustomResource(kind, name, inputs)
def tags():
    return {"Project": "p", "Team": "t", "Environment": "dev", "Note": secret(), "Other": secret()}
def document(text):
    return pulumi.Output.json_dumps({"source": [text, {"deep": [text]}]})
made("aws:sqs/queue:Queue", "queue", {"tags": tags(), "sqsManagedSseEnabled": True})
made("aws:s3/bucket:Bucket", "bucket", {"tags": tags(), "forceDestroy": True})
made("aws:cloudwatch/eventRule:EventRule", "rule", {"tags": tags(), "eventPattern": document(secret())})
role = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole",
        "Principal": {"Service": "ec2.amazonaws.com"}}]}
made("aws:iam/role:Role", "role", {"tags": tags(), "assumeRolePolicy": json.dumps(role), "description": secret()})
script = pulumi.Output.concat("#!/bin/sh\\necho ", secret(), "\\n")
made("aws:ec2/launchTemplate:LaunchTemplate", "hidden", {"tags": tags(), "userData": script.apply(
    lambda text: base64.b64encode(text.encode()).decode())})
made("aws:ec2/launchTemplate:LaunchTemplate", "plain", {"tags": {"Team": "t", "password": texts["tag"]},
    "userData": base64.b64encode(texts["script"].encode()).decode()})
pulumi.export("one", secret())
pulumi.export("nested", {"list": [secret(), {"deep": secret()}], "text": pulumi.Output.concat("a ", secret(), " b")})
pulumi.export("json", document(secret()))
pulumi.log.warn("password=" + texts["logged"])
"""

SETTINGS = {"aws:region": "eu-west-1", "aws:s3UsePathStyle": "true", "aws:skipCredentialsValidation": "true"}


def text(name: str) -> str:
    """A text that looks like nothing, and that nothing else holds."""
    return hashlib.sha256(f"planted {name}".encode()).hexdigest()[:24]


def plain(version: int) -> dict[str, str]:
    """Values with planted credentials that are not marked as secrets."""
    body = text(f"key {version}").upper()
    key = "AKIA" + "".join(letter if letter.isalpha() else "Q" for letter in body)[:16]
    lines = [
        f"export AWS_ACCESS_KEY_ID={key}",
        f"export AWS_SECRET_ACCESS_KEY={text(f'aws {version}')}{text('more')[:16]}",
        f"git clone https://me:{text(f'url {version}')}@forge.test/a/b",
        f"huggingface-cli login hf_{text(f'hf {version}')}{text('face')[:10]}",
        f"curl -H 'Authorization: ghp_{text(f'gh {version}')}{text('hub')[:12]}'",
        f"token: {text(f'token {version}')}",
    ]
    return {"script": "\n".join(lines), "tag": text(f"tag {version}"), "logged": text(f"logged {version}"), "key": key}


PLANTED = {
    **{f"marked {version}.{n}": text(f"marked {version}.{n}") for version in (1, 2) for n in range(MARKED)},
    **{
        f"{name} {version}": text(f"{name} {version}")
        for version in (1, 2)
        for name in ("aws", "url", "hf", "gh", "token", "tag", "logged")
    },
    **{f"key {version}": plain(version)["key"] for version in (1, 2)},
}


@pytest.fixture(scope="module")
def desk(rig: Any, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A project of its own upon the local cloud, with the first version of its secrets applied."""
    here = tmp_path_factory.mktemp("planted")
    desk = Desk(here / "tree", here / "engine", dict(rig.env))
    desk.engine.mkdir()
    options = f"{{name: python, options: {{virtualenv: {sys.prefix}}}}}"
    desk.write("Pulumi.yaml", f"name: planted\nruntime: {options}\n")
    desk.write("__main__.py", PROGRAM.replace("MARKED", str(MARKED)))
    desk.write("Pulumi.dev.yaml", json.dumps({"config": SETTINGS}))
    desk.env |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    rig.engine.run(["stack", "init", "dev"], str(desk.root), desk.env)
    plant_version(desk, rig, 1)
    rig.engine.run(["up", "--yes", "--skip-preview", "--stack", "dev"], str(desk.root), desk.env)
    desk.git("init", "-q", "-b", "main")
    desk.commit("what is there")
    return desk


def plant_version(desk: Desk, rig: Any, version: int) -> None:
    """Give the stack one version of all that is planted."""
    pairs = [
        argument for n in range(MARKED) for argument in ("--secret", f"planted:s{n}={text(f'marked {version}.{n}')}")
    ]
    rig.engine.run(["config", "set-all", "--stack", "dev", *pairs], str(desk.root), desk.env)
    desk.write("plain.json", json.dumps(plain(version)))


@pytest.fixture(scope="module")
def hub(desk: Desk) -> Iterator[Double]:
    with Double.serve(desk.env) as server:
        yield server


def leaks(texts: dict[str, str]) -> list[str]:
    return sorted(
        f"{secret} in {where}" for where, content in texts.items() for secret, it in PLANTED.items() if it in content
    )


def test_no_planted_secret_is_told_by_any_command(rig: Any, desk: Desk, hub: Double) -> None:
    plant_version(desk, rig, 2)
    hub.head = head = desk.commit("other secrets")
    hub.merged_as[head] = 7
    reports, summary = desk.engine / "reports", desk.engine / "summary.md"
    variables, texts = {"GITHUB_STEP_SUMMARY": str(summary)}, dict[str, str]()
    commands = {
        "preview": ["preview", "dev", "--policy", "everspot-policy", "--out", str(reports)],
        "comment": ["comment", str(reports), "--number", "7", "--head", head],
        "refused": ["apply", "dev", "--policy", "everspot-policy"],
        "apply": ["apply", "dev"],
        "drift": ["drift", "dev", "--issue", "--json"],
    }
    codes = {}
    for name, words in commands.items():
        if name == "drift":
            queue = rig.client("sqs").list_queues(QueueNamePrefix="queue")["QueueUrls"][0]
            rig.client("sqs").tag_queue(QueueUrl=queue, Tags={"Note": "by hand"})
        done = desk.run(*words, **variables)
        codes[name], texts[f"log of {name}"] = done.returncode, done.stdout + done.stderr
    texts |= {f"comment {n}": each["body"] for n, each in enumerate(hub.comments)}
    texts |= {f"issue {n}": each["title"] + each["body"] for n, each in enumerate(hub.issues)}
    texts |= {str(path): path.read_text() for path in [summary, *reports.iterdir()]}
    assert leaks(texts) == []
    # It is not silent: all of it was previewed, refused by the rule, told, applied and looked at again.
    assert codes == {"preview": 0, "comment": 1, "refused": 1, "apply": 0, "drift": 7}, texts
    (comment,) = (each["body"] for each in hub.comments)
    assert "aws-no-secrets-in-user-data" in comment and comment.count("[secret]") >= 12
    report = json.loads((reports / "dev.json").read_text())
    assert {step["name"] for step in report["steps"]} == {"queue", "bucket", "rule", "role", "hidden", "plain"}
    assert len(hub.issues) == 1 and "[secret]" in hub.issues[0]["body"]


def test_the_search_finds_what_is_planted() -> None:
    assert len(PLANTED) == len(set(PLANTED.values())) == 2 * MARKED + 16
    assert leaks({"a log": f"x {PLANTED['hf 2']} y"}) == ["hf 2 in a log"]
