"""The shipped workflows, run by act against doubles of forge and engine."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from acting import ROOT, act, of_pull, shipped
from desk import OTHER, UPDATE, Desk, rule
from everspot_review.engine import KEPT_BACK
from forge_double import RUN, Double

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_a_pull_request_is_commented_once_and_the_comment_edited_at_its_second_push(desk: Desk, hub: Double) -> None:
    shipped(desk)
    desk.commit("workflows")
    desk.git("checkout", "-q", "-b", "more")
    desk.write("stacks/Pulumi.dev.yaml", "config:\n  acme:size: 3\n")
    desk.commit()
    desk.answers("preview", "dev", [UPDATE])
    done = act(desk, hub, "review", "pull_request", of_pull(hub, desk))
    assert done.code == 0, done.log
    (first,) = (comment["body"] for comment in hub.comments)
    desk.answers("preview", "dev", [OTHER, rule()], code=1)
    desk.commit()
    done = act(desk, hub, "review", "pull_request", of_pull(hub, desk))
    (second,) = (comment["body"] for comment in hub.comments)
    assert (done.code, first != second, "queue-encrypted" in second) == (1, True, True)
    assert "not to be merged: dev" in done.log
    previews = [call["words"] for call in desk.calls() if call["words"][0] == "preview"]
    assert [words[-1].rpartition("/")[2] for words in previews] == ["everspot-policy"] * 2


def test_a_fork_s_pull_request_has_its_files_checked_and_nothing_of_it_is_run(desk: Desk, hub: Double) -> None:
    shipped(desk)
    desk.commit("workflows")
    desk.git("checkout", "-q", "-b", "more")
    desk.write("stacks/Pulumi.dev.yaml", "konfig: {}\n")
    desk.commit()
    done = act(desk, hub, "review", "pull_request", of_pull(hub, desk, "mallory/fleets"))
    assert (done.code, desk.calls(), hub.calls) == (1, [], [])
    assert "'konfig' is nothing that Pulumi reads" in done.log


def test_what_was_merged_is_applied_as_it_was_reviewed_and_nothing_else(desk: Desk, hub: Double) -> None:
    shipped(desk)
    base = desk.commit("workflows")
    desk.write("stacks/Pulumi.dev.yaml", "config: {}\n")
    head = desk.commit()
    desk.answers("preview", "dev", [UPDATE])
    out = desk.engine.parent / "reports"
    assert desk.run("preview", "dev", "--base", "", "--out", str(out)).returncode == 0
    hub.head, hub.merged_as[head] = head, 7
    hub.runs = [{"id": RUN, "path": ".github/workflows/apply.yml", "status": "in_progress"}]
    assert desk.run("comment", str(out), "--number", "7", "--head", head).returncode == 0
    event = {"before": base, "after": head, "ref": "refs/heads/main", "repository": {"full_name": "boss/fleets"}}
    desk.answers("preview", "dev", [OTHER])
    refused = act(desk, hub, "apply", "push", event)
    assert (refused.code, "up" in desk.verbs(), "is not what was reviewed" in refused.log) == (1, False, True)
    desk.answers("preview", "dev", [UPDATE])
    done = act(desk, hub, "apply", "push", event)
    assert (done.code, desk.verbs()[-1]) == (0, "up"), done.log
    (comment,) = (comment["body"] for comment in hub.comments)
    assert "✅ **dev**: updated at" in comment


def test_drift_is_told_in_one_issue_that_is_closed_once_it_is_gone(desk: Desk, hub: Double) -> None:
    shipped(desk)
    desk.commit("workflows")
    for name in ("dev", "prod", "zaccount"):
        (desk.engine / f"state.{name}.json").write_text(json.dumps({"deployment": {"resources": []}}))
    deleted = {"op": "delete", "urn": "urn:pulumi:dev::p::aws:sqs/queue:Queue::queue", "type": "aws:sqs/queue:Queue"}
    desk.answers("refresh", "dev", [{"resOutputsEvent": {"metadata": deleted}}], code=7)
    done = act(desk, hub, "drift", "workflow_dispatch", {"repository": {"full_name": "boss/fleets"}})
    (issue,) = hub.issues
    assert (done.code, issue["title"], "queue is gone" in issue["body"]) == (1, "dev has drifted", True), done.log
    desk.answers("refresh", "dev", [])
    assert act(desk, hub, "drift", "workflow_dispatch", {"repository": {"full_name": "boss/fleets"}}).code == 0
    assert [each["state"] for each in hub.issues] == ["closed"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_job_has_more_than_it_needs(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert "pull_request_target" not in path.read_text()
    for name, job in workflow["jobs"].items():
        text = yaml.safe_dump(job)
        assert "permissions" in job and "timeout-minutes" in job, name
        assert set(job["permissions"]) <= {"contents", "pull-requests", "issues", "id-token", "actions"}
        # The job that runs an unmerged change's program has no permission to write to the forge.
        if "review preview" in text:
            assert job["permissions"] == {"contents": "read", "id-token": "write"} and "github.token" not in text
        for step in job["steps"]:
            assert "uses" not in step or step["uses"].startswith("actions/"), step
            assert "checkout" not in step.get("uses", "") or step["with"]["persist-credentials"] is False


def test_scripts_are_taken_from_the_branch_that_a_change_goes_into() -> None:
    text = (ROOT / ".github/workflows/review.yml").read_text()
    assert text.count("bash base/.github/everspot/") == 4 and "change/.github" not in text


def test_scripts_are_right(tmp_path: Path) -> None:
    for script in (ROOT / ".github/everspot").glob("*.sh"):
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    variables = {
        "GITHUB_ENV": str(tmp_path / "env"),
        "RUNNER_TEMP": str(tmp_path),
        "AWS_ROLE": "arn:x",
        "PATH": "/usr/bin:/bin",
    }
    google = {"GOOGLE_PROVIDER": "projects/1/p", "GOOGLE_ACCOUNT": "a@b"}
    subprocess.run(["bash", ROOT / ".github/everspot/credentials.sh"], env={**variables, **google}, check=True)
    exported = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert exported["AWS_WEB_IDENTITY_TOKEN_FILE"] == f"{tmp_path}/id-token-aws"
    tokens = f"{tmp_path}/id-token-aws=sts.amazonaws.com {tmp_path}/id-token-google=//iam.googleapis.com/projects/1/p"
    assert exported["EVERSPOT_ID_TOKENS"] == tokens
    credentials = json.loads((tmp_path / "google.json").read_text())
    assert credentials["credential_source"] == {"file": f"{tmp_path}/id-token-google"}


def test_packages_of_the_change_are_built_without_what_the_job_may_do(tmp_path: Path) -> None:
    tools, program = tmp_path / "bin", tmp_path / "change"
    program.mkdir()
    tools.mkdir()
    pip = 'mkdir -p "$3/bin"; printf \'#!/bin/sh\\nenv >>"$SEEN"\\n\' >"$3/bin/pip"; chmod +x "$3/bin/pip"'
    for name, text in (("everspot", "exit 0"), ("pulumi", "exit 0"), ("python3", pip)):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    job = {"PATH": f"{tools}:/usr/bin:/bin", "SEEN": str(tmp_path / "seen"), "RUNNER_TEMP": str(tmp_path)}
    own = dict.fromkeys(KEPT_BACK, "the-job-s-own")
    script = ROOT / ".github/everspot/setup.sh"
    for requirements in (False, True):
        (program / "requirements.txt").write_text("acme\n") if requirements else None
        subprocess.run(["bash", script, "base", "change"], cwd=tmp_path, env={**job, **own}, check=True)
    environments = (tmp_path / "seen").read_text()
    assert (environments.count(f"SEEN={job['SEEN']}"), [name for name in KEPT_BACK if f"{name}=" in environments]) == (
        2,
        [],
    )
