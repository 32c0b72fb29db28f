"""Machines in their own namespaces: isolation, shutdown, and removal of everything they made."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from everspot_local.machines import contained, keeper, namespaces
from everspot_local.options import DOORS, Options

INIT = Path(__file__).with_name("local_init.py")
REASON = namespaces.why_not()
boots = pytest.mark.skipif(bool(REASON), reason=f"machines have no namespaces of their own here: {REASON}")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine's root tree, with the tests' init above it."""
    folder = Path(tmp_path_factory.mktemp("image"))
    init = folder / "init" / "usr" / "sbin" / "init"
    init.parent.mkdir(parents=True)
    init.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{INIT.read_text()}")
    init.chmod(0o755)
    (folder / "image.json").write_text(json.dumps({"layers": ["/", str(folder / "init")]}))
    return folder


@pytest.fixture
def service() -> Iterator[str]:
    """A service of this machine's loopback interface; its URL."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"x" * 3_000_000
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def start(home: Path, image: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """A machine below its keeper, as the local cloud starts it. Its interpreter comes as its data."""
    home.mkdir()
    program = [sys.executable, "-m", "everspot_local.machines.contained", "--image", str(image), *words]
    data = {"EVERSPOT_DATA": sys.base_prefix, keeper.MARK: home.name, "PATH": os.environ["PATH"]}
    return subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, *program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=home,
        env=data | variables,
    )  # fmt: skip


def first_line(machine: subprocess.Popen[str]) -> dict[str, Any]:
    assert machine.stdout is not None
    line = machine.stdout.readline()
    assert line.startswith("{"), line + machine.stdout.read()
    return dict(json.loads(line))


def order(machine: subprocess.Popen[str], sign: str) -> str:
    """Press the machine's button, or cut it off; return what it wrote since."""
    assert machine.stdin is not None and machine.stdout is not None
    machine.stdin.write(sign)
    machine.stdin.flush()
    text = machine.stdout.read()  # its input stays open meanwhile: without that, it would be cut off
    machine.communicate(timeout=120)
    return text


def groups(name: str) -> list[Path]:
    top = namespaces.control_groups()
    return [] if top is None else list(top.glob(f"*{name}*"))


@boots
def test_a_machine_has_processes_clocks_network_and_name_of_its_own(tmp_path: Path, image: Path, service: str) -> None:
    added = tmp_path / "added"
    (added / "etc").mkdir(parents=True)
    (added / "etc" / "added").write_text("above the image")
    mounts = Path("/proc/self/mountinfo").read_text()
    machine = start(tmp_path / "i-own", image, "--add", str(added), SERVICE_URL=service, WITH='a "quote" at 5%')
    facts = first_line(machine)
    assert (facts["pid"], facts["host"], facts["added"]) == (1, "i-own", "above the image")
    assert facts["processes"] == [1]
    assert facts["uptime"] < float(Path("/proc/uptime").read_text().split()[0])
    assert facts["interfaces"] == ["lo"]
    assert facts["group"] == "/"
    assert facts["service"] == "x" * 3_000_000
    assert (facts["kernel"], facts["modules"]) == (False, 0)
    assert '"WITH=a \\"quote\\" at 5%%"' in facts["settings"]
    assert f'"SERVICE_URL={service}"' in facts["settings"]
    assert not {"PATH=", "EVERSPOT_INSTANCE_ID="} & set(facts["settings"].replace('"', " ").split())
    end = order(machine, "T")
    assert "asked to switch off" in end and "i-own was switched off after" in end
    assert machine.returncode == 0
    assert groups("i-own") == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not Path("/written").exists()


@boots
def test_health_checks_reach_a_machine_and_its_metadata_service_has_a_name(tmp_path: Path, image: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ("--health", "HEALTH", "--metadata", "METADATA", "--metadata-name", "metadata.google.internal")
    machine = start(tmp_path / "i-checked", image, *words, HEALTH=address, METADATA="127.0.0.1:1")
    first_line(machine)
    end = time.monotonic() + 120
    hosts = ""
    while not hosts:
        assert time.monotonic() < end, "its server does not answer"
        with contextlib.suppress(OSError, http.client.HTTPException):  # it starts after the machine's first line
            hosts = urllib.request.urlopen(f"http://{address}/hosts", timeout=10).read().decode()
    assert "169.254.169.254 metadata.google.internal\n" in hosts
    order(machine, "T")
    assert machine.returncode == 0
    with pytest.raises(OSError):
        urllib.request.urlopen(f"http://{address}/hosts", timeout=10)


@boots
def test_a_machine_that_is_cut_off_leaves_no_process_and_no_mount(tmp_path: Path, image: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    machine = start(tmp_path / "i-cut", image)
    first_line(machine)
    running = keeper.descendants(machine.pid)
    assert len(running) >= 3  # the process that boots it, its process 1, and that process's children
    assert "asked" not in order(machine, "K")
    assert not keeper.processes().keys() & running  # an ended one may not be collected yet
    assert Path("/proc/self/mountinfo").read_text() == mounts


@boots
def test_a_machine_ends_with_the_one_who_booted_it(tmp_path: Path, image: Path) -> None:
    machine = start(tmp_path / "i-orphan", image)
    first_line(machine)
    running = keeper.descendants(machine.pid)
    (booter,) = [pid for pid in running if b"contained" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(booter, signal.SIGKILL)
    assert machine.stdout is not None
    assert machine.stdout.read() == ""
    machine.communicate(timeout=120)
    assert not keeper.processes().keys() & running  # an ended one may not be collected yet


@boots
def test_an_image_without_an_init_is_told_on_the_console(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "image.json").write_text(json.dumps({"layers": [str(tmp_path / "empty")]}))
    machine = start(tmp_path / "i-empty", tmp_path)
    assert machine.stdout is not None
    assert "the machine does not boot: FileNotFoundError" in machine.stdout.read()
    machine.communicate(timeout=120)
    assert machine.returncode == 1


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory, image: Path) -> Options:
    program = (sys.executable, "-m", "everspot_local.machines.contained", "--image", str(image))
    command = (*program, *DOORS["aws"])
    state = Path(tmp_path_factory.mktemp("contained"))
    return Options(state_dir=state, scale=120, boot_command=command, data_dir=Path(sys.base_prefix))


def booted(kit: Any, helpers: Any, **words: str) -> tuple[str, Path]:
    """An instance that has read its user data; its id and its console."""
    instance_id = kit.run(UserData=json.dumps({"do": "run", **words}))
    console = kit.cloud.machines.processes.folder(instance_id) / "console.log"
    helpers.until(lambda: console.exists() and '"order": {"do":' in console.read_text())
    return instance_id, console


@boots
def test_it_reads_its_metadata_at_the_link_local_address_and_ends_in_order(kit: Any, helpers: Any) -> None:
    instance_id, console = booted(kit, helpers)
    facts = json.loads(console.read_text().splitlines()[0])
    assert (facts["host"], facts["order"]) == (instance_id, {"do": "run"})
    assert f'"AWS_ENDPOINT_URL={kit.cloud.endpoint}"' in facts["settings"]
    assert "AWS_EC2_METADATA_SERVICE_ENDPOINT" not in facts["settings"]
    with kit.still():  # or a busy machine cuts it off before it has done what it was asked
        kit.ec2.terminate_instances(InstanceIds=[instance_id])
        helpers.until(lambda: "was switched off" in console.read_text())
    kit.reaches(instance_id, "terminated")
    assert "asked to switch off" in console.read_text()


@boots
def test_one_that_switches_itself_off_is_terminated_by_itself(kit: Any, helpers: Any) -> None:
    instance_id, _ = booted(kit, helpers, do="leave")
    ended = kit.reaches(instance_id, "terminated")
    assert ended["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"


@boots
def test_an_interruption_cuts_it_off(kit: Any, helpers: Any) -> None:
    instance_id, console = booted(kit, helpers)
    kit.do("interrupt", instance=instance_id, notice=False)
    kit.reaches(instance_id, "terminated")
    assert "asked to switch off" not in console.read_text()
    assert kit.cloud.machines.processes.processes(instance_id) == []


def test_a_machines_doors_lead_to_its_metadata_service_and_to_loopback_urls() -> None:
    variables = {
        "METADATA": "127.0.0.1:4000", "ENDPOINT": "http://127.0.0.1:5000/xml", "OTHER": "https://example.com",
        "PATH": "/bin", "HOME": "/home", "EVERSPOT_HOME": "/home", "EVERSPOT_WORK": "/work",
        keeper.MARK: "i-0", "EVERSPOT_DATA": "/nonexistent",
    }  # fmt: skip
    machine = contained.read_settings(variables, "METADATA")
    assert machine.doors == {
        ("169.254.169.254", 80): ("127.0.0.1", 4000),
        ("127.0.0.1", 5000): ("127.0.0.1", 5000),
    }
    assert machine.environment == {"ENDPOINT": "http://127.0.0.1:5000/xml", "OTHER": "https://example.com"}
    assert machine.health is None
    checked = contained.read_settings({**variables, "HEALTH": "127.0.0.1:6000"}, "METADATA", "HEALTH")
    assert (checked.health, checked.environment["HEALTH"]) == (("127.0.0.1", 6000), "127.0.0.1:6000")
    with pytest.raises(ValueError, match="METADATA has no address of a metadata service"):
        contained.read_settings({}, "METADATA")
    with pytest.raises(ValueError, match="HEALTH has no address"):
        contained.read_settings({}, "", "HEALTH")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machines", "kvm"], "is none of process, contained, vm"),
        (["--image", "."], "only --machines contained and vm boot one"),
        (["--machines", "contained"], "`everspot-local image` bakes one"),
        (["--machines", "contained", "--image", "."], "holds no image"),
        (["--machines", "contained", "--no-processes"], "run no --boot-command"),
        (["--machines", "vm"], "--machines vm: --image names the folder of an image"),
        (["--machines", "vm", "--image", "IMAGE"], "is an image for gcp: everspot-local image --cloud aws"),
        (["--machines", "contained", "--image", "IMAGE"], "is an image for gcp: everspot-local image --cloud aws"),
    ],
)
def test_up_says_what_its_machines_need(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "IMAGE").mkdir()
    (tmp_path / "IMAGE" / "image.json").write_text(json.dumps({"layers": ["/"], "cloud": "gcp"}))
    command = [sys.executable, "-m", "everspot_local.main", "up", *words, "--state-dir", str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (answer.returncode, message in " ".join(answer.stderr.split())) == (1, True), answer.stderr


def test_an_image_whose_layer_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "layer").mkdir()
    (tmp_path / "image.json").write_text(json.dumps({"layers": [str(tmp_path / "layer")]}))
    assert contained.read_layers(tmp_path) == [tmp_path / "layer"]
    shutil.rmtree(tmp_path / "layer")
    with pytest.raises(ValueError, match=r"its layer .*/layer is gone"):
        contained.read_layers(tmp_path)
