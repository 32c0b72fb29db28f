"""`everspot cluster down` with a scripted cloud and a scripted `pulumi`: the order of the steps, and each reason to
stop. tests/engine runs the command through the real engine and the local cloud.

The whole way through the real engine and the local cloud is in tests/engine.
"""

import json
import os
import stat
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from everspot_cli import userconfig
from everspot_cli.close_ledger import settle
from everspot_cli.commands import down
from everspot_cli.stacks import Stack
from everspot_clouds.base import CloudError, RemainingResource, Trouble
from everspot_core.jobs.records import Reason

from tests.cli.conftest import World, everspot

PULUMI = """#!{python}
import json, os, sys
log = open({log!r}, "a")
print(" ".join(sys.argv[1:]), "force" if os.environ.get("EVERSPOT_FORCE_DESTROY") else "", file=log)
if sys.argv[1] == "stack":
    if sys.argv[2] != "ls" and not os.path.exists({outputs!r}):
        sys.exit("error: no stack named 'dev' found")
    if sys.argv[2] == "import":
        sys.exit(open({state!r}, "w").write(sys.stdin.read()) < 1)
    answers = dict(ls=json.dumps([dict(name="prod")]), export=open({state!r}).read())
    print(answers.get(sys.argv[2]) or open({outputs!r}).read())
elif "--run-program" in sys.argv and {program!r}:
    sys.exit("error: " + {program!r})
else:
    print("- everspot-dev deleting")
    sys.exit({code})
"""


class Place:
    """A cloud that has what a test says, and loses it as instances are ended or time passes."""

    def __init__(self) -> None:
        self.resources: list[RemainingResource] = []
        self.ended: list[str] = []
        self.removed: list[str] = []
        self.costless: list[RemainingResource] = []
        self.others: list[RemainingResource] = []
        self.looks = 0
        self.after: dict[int, list[RemainingResource]] = {}
        self.stubborn = False
        self.denied = False

    def site(self, manifest: Any) -> "Place":
        return self

    def remaining(self) -> list[RemainingResource]:
        if self.denied:
            raise CloudError("AWS refused: you are nobody", Trouble.CREDENTIALS, "log in")
        self.looks += 1
        self.resources = self.after.get(self.looks, self.resources)
        return list(self.resources)

    def list_unbilled(self) -> list[RemainingResource]:
        return list(self.costless)

    def list_other_services(self) -> list[RemainingResource]:
        return list(self.others)

    def removal(self, resource: RemainingResource) -> str:
        return f"cloud delete {resource.name}"

    def remove(self, removed: Iterable[RemainingResource]) -> None:
        names = [resource.name for resource in removed]
        self.removed += names
        self.costless = [resource for resource in self.costless if resource.name not in names]
        self.others = [resource for resource in self.others if resource.name not in names]
        if not self.stubborn:
            self.resources = [
                resource for resource in self.resources if resource.name not in names and resource.part_of not in names
            ]

    def end(self, instances: Iterable[str]) -> None:
        self.ended += list(instances)
        if not self.stubborn:
            self.resources = [resource for resource in self.resources if resource.name not in self.ended]


def machine(name: str, part_of: str = "fleet-known", **more: Any) -> RemainingResource:
    """An instance, of the stack's fleet unless another is named."""
    return RemainingResource(
        kind="instance", name=name, detail="agent, g5.xlarge in us-east-1a, running", part_of=part_of, **more
    )


BUCKET = RemainingResource(kind="bucket", name="everspot-data", retained=True)


class Ground:
    """A cluster, its cloud, and the stack that declares it."""

    def __init__(self, world: World, place: Place, folder: Path) -> None:
        self.world, self.place, self.folder = world, place, folder
        self.outputs = {"cluster": "test", "controlUrl": world.url, "dataUrl": world.url, "region": "us-east-1"}
        self.state: list[dict[str, Any]] = [{"id": "fleet-known", "type": "cloud:fleet:Fleet"}]
        self.pending: list[dict[str, Any]] = []
        self.pulumi()

    def pulumi(self, code: int = 0, program: str = "") -> None:
        """Write the script. `code`: how it ends; `program`: why the stack's program fails, if it does."""
        (self.folder / "outputs.json").write_text(json.dumps(self.outputs))
        deployment = {"resources": self.state, "pending_operations": self.pending}
        (self.folder / "state.json").write_text(json.dumps({"version": 3, "deployment": deployment}))
        script = self.folder / "pulumi"
        script.write_text(
            PULUMI.format(
                python=sys.executable,
                log=str(self.folder / "log"),
                outputs=str(self.folder / "outputs.json"),
                state=str(self.folder / "state.json"),
                code=code,
                program=program,
            )
        )
        script.chmod(script.stat().st_mode | stat.S_IEXEC)

    def run(self, *arguments: str, chosen: bool = False) -> Any:
        path = {"PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}"}
        store = ("--store", self.world.url) if chosen else ()
        return everspot(*store, "down", *arguments, env=path)

    @property
    def destroyed(self) -> list[str]:
        return self.list_commands("destroy")

    def list_commands(self, beginning: str) -> list[str]:
        """The engine's commands that begin so."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [line.strip() for line in lines if line.startswith(beginning)]


@pytest.fixture
def ground(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    place = Place()
    monkeypatch.setattr(down, "provider", lambda cloud: place)
    for limit in ("POLL", "RELEASE_TIMEOUT", "DELETION_TIMEOUT"):
        monkeypatch.setattr(down, limit, timedelta(milliseconds=1 if limit == "POLL" else 50))
    folder = tmp_path / "bin"
    folder.mkdir()
    return Ground(world, place, folder)


DESTROY = "destroy --yes --skip-preview --run-program --non-interactive --color never"


def test_it_drains_destroys_and_says_that_nothing_is_left(ground: Ground) -> None:
    ground.place.resources = [machine("i-standing"), BUCKET]
    ground.place.after = {3: [BUCKET]}
    answer = ground.run("--yes", "--stack", "dev")
    assert answer.code == 0, answer.err
    assert ground.destroyed == [f"{DESTROY} --stack dev force"]  # the guard need not ask once more
    assert ground.place.ended == []
    assert ground.world.store.drain_request() is not None
    assert "test is down; nothing of it is left that runs. Kept by its settings: everspot-data." in answer.out
    positions = [
        answer.err.index(words) for words in ("Drained: 0 jobs", "Destroying stack dev.", "- everspot-dev deleting")
    ]
    assert positions == sorted(positions)
    assert ground.run("--yes", "--json").json == {
        "cluster": "test", "drained": [], "ended_directly": [], "orphans_removed": [],
        "kept": ["everspot-data"], "left": [],
    }  # fmt: skip


def test_nothing_is_destroyed_while_a_job_has_not_checkpointed(ground: Ground) -> None:
    ground.world.submit("a")
    ground.world.assign("a", "i-base", 10)
    ground.world.start("a", 20)
    answer = ground.run("--yes", "--timeout", "1s")
    assert answer.code == 1
    assert "not drained within 1s: a still run. Nothing was destroyed" in answer.err
    assert ground.destroyed == []
    forced = ground.run("--yes", "--timeout", "0s", "--force")
    assert forced.code == 0, forced.err
    assert "These did not checkpoint: a." in forced.err
    assert ground.destroyed == [f"{DESTROY} force"]
    ground.world.leave("a", 30, Reason.DRAIN)
    assert "Drained: 0 jobs checkpointed." in ground.run("--yes").err


def test_a_drain_that_is_undone_meanwhile_stops_it(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.place.resources = [machine("i-1", launched=True)]
    looks = iter([[], [], ["a"], ["a"]])
    monkeypatch.setattr(down, "list_owned_jobs", lambda session: next(looks))
    answer = ground.run("--yes")
    assert answer.code == 1
    assert "a run again: the drain was undone. Nothing was destroyed" in answer.err
    assert ground.destroyed == []


def test_what_the_scheduler_releases_is_not_ended_by_hand(ground: Ground) -> None:
    ground.place.resources = [machine("i-1", launched=True)]
    ground.place.after = {4: [machine("i-1", launched=True, ending=True)], 6: []}
    answer = ground.run("--yes")
    assert answer.code == 0, answer.err
    assert "Released: no instance that the scheduler launched runs." in answer.err
    assert ground.place.ended == []


def test_what_no_scheduler_releases_is_ended_before_the_destroy(ground: Ground) -> None:
    ground.place.resources = [machine("i-1", launched=True), machine("i-2", launched=True), machine("i-standing")]
    answer = ground.run("--yes", "--json")
    assert answer.json["ended_directly"] == ["i-1", "i-2"]
    # A standing instance is its fleet's until the stack is gone; what is left then is ended, too.
    assert ground.place.ended == ["i-1", "i-2", "i-standing"]


def test_what_cannot_be_ended_stops_it_before_the_destroy(ground: Ground) -> None:
    ground.place.resources, ground.place.stubborn = [machine("i-1", launched=True)], True
    answer = ground.run("--yes")
    assert answer.code == 4
    assert "i-1 cannot be ended; nothing was destroyed" in answer.err
    assert ground.destroyed == []


def test_what_is_left_after_the_destroy_is_named_and_an_error(ground: Ground) -> None:
    ground.place.resources = [
        RemainingResource(kind="volume", name="vol-1", detail="75 GiB, available"),
        RemainingResource(kind="fleet", name="fleet-1", detail="target 2, deleted_terminating", ending=True),
        BUCKET,
    ]
    ground.state += [{"id": "vol-1", "type": "cloud:volume:Volume"}]
    ground.pulumi()
    answer = ground.run("--yes")
    assert answer.code == 1
    assert "the stack is destroyed, and 2 resources of the cluster that may cost money are left" in answer.err
    assert "volume vol-1: 75 GiB, available" in answer.err
    assert "fleet fleet-1: target 2, deleted_terminating" in answer.err
    assert "everspot-data" not in answer.err


def test_a_destroy_that_fails_says_how_to_go_on(ground: Ground) -> None:
    ground.pulumi(code=255)
    answer = ground.run("--yes")
    assert answer.code == 1
    assert "pulumi destroy failed (exit code 255); the cluster stays drained" in answer.err
    assert "run `everspot cluster down` again, or `everspot cluster drain --undo` to keep the cluster" in answer.err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "test (this folder's Pulumi stack) has 1 instance. Its jobs checkpoint, and everything that the stack"),
        (("--json",), 2, "Nobody can be asked here whether to go on"),
        (("--yes", "--timeout", "soon"), 2, "--timeout: 'soon' is not a duration"),
    ],
)
def test_nobody_is_taken_down_unasked(ground: Ground, arguments: tuple[str, ...], code: int, message: str) -> None:
    ground.place.resources = [machine("i-1", launched=True)]
    answer = ground.run(*arguments)
    assert (answer.code, message in answer.err) == (code, True), answer.err
    untouched(ground)


URN = "urn:pulumi:prod::shop::"
CLUSTER = "my:index:Platform$everspot:index:AwsTrainingCluster$"
DATABASE = {"urn": f"{URN}aws:rds/instance:Instance::orders", "type": "aws:rds/instance:Instance"}
BESIDE = {
    "urn": f"{URN}everspot:index:AwsStore$aws:s3/bucket:Bucket::x-control", "type": "aws:s3/bucket:Bucket",
    "outputs": {"tags": {"everspot:cluster": "x"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "words"),
    [(DATABASE, "aws:rds/instance:Instance orders"), (BESIDE, "the cluster x")],
    ids=["a database", "another cluster"],
)
def test_what_else_the_stack_has_is_not_destroyed(ground: Ground, resource: dict[str, Any], words: str) -> None:
    own = {"urn": f"{URN}{CLUSTER}aws:s3/bucket:Bucket::test-data", "type": "aws:s3/bucket:Bucket", "custom": True}
    own["outputs"] = {"tags": {"everspot:cluster": "test"}}
    provider = {"urn": f"{URN}pulumi:providers:aws::default", "type": "pulumi:providers:aws", "custom": True}
    looked_up = [  # by get() and by StackReference
        {"urn": f"{URN}aws:ec2/vpc:Vpc::shared", "type": "aws:ec2/vpc:Vpc", "custom": True, "external": True,
         "outputs": {"tags": {"everspot:cluster": "other"}}},
        {"urn": f"{URN}pulumi:pulumi:StackReference::org/network/prod", "type": "pulumi:pulumi:StackReference",
         "custom": True, "external": True},
    ]  # fmt: skip
    ground.state += [own, provider, *looked_up, {**resource, "custom": True}]
    ground.pulumi()
    answer = ground.run("--yes", "--force")
    assert (answer.code, ground.destroyed, ground.world.store.drain_request()) == (1, [], None)
    assert f"has more than test, and would be destroyed with it: {words}. Nothing was changed" in answer.err
    ground.state.pop()
    ground.pulumi()
    assert ground.run("--yes").code == 0


def test_jobs_that_have_not_ended_are_not_deleted_with_their_buckets_unasked(ground: Ground) -> None:
    bucket = {"id": urlsplit(ground.world.url).path, "type": "cloud:storage/bucket:Bucket"}
    ground.state = [bucket | {"retainOnDelete": True}, {"type": "pulumi:pulumi:Stack"}]
    ground.pulumi()
    ground.world.submit("waiting")
    assert "deleted" not in ground.run().err, "the buckets stay, and the jobs go on after the next up"
    ground.state = [bucket]
    ground.pulumi()
    answer = ground.run("--yes")
    assert answer.code == 1
    assert "all checkpoints, results, datasets and the bill are deleted" in answer.err
    assert "1 unfinished job would be lost: waiting. Nothing was changed" in answer.err
    untouched(ground)
    assert "would be lost: waiting." in ground.run().err
    forced = ground.run("--yes", "--force")
    assert (forced.code, len(ground.destroyed)) == (0, 1), forced.err
    assert "would be lost: waiting." in forced.err


def untouched(ground: Ground) -> None:
    assert ground.destroyed == []
    assert ground.place.ended == []
    assert ground.world.store.drain_request() is None


def test_without_pulumi_credentials_or_a_stack_nothing_is_begun(ground: Ground) -> None:
    ground.place.denied = True
    answer = ground.run("--yes")
    assert (answer.code, "AWS refused: you are nobody" in answer.err) == (4, True)
    untouched(ground)
    (ground.folder / "outputs.json").unlink()
    answer = ground.run("--yes", "--stack", "dev")
    assert (answer.code, "error: there is no stack dev; there are: prod" in answer.err) == (3, True)
    ground.outputs = {"url": "x"}
    ground.pulumi()
    answer = ground.run("--yes", "--stack", "dev")
    assert answer.code == 3
    assert "the stack dev declares no cluster: it has no outputs cluster and controlUrl" in answer.err
    answer = everspot("down", "--yes", env={"PATH": str(ground.folder / "nothing")})
    assert (answer.code, "a cluster is destroyed by pulumi, which is not on PATH" in answer.err) == (4, True)
    untouched(ground)


def test_another_clusters_stack_is_not_taken_down(ground: Ground, tmp_path: Path) -> None:
    ground.outputs["controlUrl"] = (tmp_path / "other").as_uri()
    ground.pulumi()
    answer = ground.run("--yes", chosen=True)
    assert answer.code == 2
    assert f"--store chooses {ground.world.url}, and this folder's Pulumi stack declares" in answer.err
    assert ground.destroyed == []


@pytest.mark.parametrize(
    ("environment", "options", "arguments", "source"),
    [
        ({"EVERSPOT_CLUSTER": "dev"}, (), (), "EVERSPOT_CLUSTER"),
        ({"EVERSPOT_STORE": "STORE"}, (), (), "EVERSPOT_STORE"),
        ({}, (), (), "everspot cluster use"),
        ({}, ("--cluster", "dev"), ("--stack", "prod"), "--cluster"),
        ({}, ("--store", "STORE"), ("--stack", "prod"), "--store"),
    ],
)
def test_the_stack_of_another_cluster_than_the_chosen_one_is_not_taken_down(
    ground: Ground, tmp_path: Path, environment: dict[str, str], options: tuple[str, ...],
    arguments: tuple[str, ...], source: str,
) -> None:  # fmt: skip
    """Given a cluster that is chosen in any way, when the folder's stack declares another, then nothing is changed.
    A stack that is named alone is destroyed whatever the environment chooses."""
    store = ground.world.url
    userconfig.save(userconfig.UserConfig().with_cluster(userconfig.KnownCluster("dev", store)))
    ground.outputs["controlUrl"] = (tmp_path / "other").as_uri()
    ground.pulumi()
    path = {"PATH": f"{ground.folder}{os.pathsep}{os.environ['PATH']}"}
    variables = path | {name: value.replace("STORE", store) for name, value in environment.items()}
    chosen = [option.replace("STORE", store) if option == "STORE" else option for option in options]

    answer = everspot(*chosen, "down", "--yes", *arguments, env=variables)

    assert (answer.code, ground.destroyed) == (2, []), answer.err
    assert f"{source} chooses {store}, and" in answer.err
    untouched(ground)
    assert everspot("down", "--yes", "--stack", "prod", env=variables).code == 0
    assert ground.destroyed == [f"{DESTROY} --stack prod force"]


def test_jobs_that_come_during_the_drain_are_not_deleted_with_the_buckets(
    ground: Ground, spec_file: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given buckets that go with the stack, when a job comes after the confirmation, then the stack stays, and later
    submissions are refused."""
    ground.state = [{"id": urlsplit(ground.world.url).path, "type": "cloud:storage/bucket:Bucket"}]
    ground.pulumi()

    def settle_while_a_job_comes(session: Any) -> Any:
        ground.world.submit("late")
        return settle(session)

    monkeypatch.setattr(down, "settle", settle_while_a_job_comes)
    answer = ground.run("--yes")

    assert (answer.code, ground.destroyed) == (1, []), answer.err
    assert "1 unfinished job came meanwhile and would be lost: late. The stack was not destroyed" in answer.err
    file = spec_file("name: next\nrecipe: image-classification\nresources: {vcpus: 2, memory_gib: 4}\n")
    refused = ground.world.run("submit", str(file), "--wait-for-capacity")
    assert (refused.code, "is deleting the cluster test with all jobs" in refused.err) == (1, True), refused.err
    assert list(ground.world.store.jobs.scan()) == ["late"]
    ground.world.run("drain", "--undo")
    assert ground.world.run("submit", str(file), "--wait-for-capacity").code == 0


def test_where_an_earlier_destroy_has_begun_it_goes_on(ground: Ground, tmp_path: Path) -> None:
    ground.place.resources = [machine("i-1", launched=True)]
    (ground.world.root / "control" / "cluster.json").unlink()
    answer = ground.run("--yes")
    assert answer.code == 0, answer.err
    assert "nothing can be drained" in answer.err
    assert ground.place.ended == ["i-1"]
    ground.outputs["controlUrl"] = (tmp_path / "gone").as_uri()
    ground.pulumi()
    assert ground.run("--yes").code == 0
    assert len(ground.destroyed) == 2


def test_a_stack_is_destroyed_with_the_credentials_with_which_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's profile, which the command takes on meanwhile, may be that of a user of jobs."""
    outputs = json.dumps({"cluster": "test", "controlUrl": "s3://control"})
    state = json.dumps({"deployment": {"resources": [{"urn": "a", "custom": True}]}})
    script = tmp_path / "pulumi"
    words = f"case \"$1 $2\" in 'stack output') echo '{outputs}';; 'stack export') echo '{state}';; "
    script.write_text(f'#!/bin/sh\n{words} *) echo "$1 with $AWS_ACCESS_KEY_ID";; esac\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "deployer")
    stack = Stack.read("dev")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "research")
    lines: list[str] = []
    stack.destroy(lines.append)
    assert "destroy with deployer" in lines
