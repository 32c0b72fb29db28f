"""Which cluster a command uses: every command prints it, and it is selected once for all folders."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import everspot_cli
import pytest
from everspot_cli import userconfig
from everspot_cli.errors import of_store
from everspot_store import StoreUnavailable

from tests.cli.conftest import World, everspot


@pytest.fixture
def other(tmp_path: Path) -> World:
    (tmp_path / "other").mkdir()
    world = World(tmp_path / "other")
    world.store.write_manifest(world.store.manifest().model_copy(update={"cluster": "other"}))
    return world


READING = [
    ("jobs",),
    ("job", "moved"),
    ("logs", "moved"),
    ("instances",),
    ("report",),
    ("compare", "moved"),
    ("drain", "--undo"),
    ("prices", "show"),
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_every_command_names_the_cluster_on_standard_error_and_in_its_json(past, arguments):
    answer = past.run(*arguments)
    assert answer.code == 0
    assert answer.cluster == f"cluster test: {past.url} (--store)\n"
    past.store.logs.append("moved", 1, 0, b"words\n")
    json_answer = past.run("--json", *arguments)
    assert json_answer.err == "" and json_answer.cluster == ""
    rows = json_answer.json if isinstance(json_answer.json, list) else [json_answer.json]
    assert rows and {row["cluster"] for row in rows} == {"test"}


def test_no_command_opens_a_store_without_naming_it():
    """Those above are examples: there is one place that opens the cluster's store, and it says so."""
    rooms = Path(everspot_cli.__file__).parent
    assert [path.name for path in rooms.rglob("*.py") if "Store.open(" in path.read_text()] == ["session.py"]


def test_a_file_of_clusters_that_is_a_link_stays_one(world, tmp_path):
    target, link = tmp_path / "dotfiles.toml", userconfig.path()
    target.touch()
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    assert everspot("use", "one", "--store", world.url).code == 0
    assert link.is_symlink() and 'current = "one"' in target.read_text()
    assert target.stat().st_mode & 0o077 == 0


def test_a_cluster_is_noted_once_and_used_from_any_folder(world, other, tmp_path, monkeypatch):
    assert everspot("use", "one", "--store", str(world.root / "control")).code == 0
    assert everspot("--store", other.url, "use", "two").code == 0
    monkeypatch.chdir(tmp_path.parent)
    assert everspot("jobs").cluster == f"cluster other: {other.url} (everspot cluster use)\n"
    assert everspot("--cluster", "one", "jobs").cluster == f"cluster test: {world.url} (--cluster)\n"
    assert everspot("jobs", env={"EVERSPOT_CLUSTER": "one"}).cluster.startswith("cluster test:")
    assert everspot("jobs", env={"EVERSPOT_STORE": world.url}).cluster.endswith("(EVERSPOT_STORE)\n")
    assert everspot("use", "one").code == 0
    assert everspot("--json", "use").json == {"name": "one", "store": world.url}
    rows = everspot("--json", "clusters").json
    assert [(row["name"], row["store"], row["current"]) for row in rows] == [
        ("one", world.url, True),
        ("two", other.url, False),
    ]
    assert "* one" in everspot("clusters").out
    assert everspot("use", "one", "--forget").code == 0
    assert [row["name"] for row in everspot("--json", "clusters").json] == ["two"]
    assert world.store.manifest().cluster == "test"


def test_a_forgotten_cluster_is_in_use_no_more_and_an_unknown_one_is_not_found(world):
    assert everspot("use", "one", "--store", world.url).code == 0
    assert everspot("--json", "use", "one", "--forget").json == {"name": "one", "forgotten": True}
    assert everspot("--json", "clusters").json == []
    assert everspot("jobs").code != 0
    again = everspot("use", "one", "--forget")
    assert again.code == 3
    assert "no cluster is known as 'one'" in again.err
    assert world.store.manifest().cluster == "test"


def test_the_file_is_the_users_alone_and_any_text_survives_it(world):
    url = world.url + "/%22quoted%22"
    userconfig.save(userconfig.UserConfig("a.b", {"a.b": userconfig.KnownCluster("a.b", url, 'so "called" ü')}))
    assert userconfig.load().clusters["a.b"] == userconfig.KnownCluster("a.b", url, 'so "called" ü')
    assert stat.S_IMODE(userconfig.path().stat().st_mode) == 0o600


def test_what_is_no_cluster_is_not_noted(world, tmp_path):
    (tmp_path / "empty").mkdir()
    assert everspot("use", "bad", "--store", str(tmp_path / "empty")).code == 1
    assert everspot("use", "bad name", "--store", world.url).code == 2
    answer = everspot("use", "unknown")
    assert answer.code == 3
    assert "everspot cluster use unknown --store URL" in answer.err
    assert everspot("clusters").out.startswith("None is known yet")


def test_a_name_that_nobody_has_noted_lists_those_that_are_known(world):
    everspot("use", "one", "--store", world.url)
    answer = everspot("--cluster", "two", "jobs")
    assert answer.code == 3
    assert "known are: one" in answer.err


def test_two_options_that_each_name_a_cluster_are_refused(world):
    answer = everspot("--store", world.url, "--cluster", "one", "jobs")
    assert answer.code == 2
    assert "--store and --cluster" in answer.err


def test_a_file_that_cannot_be_read_is_named(world):
    userconfig.path().parent.mkdir(parents=True)
    for text in ("current = [", "[clusters]\nx = 3", "[clusters.x]\nstore = 4"):
        userconfig.path().write_text(text)
        answer = everspot("clusters")
        assert answer.code == 1
        assert str(userconfig.path()) in answer.err
    assert world.run("jobs").code == 0  # not needed with an explicit cluster


@pytest.fixture
def nobody(monkeypatch, tmp_path):
    """A machine that has no credentials of any kind, and no metadata service."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


def test_missing_credentials_are_said_without_asking_anybody(nobody, monkeypatch):
    connections = []
    monkeypatch.setattr("socket.socket.connect", lambda self, address: connections.append(address))
    began = time.monotonic()
    answer = everspot("--store", "s3://somewhere", "jobs")
    assert answer.code == 4
    assert "there are no AWS credentials for s3://somewhere" in answer.err
    assert "aws sso login" in answer.err
    assert connections == []
    assert time.monotonic() - began < 60  # a bound for a hang, no measurement
    json_answer = everspot("--json", "--store", "s3://somewhere", "jobs")
    assert json.loads(json_answer.err)["exit_code"] == 4


def test_a_profile_that_does_not_exist_is_named(nobody):
    answer = everspot("--store", "s3://somewhere", "jobs", env={"AWS_PROFILE": "nowhere"})
    assert answer.code == 4
    assert "nowhere" in answer.err


def test_a_profile_of_the_aws_configuration_is_enough(aws, nobody, monkeypatch, tmp_path, moto_endpoint):
    import boto3
    from everspot_core.cluster.manifest import Manifest

    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_endpoint)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    (tmp_path / "credentials").write_text("[team]\naws_access_key_id = testing\naws_secret_access_key = testing\n")
    s3 = boto3.Session(profile_name="team").client("s3", region_name="us-east-1")
    for bucket in ("profiled-control", "profiled-data"):
        s3.create_bucket(Bucket=bucket)
    manifest = Manifest(
        cluster="profiled", cloud="aws", region="us-east-1",
        control_url="s3://profiled-control", data_url="s3://profiled-data",
    )  # fmt: skip
    s3.put_object(Bucket="profiled-control", Key="cluster.json", Body=manifest.to_json())
    assert everspot("--store", "s3://profiled-control", "jobs").code == 4
    assert everspot("use", "it", "--store", "s3://profiled-control", "--profile", "team").code == 0
    assert everspot("jobs").cluster == "cluster profiled: s3://profiled-control (everspot cluster use)\n"


def test_every_request_of_a_command_has_the_profile_of_its_cluster(aws, nobody, monkeypatch, tmp_path, moto_endpoint):
    """A process of its own, as for a user: boto3 keeps the credentials that it has read."""
    import boto3

    session = boto3.Session("testing", "testing", region_name="us-east-1")
    iam, s3 = (session.client(name, endpoint_url=moto_endpoint) for name in ("iam", "s3"))
    iam.create_user(UserName="researcher")
    key = iam.create_access_key(UserName="researcher")["AccessKey"]
    s3.create_bucket(Bucket="other-account")
    manifest = {"cluster": "profiled", "cloud": "aws", "region": "us-east-1"}
    urls = {"control_url": "s3://other-account", "data_url": "s3://other-account"}
    s3.put_object(Bucket="other-account", Key="cluster.json", Body=json.dumps({**manifest, **urls}))
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {key['AccessKeyId']}\naws_secret_access_key = {key['SecretAccessKey']}\n"
    )
    for name, value in {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_ENDPOINT_URL": moto_endpoint,
        "AWS_ACCESS_KEY_ID": "AKIAOFTHESHELL",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    assert everspot("use", "it", "--store", "s3://other-account", "--profile", "team").code == 0
    command = [sys.executable, "-m", "everspot_cli.main", "--json", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["credentials"]["detail"] == "arn:aws:iam::123456789012:user/researcher"


@pytest.fixture
def folder(nobody, tmp_path, monkeypatch):
    """A project's folder with one in it, in which somebody works, and no Pulumi to ask."""
    (tmp_path / "project/inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project/inner")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("EVERSPOT_LOCAL_DIR", raising=False)
    return tmp_path / "project"


@pytest.mark.parametrize("arguments", [("jobs",), ("--store", "s3://somewhere", "jobs")], ids=["cluster", "keys"])
def test_a_shell_that_does_not_know_the_local_cloud_of_its_folder_is_told_how(folder, arguments):
    assert "local cloud" not in everspot(*arguments).err
    state = folder / ".everspot/local/state.json"
    state.parent.mkdir(parents=True)
    assert "does not run, and its clusters are gone with it: everspot-local up; or " in everspot(*arguments).err
    for text in ("{", "[]", json.dumps({"endpoint": "http://127.0.0.1:1", "pid": 2**22 + 1})):  # no process has that id
        state.write_text(text)
        assert "does not run" in everspot(*arguments).err
    state.write_text(json.dumps({"endpoint": "http://127.0.0.1:1", "pid": os.getpid()}))
    answer = everspot(*arguments)
    assert answer.code == 4
    hint = answer.err.partition("hint: ")[2]
    assert hint.startswith(f'a local cloud runs in {state.parent}; this shell talks to it after: eval "$(everspot-lo')
    assert "local cloud" not in everspot(*arguments, env={"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}).err


@pytest.mark.parametrize(
    ("endpoint", "hint"),
    [("http://127.0.0.1:1", "For any other cluster use a new shell"), ("", "try again in a minute")],
)
def test_a_shell_that_still_has_a_local_cloud_s_endpoint_is_told_so(folder, monkeypatch, endpoint, hint):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert of_store(StoreUnavailable("no answer"), "s3://everspot-dev-control").hint.endswith(hint)


def test_a_local_cloud_that_is_kept_elsewhere_is_found_by_its_variable(folder, tmp_path):
    state_folder = tmp_path / "kept"
    state_folder.mkdir()
    (state_folder / "state.json").write_text(json.dumps({"endpoint": "http://127.0.0.1:1", "pid": os.getpid()}))
    assert (
        f"a local cloud runs in {state_folder};" in everspot("jobs", env={"EVERSPOT_LOCAL_DIR": str(state_folder)}).err
    )
