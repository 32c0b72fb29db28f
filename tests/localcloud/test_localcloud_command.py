"""The `everspot-local` command and its daemon, as users run them."""

import io
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from everspot_clouds.price_files import FOLDER, write_table
from everspot_core.capacity.price_table import PriceTable, TypePrice
from everspot_local.address import alive
from everspot_local.main import main

SCRIPT = Path(__file__).with_name("local_machine.py")


class Command:
    """`everspot-local` on a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up(self, *options: str) -> str:
        """A real process, whose end leaves the daemon to nobody."""
        command = [sys.executable, "-m", "everspot_local.main", "up", *options, "--state-dir", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def __call__(self, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        """Run the command in this process, and return its standard output, or its standard error if it fails."""
        out, err, ended = io.StringIO(), io.StringIO(), 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["everspot-local", *arguments, "--state-dir", str(self.folder)])
            try:
                main()
            except SystemExit as error:
                ended = error.code or 0  # type: ignore[assignment]
        assert ended == code, err.getvalue()
        return err.getvalue() if code else out.getvalue()

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    command = Command(Path(tmp_path_factory.mktemp("command")) / "local")
    boot = f"{sys.executable} {SCRIPT}"
    command.up("--time-scale", "120", "--boot-command", boot, "--quota", "L-34B43A08=64")
    yield command
    command("down")


def test_instances_that_run_something_need_linux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "need Linux" in Command(tmp_path / "mac")("up", code=1)
    assert not (tmp_path / "mac").exists()


def client(local: Command, service: str) -> Any:
    env = local.json("env")
    return boto3.client(
        service,
        endpoint_url=env["AWS_ENDPOINT_URL"],
        region_name=env["AWS_REGION"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
    )


def test_up_twice_leaves_the_first(local: Command) -> None:
    state = json.loads((local.folder / "state.json").read_text())
    assert local.json("up")["pid"] == state["pid"]
    assert "runs already" in local("up")


def test_env_is_what_a_shell_and_the_engine_need(local: Command) -> None:
    shell = f"{local('env')}\nexec {sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    shell_environment = json.loads(
        subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    )
    environment = local.json("env")
    assert {name: shell_environment[name] for name in environment} == environment
    first = environment["PATH"].split(os.pathsep)[:3]
    assert [p.rsplit("/", 2)[-2:] for p in first[:2]] == [["toolchain", "bin"], ["toolchain", "plugins"]]
    assert first[2] == str(Path(sys.executable).parent)
    assert environment["PULUMI_BACKEND_URL"] == f"file://{local.folder}/pulumi"
    assert (local.folder / "pulumi").is_dir()
    assert environment["EVERSPOT_CLOCK"].startswith("120@")


def test_quotas_are_set_by_the_command_line(local: Command) -> None:
    quota = client(local, "service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode="L-34B43A08")
    assert quota["Quota"]["Value"] == 64


def test_up_holds_roles_to_their_policies(local: Command) -> None:
    owner = client(local, "iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    role = owner.create_role(RoleName="reader", AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))["Role"]
    time.sleep(2)  # four minutes of the market: STS knows of the role
    answer = client(local, "sts").assume_role(RoleArn=role["Arn"], RoleSessionName="session")
    session = boto3.Session(
        answer["Credentials"]["AccessKeyId"],
        answer["Credentials"]["SecretAccessKey"],
        answer["Credentials"]["SessionToken"],
        region_name="eu-west-1",
    )
    ec2 = session.client("ec2", endpoint_url=local.json("env")["AWS_ENDPOINT_URL"])
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        ec2.describe_instances()
    read = {"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [read]})
    owner.put_role_policy(RoleName="reader", PolicyName="reads", PolicyDocument=policy)
    ec2.describe_instances()


def test_status_interrupt_and_drought(local: Command, helpers: Any) -> None:
    ec2 = client(local, "ec2")
    client(local, "iam").create_service_linked_role(AWSServiceName="spot.amazonaws.com")
    answer = ec2.run_instances(
        ImageId="ami-12c6146b", InstanceType="m6i.large", MinCount=1, MaxCount=1, UserData='{"do": "run"}',
        InstanceMarketOptions={"MarketType": "spot"},
    )  # fmt: skip
    instance_id = answer["Instances"][0]["InstanceId"]
    helpers.until((local.folder / "instances" / instance_id / "ready").exists)
    (shown,) = local.json("status")["instances"]
    assert (shown["id"], shown["market"], shown["state"]) == (instance_id, "spot", "running")
    assert alive(shown["pid"])
    for width in ("80", "50"):  # ids are there to be copied, and nothing of a row is lost
        printed = local("status", env={"COLUMNS": width})
        assert instance_id in printed
        assert "…" not in printed
    assert local.json("interrupt", instance_id) == {"instance": instance_id}
    helpers.until(lambda: not alive(shown["pid"]))
    assert instance_id not in local("status")
    assert local.json("drought", "m6i.large/eu-west-1a", "--for", "30d")["pools"] == ["m6i.large/eu-west-1a"]
    assert [p["dry"] for p in local.json("status")["pools"] if p["pool"] == "m6i.large/eu-west-1a"] == [True]


def test_replay_plays_traces_from_now_on(local: Command, tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_text('{"c6i.large/eu-west-1b": {"metadata": {"gap_seconds": 300}, "data": [3]}}')
    answer = local.json("replay", str(path))
    assert answer["pools"] == ["c6i.large/eu-west-1b"]
    assert "c6i.large/eu-west-1b" in local("replay", str(path))
    (pool,) = (p for p in local.json("status")["pools"] if p["pool"] == "c6i.large/eu-west-1b")
    assert pool["available"] == 3
    path.write_text("{}")
    assert "not empty" in local("replay", str(path), code=1)


def test_what_cannot_be_done_is_said_in_one_line(local: Command, tmp_path: Path) -> None:
    assert "i-0" in local("interrupt", "i-0", code=1)
    assert "mars" in local("drought", "mars/x", code=1)
    nobody = Command(tmp_path)
    for wrong in ("L-0=1", "L-34B43A08", "L-34B43A08=-1"):
        assert "--quota" in nobody("up", "--quota", wrong, code=1)
    for wrong in ("boot=soon", "sleep=3s", "boot"):
        assert "--delay" in nobody("up", "--delay", wrong, code=1)
    assert "everspot-local up" in nobody("status", code=1)
    assert nobody("down") == "nothing was up\n"
    bad = tmp_path / "bad.yaml"
    bad.write_text("- {at: 1s, action: explode}")
    assert "explode" not in nobody("up", "--script", str(bad), code=1)
    assert not (tmp_path / "state.json").exists()


def test_kubernetes_keeps_real_time_and_needs_its_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Command(tmp_path / "local")
    (tmp_path / "Pulumi.yaml").touch()
    monkeypatch.chdir(tmp_path)
    assert "--time-scale" in nobody("up", "--cloud", "kubernetes", "--time-scale", "12", code=1)
    assert "--boot-command" in nobody("up", "--cloud", "kubernetes", "--boot-command", "true", code=1)
    assert "make setup WITH=kubernetes" in nobody("up", "--cloud", "kubernetes", code=1)
    assert "aws, gcp" in nobody("up", "--cloud", "azure", code=1)
    assert not (tmp_path / "local").exists()


def test_controls_answer_errors_in_json(local: Command) -> None:
    endpoint = local.json("env")["AWS_ENDPOINT_URL"]
    bad_requests = (("price", b"{", 400), ("price", b"{}", 400), ("nothing", b"{}", 400), ("price", None, 405))
    for path, body, status in bad_requests:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(f"{endpoint}/_market/{path}", data=body))
        with caught.value as error:
            assert (error.code, "error" in json.loads(error.read())) == (status, True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_the_daemon_ends_its_instances_end_too(tmp_path: Path, helpers: Any, number: int) -> None:
    local = Command(tmp_path / "local")
    pid = json.loads(local.up("--time-scale", "120", "--boot-command", f"{sys.executable} {SCRIPT}", "--json"))["pid"]
    answer = client(local, "ec2").run_instances(
        ImageId="ami-12c6146b", InstanceType="m6i.large", MinCount=1, MaxCount=1, UserData='{"do": "run"}'
    )
    instance_id = answer["Instances"][0]["InstanceId"]
    helpers.until((local.folder / "instances" / instance_id / "ready").exists)
    keeper = local.json("status")["instances"][0]["pid"]
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    assert len(children) == 2, "the boot command, and the daemon that it left to its keeper"
    os.kill(pid, number)
    helpers.until(lambda: not any(alive(int(p)) for p in (pid, keeper, *children)))
    assert "nothing was up" in local("down")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("interrupt", "i-nobody"), 1, "i-nobody"),
        (("drought", "nothing/nowhere"), 1, "nothing/nowhere"),
        (("interrupt", "--sideways"), 2, "--sideways"),
        (("status", "--no-such-option"), 2, "--no-such-option"),
    ],
)
def test_with_json_an_error_is_json_too(local: Command, arguments: tuple[str, ...], code: int, words: str) -> None:
    error = json.loads(local(*arguments, "--json", code=code))
    assert set(error) == {"error", "hint", "problems", "exit_code"}
    assert error["exit_code"] == code and words in error["error"]
    assert words in local(*arguments, code=code)


@pytest.mark.parametrize(
    ("cloud", "region", "kind", "zone"),
    [("aws", "eu-central-1", "g5.xlarge", "eu-central-1a"), ("gcp", "europe-west1", "g2-standard-4", "europe-west1-b")],
)
def test_a_region_whose_prices_are_unknown_is_refused_unless_the_project_has_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud: str, region: str, kind: str, zone: str
) -> None:
    """Its market would sell nothing, and the first preview would refuse every type."""
    monkeypatch.chdir(tmp_path)
    local = Command(tmp_path / "local")
    error = local("up", "--cloud", cloud, "--region", region, code=1)
    assert f"no price of an instance type in {region} is known" in error
    assert f"prices/{cloud}-{region}.json" in error and "Take one of" in error
    assert not (tmp_path / "local").exists()
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    price = TypePrice(instance_type=kind, on_demand_usd_per_hour=1.2, spot_usd_per_hour={zone: 0.5})
    as_of = datetime(2026, 3, 1, tzinfo=UTC)
    table = PriceTable(
        cloud=cloud, region=region, as_of=as_of, on_demand_source="list", spot_source="list", prices=[price]
    )
    write_table(tmp_path / FOLDER, table)
    try:
        assert "is up" in local.up("--cloud", cloud, "--region", region, "--no-processes")
    finally:
        local("down")
