"""What a job may not do in the image: attacks on the agent, on other jobs and on the machine.

Each attack is a Python program that exits with 0 where it succeeds. It is tried as the agent's user, as which jobs ran
before they had users of their own, and then as a job of the broker's beside another job.
"""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from image_machine import LOOK_UP, LoneMachine, resolver, until

pytestmark = pytest.mark.timeout(900)
PYTHON = "/opt/everspot/bin/python"
HOME = "/var/lib/everspot"
WORK = f"{HOME}/work"
AS_AGENT = ("setpriv", "--reuid=everspot", "--regid=everspot", "--init-groups", "env", "-C", "/")

LAUNCH = """
import json, os, sys, time
from pathlib import Path
from everspot_core.jobs.records import Seat
from everspot_train.agent.brokered import BrokerLauncher
from everspot_train.agent.process import JobLaunch

home, name, program, metadata, seat, act, container = Path("/var/lib/everspot"), *map(json.loads, sys.argv[1:])
run, work, tmp, cache = (home / place / name for place in ("runs", "work", "tmp", "cache"))
for folder in (run, work, tmp, cache):
    folder.mkdir(parents=True, exist_ok=True)
environment = {"PATH": "/usr/bin:/bin", "HOME": str(work), "TMPDIR": str(tmp)}
seat = Seat.model_validate(seat) if seat else None
launcher = BrokerLauncher(Path("/run/everspot-broker.socket"))
command, folders = [sys.executable, "-c", program], [tmp, cache]
job = JobLaunch(command, run, work, environment, seat, folders, metadata=metadata, container=container)
process = launcher.launch(job)
output, files, end = run / "output.log", None, time.monotonic() + 200
while act == "hold":
    time.sleep(1)
while act in ("terminate", "files") and "ready" not in (output.read_text() if output.exists() else ""):
    time.sleep(0.05)
if act == "terminate":
    process.terminate()
if act == "files":
    finder = launcher.open_files(run)
    paths = (*finder.opened(os.fsencode(work)), finder.mapped(os.fsencode(work)))
    files = [sorted(map(os.fsdecode, names)) for names in paths]
while act != "files" and (code := process.exit_code()) is None and time.monotonic() < end:
    time.sleep(0.05)
process.kill()
print(json.dumps({"code": process.exit_code(), "output": output.read_text(), "files": files}))
"""


class JobMachine(LoneMachine):
    """A booted machine whose broker starts jobs for a test, which is its agent."""

    def run_job(
        self,
        name: str,
        program: str,
        *,
        act: str = "wait",
        seat: dict[str, Any] | None = None,
        metadata: bool = False,
        container: bool = False,
    ) -> dict[str, Any]:
        """Run a job to its end; return its exit code and its output.

        Args:
            name: of its folders.
            program: of Python.
            act: `terminate` or look for `files` once it has printed `ready`.
            seat: its part of the machine.
            metadata: whether it may reach the metadata service.
            container: whether it may make the namespaces of a container.
        """
        words = [json.dumps(part) for part in (name, program, metadata, seat, act, container)]
        answer = self.run(*AS_AGENT, PYTHON, "-c", LAUNCH, *words)
        return dict(json.loads(answer.splitlines()[-1]))

    def hold_job(self, name: str, program: str) -> None:
        """Start a job that runs until `tests-NAME.service`, which holds it in place of an agent, ends."""
        words = [json.dumps(part) for part in (name, program, False, None, "hold", False)]
        self.run("systemd-run", f"--unit=tests-{name}", "--property=User=everspot", PYTHON, "-c", LAUNCH, *words)
        until(lambda: self.main_process(name) or None, "the job runs", 120)

    def main_process(self, name: str) -> int:
        """Return the first process of the job with this run directory; 0 if there is none."""
        find = f"grep -lsa EVERSPOT_RUN_DIR={HOME}/runs/{name} /proc/[0-9]*/environ | head -n 1"
        path = self.run("sh", "-c", find).strip()
        return int(Path(path).parent.name) if path else 0

    def find_processes(self, user: str) -> list[str]:
        """Return the processes of a user."""
        # A process may end during the listing, which is no error.
        lines = self.run("sh", "-c", "stat -c '%U %n' /proc/[0-9]* 2>/dev/null || true").splitlines()
        assert "root /proc/1" in lines
        return [path for owner, path in map(str.split, lines) if owner == user]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, image: Path) -> Iterator[JobMachine]:
    """A machine with a job on it, and with a metadata service that knows the instance's user data."""
    folder = tmp_path_factory.mktemp("isolation")
    dropin = folder / "added/etc/systemd/system/everspot-agent.service.d/tests.conf"
    dropin.parent.mkdir(parents=True)
    # The test is the agent: the unit only holds what the attacks look for.
    dropin.write_text("[Service]\nEnvironment=SECRET=agents-secret\nExecStart=\nExecStart=/usr/bin/sleep infinity\n")
    machine = JobMachine(folder / "machine", image, folder / "added")
    try:
        assert machine.await_boot() == "running"
        machine.hold_job("victim", VICTIM)
        for address in ("169.254.169.254/32", "fd00:ec2::254/128"):
            machine.run("ip", "address", "add", address, "dev", "lo")
        machine.run("systemd-run", "--unit=tests-metadata", PYTHON, "-c", METADATA)
        check = ATTACKS["reach the metadata service"].program
        until(lambda: machine.run(*AS_AGENT, PYTHON, "-c", check, check=False) or None, "the metadata service", 60)
        yield machine
    finally:
        machine.close()


VICTIM = """
import os, time
from pathlib import Path
Path("secret").write_text("victims-secret")
Path("/dev/shm/secret").write_text("victims-secret")
Path("/tmp/secret").write_text("victims-secret")
time.sleep(100000)
"""
METADATA = """
import socket, threading
def serve(address, family):
    server = socket.create_server((address, 80), family=family)
    while True:
        client, _ = server.accept()
        client.recv(4096)
        client.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nthe-user-data")
        client.close()
threading.Thread(target=serve, args=("fd00:ec2::254", socket.AF_INET6)).start()
serve("169.254.169.254", socket.AF_INET)
"""
ASK_METADATA = """
import socket, sys
answers = []
for address in ("{address}",):
    with socket.create_connection((address, 80), timeout=3) as connection:
        connection.sendall(b"GET /latest/user-data HTTP/1.0\\r\\n\\r\\n")
        answers.append(connection.recv(4096))
sys.exit(0 if b"the-user-data" in answers[0] and not print("read") else 1)
"""


@dataclass(frozen=True)
class Attack:
    """An attack.

    Attributes:
        program: what is run; `{agent}` and `{victim}` are processes.
        as_agent: whether it succeeds as the agent's user. What only a wall of the unit keeps from it does not.
    """

    program: str
    as_agent: bool = True


ATTACKS = {
    "read the agent's environment": Attack("""
import sys
sys.exit("agents-secret" not in open("/proc/{agent}/environ").read())
"""),
    "see the agent's process": Attack("import os\nos.stat('/proc/{agent}')"),
    "read the agent's folder": Attack(f"""
import os, sys
sys.exit("runs" not in os.listdir("{HOME}") or len(os.listdir("{HOME}/runs")) < 2)
"""),
    "write to the agent's folder": Attack(f"open('{HOME}/manifest.json', 'w').close()"),
    "switch the machine off": Attack("import os\nos.close(os.open('/run/everspot/other', os.O_CREAT | os.O_WRONLY))"),
    "read another job's working directory": Attack(f"open('{WORK}/victim/secret').read()"),
    "write to another job's run directory": Attack(f"open('{HOME}/runs/victim/stop.json', 'w').close()"),
    "read another job's environment": Attack("""
import sys
sys.exit("EVERSPOT_RUN_DIR" not in open("/proc/{victim}/environ").read())
""", as_agent=False),
    "read what systemd knows of another job's program": Attack("""
import subprocess, sys
words = ["systemctl", "show", "--property=Environment,ExecStart", "everspot-job-0.service"]
sys.exit("VICTIM" not in subprocess.run(words, capture_output=True, text=True).stdout)
""", as_agent=False),
    "read another job's files in memory": Attack("open('/dev/shm/secret').read()", as_agent=False),
    "read another job's temporary files": Attack("open('/tmp/secret').read()", as_agent=False),
    "signal the agent": Attack("import os\nos.kill({agent}, 0)"),
    "signal another job": Attack("import os\nos.kill({victim}, 0)", as_agent=False),
    "trace the agent": Attack("""
import ctypes, os
if ctypes.CDLL(None).ptrace(16, {agent}, 0, 0) != 0:  # PTRACE_ATTACH
    raise PermissionError
ctypes.CDLL(None).ptrace(17, {agent}, 0, 0)  # PTRACE_DETACH
"""),
    "write to the agent's memory": Attack("open('/proc/{agent}/mem', 'r+b').close()"),
    "connect to the broker": Attack("""
import socket
socket.socket(socket.AF_UNIX).connect("/run/everspot-broker.socket")
"""),
    "reach the metadata service": Attack(ASK_METADATA.replace("{address}", "169.254.169.254")),
    "reach the metadata service by its other address": Attack(ASK_METADATA.replace("{address}", "fd00:ec2::254")),
    "become root": Attack("import os\nos.setuid(0)", as_agent=False),
    "become the agent": Attack("import os\nos.setuid({agent_uid})"),
    "change the installed programs": Attack("open('/opt/everspot/bin/everspot-agent', 'a').close()", as_agent=False),
    "change the system": Attack("open('/etc/passwd', 'a').close()", as_agent=False),
    "leave a file for everybody": Attack("""
import os
open(f"/run/lock/left-{os.getpid()}", "x").close()
"""),
    "leave a queue of messages": Attack("""
import ctypes
if ctypes.CDLL(None).msgget(4711, 0o1666) < 0:
    raise PermissionError
""", as_agent=True),
    "leave a key in the kernel": Attack("""
import ctypes
if ctypes.CDLL(None, use_errno=True).syscall(248, b"user", b"left", b"x", 1, -4) < 0:  # add_key, the user's keyring
    raise PermissionError
"""),
    "write to the journal": Attack("""
import socket
to = "/run/systemd/journal/socket"
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"SYSLOG_IDENTIFIER=everspot-agent\\nMESSAGE=hello\\n", to)
"""),
    "write to the system's log": Attack("""
import socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"<14>everspot-agent: hello", "/dev/log")
"""),
    "give the journal an output": Attack("""
import socket
socket.socket(socket.AF_UNIX).connect("/run/systemd/journal/stdout")
"""),
    "notify systemd": Attack("""
import socket
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"STATUS=hello", "/run/systemd/notify")
"""),
    "ask one of systemd's services": Attack("""
import glob, socket, sys
def answers(path):
    try:
        return socket.socket(socket.AF_UNIX).connect(path) is None
    except OSError:
        return False
folders = ("/run/systemd", "/run/systemd/userdb")
sys.exit(not any(answers(path) for folder in folders for path in glob.glob(f"{folder}/io.systemd.*")))
"""),
    "set up a ring of system calls that no filter sees": Attack("""
import ctypes
if ctypes.CDLL(None).syscall(425, 8, ctypes.create_string_buffer(120)) < 0:  # io_uring_setup
    raise PermissionError
"""),
    "make a namespace of its own": Attack("""
import ctypes
if ctypes.CDLL(None).unshare(0x10000000) != 0:
    raise PermissionError
"""),
}  # fmt: skip
LEAVES_ITS_OWN = ("leave a queue of messages",)
"""What succeeds for a job, too, but in namespaces that end with it."""


def fill(machine: JobMachine, program: str) -> str:
    values = {
        "agent": machine.show("everspot-agent.service", "MainPID"),
        "victim": str(machine.main_process("victim")),
        "agent_uid": machine.run("id", "-u", "everspot").strip(),
    }
    for name, value in values.items():
        program = program.replace(f"{{{name}}}", value)
    return program


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_a_job_cannot(machine: JobMachine, name: str) -> None:
    attack = ATTACKS[name]
    program = fill(machine, attack.program)
    code = machine.run(*AS_AGENT, "sh", "-c", f"{shlex.join([PYTHON, '-c', program])} >/dev/null 2>&1; echo $?")
    if attack.as_agent:
        assert code.strip() == "0", "the attack does not even succeed where nothing keeps it from it"
    ended = machine.run_job("attacker", program)
    if name in LEAVES_ITS_OWN:
        assert machine.run("ipcs", "--queues").count("0x00001267") <= 1, "the agent's user has left one above"
    else:
        assert ended["code"] != 0, ended["output"]
    assert machine.show("everspot-agent.service", "ActiveState") == "active"
    assert machine.main_process("victim")


IN_NAMESPACE = """
import ctypes, json, os, subprocess, sys
from pathlib import Path
attacks, user = json.loads({attacks!r}), os.getuid()
def ends_well(program):
    return subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
def succeed():
    return [name for name, program in attacks.items() if ends_well(program)]
before = succeed()
refused = [flag for flag in {others} if ctypes.CDLL(None).unshare(flag) != 0]
if ctypes.CDLL(None).unshare(0x10020000) != 0:  # a user and a mount namespace
    sys.exit("there are no namespaces")
Path("/proc/self/uid_map").write_text(f"0 {{user}} 1")
print(json.dumps([before, refused, succeed()]))
"""
OTHER_NAMESPACES = (0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000)
"""Network, processes, messages, host name, control groups (linux/sched.h)."""


def test_a_job_with_a_container_cannot_do_more_either(machine: JobMachine) -> None:
    """Given a job that may make the namespaces of a container, when it is root in its own, then no attack succeeds but
    those on the namespaces themselves."""
    attacks = json.dumps({name: fill(machine, attack.program) for name, attack in ATTACKS.items()})
    program = IN_NAMESPACE.format(attacks=attacks, others=OTHER_NAMESPACES)
    ended = machine.run_job("contained", program, container=True)
    assert ended["code"] == 0, ended["output"]
    before, refused, as_root = json.loads(ended["output"])
    assert set(before) == {*LEAVES_ITS_OWN, "make a namespace of its own"}
    assert refused == list(OTHER_NAMESPACES)
    assert set(as_root) == {*LEAVES_ITS_OWN, "become root"}  # without a group it makes no further namespace


SEAT = {"job_id": "j", "epoch": 1, "vcpus": 1, "memory_gib": 0.25, "share": 1.0, "changed_at": "2026-01-01T00:00:00Z"}


def test_the_unit_of_a_job_has_walls(machine: JobMachine) -> None:
    units = machine.run("systemctl", "list-units", "--plain", "--no-legend", "everspot-job-*.service").split()
    victims = next(name for name in units if name.endswith(".service"))
    text = machine.run("systemd-analyze", "security", "--no-pager", victims)
    assert float(text.strip().splitlines()[-1].rpartition(": ")[2].split()[0]) <= 2.5


def test_a_job_ends_with_the_code_of_its_program(machine: JobMachine) -> None:
    assert machine.run_job("code", "print('words'); raise SystemExit(3)") == {
        "code": 3,
        "output": "words\n",
        "files": None,
    }
    assert machine.run_job("signalled", "import os\nos.kill(os.getpid(), 15)")["code"] == -15
    assert machine.run_job("sound", "open('/dev/stdout', 'w').write('by its path')")["output"] == "by its path"


def test_sigterm_reaches_the_process_that_handles_it_and_leaves_it_its_time(machine: JobMachine) -> None:
    """The first process ends before the one that saves."""
    saver = """
import signal, sys, time
def save(*_):
    time.sleep(2)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(100)
"""
    program = f"""
import signal, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {saver!r}])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
time.sleep(100)
"""
    ended = machine.run_job("told", program, act="terminate")
    assert (ended["code"], ended["output"].split()) == (5, ["ready", "saved"])


def test_the_agent_sees_which_files_a_job_writes_to(machine: JobMachine) -> None:
    program = """
import mmap, time
opened, appending, mapped = open("o", "w"), open("a", "a"), open("m", "w+b")
mapped.truncate(4096)
view = mmap.mmap(mapped.fileno(), 4096)
mapped.close()
print("ready", flush=True)
time.sleep(100)
"""
    assert machine.run_job("writer", program, act="files")["files"] == [["m", "o"], ["a"], ["m"]]


def test_a_fork_bomb_ends_at_the_jobs_own_limit(machine: JobMachine) -> None:
    program = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except BlockingIOError:
    print(count, flush=True)
"""
    ended = machine.run_job("bomb", program, seat=SEAT)
    assert ended["code"] == 0
    assert 1000 < int(ended["output"]) <= 1536
    assert machine.find_processes("everspot-job-1") == []
    assert machine.main_process("victim")


def test_a_job_fills_no_memory_but_its_own(machine: JobMachine) -> None:
    used = "df --output=used /dev/shm | tail -n 1"
    before = machine.run("sh", "-c", used)
    program = "file = open('/dev/shm/fill', 'wb')\nwhile True: file.write(bytes(1 << 20)); file.flush()"
    assert machine.run_job("filler", program, seat=SEAT)["code"] != 0
    assert machine.run("sh", "-c", used) == before


def test_what_a_job_leaves_is_gone_when_its_user_gets_the_next_one(machine: JobMachine) -> None:
    leave = """
import ctypes, os, time
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    open(f"{folder}/left", "w").close()
assert ctypes.CDLL(None).shmget(4711, 4096, 0o1666) >= 0
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sleep", ["sleep", "1000"], {})
    os._exit(0)
time.sleep(1)
print(os.getuid())
"""
    look = """
import ctypes, os
places = [f"{folder}/left" for folder in ("/tmp", "/var/tmp", "/dev/shm") if os.path.exists(f"{folder}/left")]
segments = ctypes.CDLL(None).shmget(4711, 4096, 0) >= 0
processes = [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]
print(os.getuid(), places, segments, processes)
"""
    first, second = machine.run_job("leaver", leave), machine.run_job("next", look)
    assert (first["code"], second["code"]) == (0, 0), first["output"] + second["output"]
    assert second["output"].split() == [first["output"].strip(), "[]", "False", "[]"]


def test_the_agent_follows_no_link_that_a_job_has_left(machine: JobMachine) -> None:
    """The job itself does, in its own view."""
    program = """
import os
os.symlink("/etc/hostname", os.environ["EVERSPOT_RUN_DIR"] + "/status.json")
print(open(os.environ["EVERSPOT_RUN_DIR"] + "/status.json").read())
"""
    ended = machine.run_job("linker", program)
    assert ended["code"] == 0, ended["output"]
    words = (
        f"import errno\ntry: open('{HOME}/runs/linker/status.json')\n"
        "except OSError as error: print(errno.errorcode[error.errno])"
    )
    assert machine.run(*AS_AGENT, PYTHON, "-c", words).strip() == "ELOOP"


def test_a_job_without_credentials_of_its_own_reaches_the_metadata_service(machine: JobMachine) -> None:
    program = ATTACKS["reach the metadata service"].program
    assert machine.run_job("trusted", program, metadata=True)["code"] == 0


@pytest.mark.parametrize("killed", ["tests-{name}.service", "everspot-broker@*.service"])
def test_a_job_ends_with_its_agent_and_with_its_broker(machine: JobMachine, killed: str) -> None:
    name = f"held-{killed[:5]}"
    before = machine.main_process("victim")
    machine.hold_job(name, "import time\ntime.sleep(1000)")
    if "broker" in killed:  # that of this job alone
        group = machine.run("systemctl", "show", "--value", "--property=BindsTo", "everspot-job-1.service").strip()
        killed = next(unit for unit in group.split() if unit.startswith("everspot-broker@"))
    machine.run("systemctl", "kill", "--signal=KILL", killed.format(name=name))
    until(lambda: machine.find_processes("everspot-job-1") == [] or None, "the job is gone", 60)
    assert machine.main_process("victim") == before


@pytest.mark.parametrize("address", ["169.254.169.253", "10.0.0.2"])
def test_a_job_resolves_names_by_amazons_resolvers(machine: JobMachine, address: str) -> None:
    """They are beside the metadata service's address, and at the second address of the network (VPC user guide, "DNS
    attributes for your VPC")."""
    machine.run("ip", "address", "add", f"{address}/32", "dev", "lo")
    machine.run("systemd-run", f"--unit=tests-resolver-{address}", PYTHON, "-c", resolver(address))
    machine.run("sh", "-c", f"echo nameserver {address} >/etc/resolv.conf")
    look_up = lambda: machine.run(*AS_AGENT, PYTHON, "-c", LOOK_UP, check=False).strip()  # noqa: E731
    assert until(lambda: look_up() or None, "names are resolved", 60) == "10.1.2.3"
    assert machine.run_job(f"resolves-{address}", LOOK_UP) == {"code": 0, "output": "10.1.2.3\n", "files": None}
