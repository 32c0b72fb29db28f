"""The image's provisioning, Packer templates and container: parsed by the programs that read them, or by similar
ones."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import hcl2
import pytest
from everspot_clouds.registry import CLOUDS
from everspot_local.image.inputs import Base
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packer_template import BAKE, YOUNGER, without_younger

ROOT = Path(__file__).parents[2]

EXTRAS = ("image", "scheduler")
UNITS = sorted(path.name for suffix in ("service", "path", "timer", "socket") for path in BAKE.glob(f"*.{suffix}"))


def test_the_provisioning_script_parses_and_stops_at_the_first_error() -> None:
    script = BAKE / "provision.sh"
    assert subprocess.run(["bash", "-n", script], capture_output=True).returncode == 0
    text = script.read_text()
    assert "set -euo pipefail" in text
    units = re.search(r"units=\((.*?)\)", text, re.DOTALL)
    assert units is not None
    assert set(units.group(1).split()) == set(UNITS)
    for leftover in ("authorized_keys", "ssh_host_", "/etc/machine-id", "/var/lib/everspot"):
        assert leftover in text.partition("seal()")[2]


def test_the_provisioning_script_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    answer = subprocess.run(["bash", BAKE / "provision.sh", tmp_path / "none.whl"], capture_output=True, text=True)
    assert answer.returncode == 1
    assert "no wheel at" in answer.stderr or "run me as root" in answer.stderr


@pytest.mark.parametrize(("version", "refused"), [("3.11.2", True), ("3.10.14", True), ("3.11.4", False)])
def test_the_provisioning_script_needs_an_interpreter_that_unpacks_safely(
    tmp_path: Path, version: str, refused: bool
) -> None:
    """Debian 12's own Python, 3.11.2, has no filter for archives: each start of a job would fail."""
    (tmp_path / "everspot.whl").touch()
    numbers = tuple(map(int, version.split(".")))
    python = tmp_path / "python3"
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -V ] && echo Python {version} && exit\n'
        f"""exec {sys.executable} -c "import sys; sys.version_info = {numbers}; exec(sys.argv[1])" "$2"\n"""
    )
    python.chmod(0o755)
    script = (BAKE / "provision.sh").read_text().rpartition('main "$@"')[0]
    call = f"{script}\nuseradd() {{ echo accepted; exit 0; }}\nid() {{ return 1; }}\n"
    call += f"install_everspot {tmp_path}/everspot.whl {python}\n"
    answer = subprocess.run(["bash", "-c", call], capture_output=True, text=True)
    assert (answer.returncode == 1, "accepted" in answer.stdout) == (refused, not refused)
    assert (f"Python {version} is older than 3.11.4" in answer.stderr) is refused


def template(file_name: str = "everspot.pkr.hcl") -> dict:  # type: ignore[type-arg]
    """A Packer template, without the quotes that the parser leaves on."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            return {str(plain(key)): plain(item) for key, item in value.items()}
        if isinstance(value, list):
            return [plain(item) for item in value]
        return value.strip('"') if isinstance(value, str) else value

    with (BAKE / file_name).open() as file:
        return plain(hcl2.load(file))  # type: ignore[return-value]


def test_the_packer_template_takes_metadata_version_2_only_encrypts_and_leaves_no_key() -> None:
    source = template()["source"][0]["amazon-ebs"]["everspot"]
    assert source["imds_support"] == "v2.0"
    assert source["metadata_options"][0]["http_tokens"] == "required"
    assert source["encrypt_boot"] in (True, "true")
    assert source["ssh_clear_authorized_keys"] in (True, "true")
    assert "temporary_key_pair_type" in source
    assert "ssh_keypair_name" not in source
    assert "ssh_private_key_file" not in source
    assert not {"access_key", "secret_key", "token"} & set(source)


def test_the_packer_template_seals_last_and_its_variables_exist() -> None:
    packer_template = template()
    steps = [block["shell"]["inline"][0] for block in packer_template["build"][0]["provisioner"] if "shell" in block]
    assert "provision.sh --seal" in steps[-1]
    declared = {name for block in packer_template["variable"] for name in block}
    text = (BAKE / "everspot.pkr.hcl").read_text()
    assert set(re.findall(r"var\.(\w+)", text)) == declared


@pytest.mark.parametrize("name", ["everspot.pkr.hcl", "everspot-gcp.pkr.hcl"])
def test_both_templates_let_jobs_with_an_image_have_a_user_namespace(name: str) -> None:
    first_step = template(name)["build"][0]["provisioner"][0]["shell"]["inline"]
    (setting,) = [command for command in first_step if "sysctl.d" in command]
    assert "'-kernel.apparmor_restrict_unprivileged_userns = 0'" in setting  # without effect on other systems


# Of builder/ebs/builder.hcl2spec.go and common/run_config.go in hashicorp/packer-plugin-amazon at 035d68d: those used.
SPECIFICATION = {
    "region": str, "source_ami": str, "instance_type": str, "subnet_id": str, "ami_name": str, "imds_support": str,
    "encrypt_boot": bool, "kms_key_id": str, "communicator": str, "ssh_username": str, "ssh_interface": str,
    "iam_instance_profile": str, "temporary_key_pair_type": str, "ssh_clear_authorized_keys": bool, "tags": dict,
    "temporary_security_group_source_cidrs": list, "metadata_options": "block",
    "launch_block_device_mappings": "block", "dynamic": "block",
}  # fmt: skip


def test_the_packer_template_has_the_plugins_settings_and_no_others() -> None:
    source = template()["source"][0]["amazon-ebs"]["everspot"]
    settings = {name: value for name, value in source.items() if not name.startswith("__")}
    assert set(settings) <= set(SPECIFICATION)
    for name, value in settings.items():
        kind = SPECIFICATION[name]
        if kind == "block":
            assert isinstance(value, list), name
        elif not str(value).startswith("${"):
            assert isinstance(value, kind), name  # type: ignore[arg-type]
    assert set(settings["metadata_options"][0]) - {"__is_block__"} <= {
        "http_endpoint", "http_tokens", "http_put_response_hop_limit", "instance_metadata_tags",
    }  # fmt: skip
    assert set(settings["launch_block_device_mappings"][0]) - {"__is_block__"} <= {
        "device_name", "volume_type", "volume_size", "delete_on_termination", "iops", "throughput", "encrypted",
    }  # fmt: skip


# Of builder/googlecompute/config.hcl2spec.go in hashicorp/packer-plugin-googlecompute at 10b8d2c: those used.
GOOGLES = {
    **dict.fromkeys(("project_id", "zone", "source_image_family", "machine_type", "image_name", "image_family"), str),
    **dict.fromkeys(("disk_type", "network", "subnetwork", "communicator", "ssh_username"), str),
    **dict.fromkeys(("disable_default_service_account", "enable_secure_boot", "enable_vtpm", "use_iap"), bool),
    **dict.fromkeys(("enable_integrity_monitoring", "use_internal_ip", "omit_external_ip"), bool),
    "ssh_clear_authorized_keys": bool, "temporary_key_pair_type": str, "source_image_project_id": list,
    "disk_size": int, "metadata": dict, "image_labels": dict, "dynamic": list,
}  # fmt: skip


def test_the_packer_template_of_google_cloud_boots_checked_leaves_no_key_and_names_its_cloud() -> None:
    packer_template = template("everspot-gcp.pkr.hcl")
    source = packer_template["source"][0]["googlecompute"]["everspot"]
    settings = {name: value for name, value in source.items() if not name.startswith("__")}
    assert set(settings) == set(GOOGLES)
    for name, value in settings.items():
        assert str(value).startswith("${") or isinstance(value, GOOGLES[name]), name
    on = ("enable_secure_boot", "enable_vtpm", "enable_integrity_monitoring", "use_iap", "ssh_clear_authorized_keys")
    assert all(settings[name] in (True, "true") for name in (*on, "disable_default_service_account"))
    steps = [block["shell"]["inline"][0] for block in packer_template["build"][0]["provisioner"] if "shell" in block]
    assert "provision.sh --seal" in steps[-1] and "resolver.sh" in steps[-2] and steps[-3].endswith(" gcp")
    assert steps[-4].endswith("clock.sh gcp")
    # Older ones put a key into the machine's metadata also where the project has OS Login on.
    assert packer_template["packer"][0]["required_plugins"][0]["googlecompute"]["version"] == ">= 1.2.0"
    declared = {name for block in packer_template["variable"] for name in block}
    assert set(re.findall(r"var\.(\w+)", (BAKE / "everspot-gcp.pkr.hcl").read_text())) == declared


VARIABLES = {
    "everspot.pkr.hcl": ("region=us-east-1", "kms_key_id=alias/images", "commit=abc"),
    "everspot-gcp.pkr.hcl": ("project=a-project", "zone=europe-west4-a", "kms_key=projects/p/k", "external_ip=false"),
}


def validate(folder: Path, file_name: str, planted: tuple[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Let Packer check a template without the parts that it is too old for. `planted`: a text and another in its
    place."""
    packer = shutil.which("packer")
    if packer is None:
        pytest.skip("Packer is not installed: Debian's package `packer` has the builders of both clouds")
    version = subprocess.run([packer, "version"], capture_output=True, text=True, check=True).stdout
    shutil.copytree(BAKE, folder / "bake")
    path = folder / "bake" / file_name
    text = path.read_text()
    if "v1.6." in version:
        text = without_younger(text, file_name)
        text = text.replace("data.amazon-ami.base.id", '"ami-0123456789abcdef0"')
    assert planted is None or planted[0] in text
    path.write_text(text.replace(*planted) if planted is not None else text)
    wheel = folder / "everspot-0.1.0-py3-none-any.whl"
    wheel.touch()
    variables = [f"-var={variable}" for variable in (*VARIABLES[file_name], f"wheel={wheel}", "nvswitch=false")]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "CHECKPOINT_DISABLE": "1", "PACKER_PLUGIN_PATH": str(folder)}
    return subprocess.run([packer, "validate", *variables, path], capture_output=True, text=True, env=env, cwd=folder)


@pytest.mark.parametrize("file_name", YOUNGER)
def test_packer_takes_the_template(tmp_path: Path, file_name: str) -> None:
    answer = validate(tmp_path, file_name)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize(
    ("file_name", "planted", "problem"),
    [
        ("everspot.pkr.hcl", ("encrypt_boot = true", "encrypt_bot = true"), "encrypt_bot"),
        ("everspot.pkr.hcl", ("var.build_type", "var.bild_type"), "bild_type"),
        ("everspot.pkr.hcl", ('volume_size           = 75', 'volume_size           = "big"'), "volume_size"),
        ("everspot-gcp.pkr.hcl", ("use_iap          = true", "use_iapp         = true"), "use_iapp"),
        ("everspot-gcp.pkr.hcl", ("disk_size               = 60", 'disk_size               = "x"'), "disk_size"),
    ],
)  # fmt: skip
def test_packer_refuses_a_template_with_a_fault(
    tmp_path: Path, file_name: str, planted: tuple[str, str], problem: str
) -> None:
    answer = validate(tmp_path, file_name, planted)
    assert answer.returncode != 0 and problem in answer.stdout + answer.stderr


def test_an_image_is_of_a_cloud_that_is_known(tmp_path: Path) -> None:
    script = (BAKE / "provision.sh").read_text()
    assert set(re.findall(r"\^\(([a-z|]+)\)\$", script)) == {"aws|gcp"}
    assert "EVERSPOT_CLOUD=%s" in script and {"aws", "gcp"} <= set(CLOUDS)


def test_session_manager_always_has_a_profile() -> None:
    """The plugin refuses `session_manager` without a profile, and a profile beside a temporary one makes no sense."""
    (dynamic,) = template()["source"][0]["amazon-ebs"]["everspot"]["dynamic"]
    policy = dynamic["temporary_iam_instance_profile_policy_document"]
    assert 'var.instance_profile == null && var.ssh_interface == "session_manager"' in policy["for_each"]
    (content,) = policy["content"]
    (statement,) = content["Statement"]
    assert statement["Effect"] == "Allow"
    assert {action.partition(":")[0] for action in statement["Action"]} == {"ssm", "ssmmessages"}


@pytest.mark.parametrize(
    ("parameter", "called"),
    [("/everspot/image/dev", "--name /everspot/image/dev --type String --value ami-0b --overwrite"), ("", "")],
)
def test_the_last_step_of_a_bake_writes_the_parameter_that_environments_read(
    tmp_path: Path, parameter: str, called: str
) -> None:
    (tmp_path / "manifest.json").write_text(
        '{"builds": [\n  {"artifact_id": "eu-west-1:ami-0a"},\n'
        '  {"artifact_id": "us-east-1:ami-0c,eu-west-1:ami-0b"}\n]}\n'
    )
    (tmp_path / "aws").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/called\n')
    (tmp_path / "aws").chmod(0o755)
    command = ["bash", BAKE / "publish.sh", tmp_path / "manifest.json", "eu-west-1", parameter]
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    answer = subprocess.run(command, env=env, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert "image: ami-0b" in answer.stdout
    noted = (tmp_path / "called").read_text() if (tmp_path / "called").exists() else ""
    assert called in noted
    assert bool(noted) == bool(parameter)
    elsewhere = subprocess.run([*command[:3], "eu-north-1"], env=env, capture_output=True, text=True)
    assert (elsewhere.returncode, "names no image in eu-north-1" in elsewhere.stderr) == (1, True)


def provisioned(
    tmp_path: Path, call: str, tools: dict[str, str], *, alone: bool = False
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Call a function of the script with these programs in front of the machine's own (`alone`: without those), each a
    script. Returns the result, and what apt-get and systemctl were asked for, a line each."""
    called, folder = tmp_path / "called", tmp_path / "bin"
    folder.mkdir()
    recorded = {"systemctl": f'echo "systemctl $@" >> {called}'}
    for name, body in {
        **recorded,
        **{k: v.replace("RECORD", f'echo "$@" >> {called}') for k, v in tools.items()},
    }.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    if alone:
        for name in ("basename", "uname", "ls", "grep", "awk", "cat"):
            (folder / name).symlink_to(shutil.which(name) or name)
    script = (BAKE / "provision.sh").read_text().rpartition('main "$@"')[0]
    env = {"PATH": str(folder) if alone else f"{folder}:/usr/bin:/bin"}
    command = [shutil.which("bash") or "bash", "-c", f"{script}\n{call}\n"]
    answer = subprocess.run(command, env=env, capture_output=True, text=True)
    return answer, called.read_text().splitlines() if called.exists() else []


@pytest.mark.parametrize(("has_venv", "installed"), [(True, False), (False, True)])
def test_the_interpreters_venv_package_is_installed_where_it_lacks(
    tmp_path: Path, has_venv: bool, installed: bool
) -> None:
    tools = {"python3.12": f"exit {0 if has_venv else 1}", "apt-get": "RECORD"}
    answer, called = provisioned(tmp_path, "need_venv python3.12", tools)
    assert answer.returncode == 0, answer.stderr
    assert (
        any("install --no-install-recommends python3.12-venv" in line for line in called) == installed == bool(called)
    )


@pytest.mark.parametrize(
    ("present_tools", "installed"), [(("mdadm", "apt-get"), False), (("apt-get",), True), ((), False)]
)
def test_what_joins_a_machines_own_disks_is_installed_where_it_lacks(
    tmp_path: Path, present_tools: tuple[str, ...], installed: bool
) -> None:
    answer, called = provisioned(tmp_path, "need_mdadm", dict.fromkeys(present_tools, "RECORD"), alone=True)
    assert answer.returncode == 0, answer.stderr
    assert any("install --no-install-recommends mdadm" in line for line in called) == installed == bool(called)


@pytest.mark.parametrize(
    ("compilers", "headers", "installed"),
    [
        (("gcc", "g++"), True, ""),
        (("gcc",), True, "libc6-dev g++"),
        ((), False, "libc6-dev gcc g++ python3.12-dev"),
    ],
)
def test_jobs_get_a_compiler_and_the_headers_of_the_interpreter(
    tmp_path: Path, compilers: tuple[str, ...], headers: bool, installed: str
) -> None:
    """`torch.compile` and Triton build against Python.h."""
    if headers:
        (tmp_path / "Python.h").touch()
    tools = {"python3.12": f"echo {tmp_path}", "apt-get": "RECORD", **dict.fromkeys(compilers, "exit 0")}
    answer, called = provisioned(tmp_path, "need_compiler python3.12", tools, alone=True)
    assert answer.returncode == 0, answer.stderr
    assert [line.partition("--no-install-recommends ")[2] for line in called[1:]] == ([installed] if installed else [])


MADISON = """
case $2 in
    nvidia-fabricmanager-580) echo ' nvidia-fabricmanager-580 | 580.95.05-0ubuntu0.24.04.1 | archive noble-updates' ;;
    nvidia-fabricmanager)
        echo ' nvidia-fabricmanager | 595.10.01-1 | cuda'
        echo ' nvidia-fabricmanager | 580.105.08-1 | cuda' ;;
    nvlsm) echo ' nvlsm | 2025.06.11-1 | cuda' ;;
esac"""
"""The output of apt 2.7 for two sources: Ubuntu's, whose package names the branch, and NVIDIA's."""


@pytest.mark.parametrize(
    ("driver", "here", "installed"),
    [
        ("580.95.05", "", ["nvidia-fabricmanager-580=580.95.05-0ubuntu0.24.04.1", "nvlsm"]),
        ("580.105.08", "580.95.05", ["nvidia-fabricmanager=580.105.08-1", "nvlsm"]),
        ("580.95.05", "580.95.05", []),
    ],
)
def test_the_fabric_manager_is_of_the_drivers_version(
    tmp_path: Path, driver: str, here: str, installed: list[str]
) -> None:
    """One of another version refuses to start, and then no CUDA context opens on machines with NVSwitch."""
    tools = {"modinfo": f"echo {driver}", "apt-get": "RECORD", "apt-cache": MADISON}
    if here:
        tools["nv-fabricmanager"] = f"echo 'Fabric Manager version is : {here}'"
    answer, called = provisioned(tmp_path, "need_fabric_manager", tools)
    assert answer.returncode == 0, answer.stderr
    packages = [line.partition("--no-install-recommends ")[2] for line in called if "install" in line]
    assert packages == installed
    assert called[-1] == "systemctl enable nvidia-fabricmanager.service"


def test_an_image_whose_driver_has_no_fabric_manager_is_not_baked_unless_it_needs_none(tmp_path: Path) -> None:
    tools = {"modinfo": "echo 580.65.06", "apt-get": "RECORD", "apt-cache": MADISON}
    answer, called = provisioned(tmp_path, "need_fabric_manager", tools)
    assert (answer.returncode, "systemctl" in " ".join(called)) == (1, False)
    assert "nvidia-fabricmanager 580.65.06" in answer.stderr
    assert "--no-nvswitch" in answer.stderr
    for name in ("everspot.pkr.hcl", "everspot-gcp.pkr.hcl"):
        assert '${var.nvswitch ? "" : "--no-nvswitch "}' in (BAKE / name).read_text()


def test_an_image_without_a_driver_needs_no_fabric_manager(tmp_path: Path) -> None:
    answer, called = provisioned(tmp_path, "need_fabric_manager", {"modinfo": "exit 1", "apt-get": "RECORD"})
    assert (answer.returncode, called) == (0, [])


@pytest.mark.parametrize(
    ("tools", "installed"),
    [
        ({"modinfo": "exit 1"}, []),
        ({"nvidia-ctk": "exit 0"}, []),
        ({}, ["nvidia-container-toolkit-base"]),
        ({"apt-cache": MADISON}, []),
    ],
)
def test_machines_with_gpus_get_the_toolkit_that_describes_them_for_containers(
    tmp_path: Path, tools: dict[str, str], installed: list[str]
) -> None:
    madison = "echo ' nvidia-container-toolkit-base | 1.18.0-1 | cuda'"
    usual = {"modinfo": "echo 580.95.05", "apt-get": "RECORD", "apt-cache": madison}
    answer, called = provisioned(tmp_path, "need_container_toolkit", {**usual, **tools})
    assert answer.returncode == 0, answer.stderr
    packages = [line.partition("--no-install-recommends ")[2] for line in called if "install" in line]
    assert packages == installed
    assert ("jobs with an image of their own get no GPUs" in answer.stderr) is ("apt-cache" in tools)


def test_a_bake_that_cannot_read_the_lists_of_packages_does_not_leave_the_toolkit_out(tmp_path: Path) -> None:
    tools = {"modinfo": "echo 580.95.05", "apt-get": "RECORD; exit 100", "apt-cache": MADISON, "sleep": ""}
    answer, called = provisioned(tmp_path, "need_container_toolkit", tools)
    assert (answer.returncode, "install" in " ".join(called)) == (1, False)
    assert "no source of packages" not in answer.stderr


def test_the_driver_is_that_of_the_kernel_which_the_image_boots(tmp_path: Path) -> None:
    """A newer kernel that apt brought is not the running one."""
    kernels = "printf '6.8.0-1021-aws\n6.11.0-1004-aws\n6.8.0-9-aws\n'"
    modinfo = "case $2 in 6.11*) exit 1;; 6.8.0-1021*) echo 580.126.09;; *) echo 580.95.05;; esac"
    tools = {"modinfo": modinfo, "uname": "echo 6.8.0-9-aws", "ls": kernels}
    answer, _ = provisioned(tmp_path, "driver_version", tools)
    assert (answer.returncode, answer.stdout) == (0, "580.126.09\n"), answer.stderr


def test_no_package_of_an_image_is_upgraded_below_a_job(tmp_path: Path) -> None:
    """Neither by a timer of apt, nor does an upgrade by hand restart the agent and the brokers of jobs."""
    answer, called = provisioned(tmp_path, f"keep_units {tmp_path}/conf.d", {})
    assert (answer.returncode, called) == (0, []), answer.stderr
    # needrestart reads its settings as Perl and restarts no unit whose expression has the value 0.
    program = "my %nrconf; local $/; eval <STDIN>; die $@ if $@; my ($re) = keys %{$nrconf{override_rc}};"
    program += " print $nrconf{override_rc}{$re}, ' ', join(',', grep { $_ =~ $re } @ARGV);"
    units = [*UNITS, "everspot-broker@0-1-0.service", "ssh.service"]
    settings = (tmp_path / "conf.d/everspot.conf").read_text()
    answer = subprocess.run(["perl", "-e", program, *units], input=settings, capture_output=True, text=True)
    assert answer.stdout == "0 " + ",".join(units[:-1]), answer.stderr
    assert "keep_units /etc/needrestart/conf.d" in (BAKE / "provision.sh").read_text().partition("main() {")[2]


def test_a_bake_waits_for_the_first_boot_and_stops_what_installs_packages_by_itself(tmp_path: Path) -> None:
    """What stops a running unit, and what is not there to be stopped, does not fail the bake."""
    tools = {"cloud-init": f'echo "cloud-init $@" >> {tmp_path}/called; exit 2', "systemctl": "RECORD; [ $1 = mask ]"}
    answer, called = provisioned(tmp_path, "settle", tools)
    assert answer.returncode == 0, answer.stderr
    wait, mask, stop = called
    assert wait == "cloud-init status --wait"
    units = {"apt-daily.timer", "apt-daily.service", "apt-daily-upgrade.service", "unattended-upgrades.service"}
    assert (mask.split()[0], stop.split()[0]) == ("mask", "stop")
    assert units <= set(mask.split()) == {*stop.split()} - {"stop"} | {"mask"}
    for name in ("everspot.pkr.hcl", "everspot-gcp.pkr.hcl"):
        blocks = template(name)["build"][0]["provisioner"]
        steps = [block["shell"]["inline"] for block in blocks if "shell" in block]
        first = '${concat(["sudo bash /tmp/everspot/provision.sh --settle"], var.prepare)}'
        assert steps[1] == first, "the first step after the files"


@pytest.mark.skipif(not Path("/usr/bin/apt-get").exists(), reason="this machine has no apt")
def test_a_bake_outlasts_another_program_that_reads_the_lists_of_packages(tmp_path: Path) -> None:
    """With the real apt, whose lock of the lists is held until the bake pauses for the first time."""
    (tmp_path / "lists/partial").mkdir(parents=True)
    (tmp_path / "status").touch()
    settings = {"State::lists": "lists", "State::status": "status", "Cache": "cache", "Etc::sourcelist": "none"}
    settings["Etc::sourceparts"] = "none"
    lines = [f'Dir::{name} "{tmp_path}/{value}";\n' for name, value in settings.items()]
    (tmp_path / "apt.conf").write_text("".join(lines))
    program = f"""import fcntl, time
lock = open("{tmp_path}/lists/lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print(flush=True)
time.sleep(3600)"""
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None and holder.stdout.readline()
        apt = f"RECORD\nAPT_CONFIG={tmp_path}/apt.conf exec /usr/bin/apt-get $@"
        answer, called = provisioned(tmp_path, "apt_update", {"apt-get": apt, "sleep": f"kill {holder.pid}; exit 0"})
        holder.kill()
    assert "Could not get lock" in answer.stderr
    assert (answer.returncode, len(called) > 1) == (0, True), answer.stderr


@pytest.mark.parametrize(("refusals", "code"), [(0, 0), (59, 0), (60, 1)])
def test_the_lists_of_packages_are_tried_again_for_five_minutes(tmp_path: Path, refusals: int, code: int) -> None:
    """apt's own option for locks is not for that of the lists."""
    gate = f"[ $(grep -c update {tmp_path}/called) -gt {refusals} ]"
    answer, called = provisioned(tmp_path, "apt_update", {"apt-get": f"RECORD\n{gate}", "sleep": "RECORD"})
    pauses = [line for line in called if line == "5"]
    assert (answer.returncode, len(pauses)) == (code, refusals), answer.stderr
    assert ("apt-get update fails for 5 minutes" in answer.stderr) == bool(code)


def dockerfile() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (BAKE / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]  # type: ignore[misc]


def test_the_container_is_built_in_stages_pinned_and_not_root() -> None:
    lines = dockerfile()
    stages = [value for verb, value in lines if verb == "FROM"]
    assert len(stages) == 2
    assert re.fullmatch(r"BASE=python:3\.\d+\.\d+-\S+", next(value for verb, value in lines if verb == "ARG"))
    last = lines[[index for index, (verb, _) in enumerate(lines) if verb == "FROM"][-1] :]
    assert [value for verb, value in last if verb == "USER"] == ["10001:10001"]
    assert ("ENTRYPOINT", '["everspot-agent"]') in last
    copied = [value for verb, value in last if verb == "COPY"]
    assert all(value.startswith("--from=build /opt/everspot") for value in copied)


def test_the_container_gets_image_and_scheduler_and_nothing_of_pulumi() -> None:
    lines = dockerfile()
    installs = [value for verb, value in lines if verb == "RUN" and "everspot-*.whl" in value]
    assert len(installs) == 1
    assert "pip install --no-deps /wheels/everspot-*.whl" in installs[0]
    (locked,) = [value for verb, value in lines if verb == "RUN" and "lock.txt" in value and value not in installs]
    assert "pip install --require-hashes --requirement lock.txt" in locked
    rooms = {value.split()[0] for verb, value in lines if verb == "COPY" and "--from" not in value}
    assert rooms == {
        "pyproject.toml", "core", "store", "clouds", "scheduler", "training_image", "training_image/bake/lock.txt",
        "training_image/bake/sbom.txt",
    }  # fmt: skip
    assert "pulumi" not in (BAKE / "Dockerfile").read_text().lower()


def locked(file_name: str = "lock.txt") -> dict[str, tuple[str, int]]:
    """The distributions of a lock file: their versions, and how many digests each has."""
    text = (BAKE / file_name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    entries = [
        re.fullmatch(r"([a-z0-9-]+)==(\S+)(?: ; .*?)?((?: +--hash=sha256:[0-9a-f]{64})+) *", line) for line in lines
    ]
    assert all(entries), [line for line, entry in zip(lines, entries, strict=True) if entry is None]
    return {entry[1]: (entry[2], entry[3].count("--hash")) for entry in entries if entry}


def required(line: str, visited: set[str]) -> set[str]:
    """The names of a requirement and of what that needs here, by the metadata of what is installed."""
    requirement = Requirement(line)
    if line in visited or not (requirement.marker is None or requirement.marker.evaluate()):
        return set()
    visited.add(line)
    names = {canonicalize_name(requirement.name)}
    for needed in map(Requirement, importlib.metadata.requires(requirement.name) or []):
        extras = requirement.extras or {""}
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
            needed.marker = None
            names |= required(str(needed), visited)
    return names


def test_the_lock_has_all_that_an_image_needs_in_the_versions_that_are_tested() -> None:
    """The image is installed from it with digests, and its wheel without dependencies."""
    lock = locked()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for e in EXTRAS for line in project["optional-dependencies"][e])]
    needed = set().union(*(required(line, set()) for line in lines))
    assert "torch" in needed and "prometheus-client" in needed and "pulumi" not in needed
    assert needed <= set(lock)
    constraints = (ROOT / "tools" / "constraints.txt").read_text().splitlines()
    tested = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in constraints)}
    assert {name: version for name, (version, _) in lock.items() if tested.get(name) != version} == {}
    assert all(digests for _, digests in lock.values())


def test_the_agent_says_of_which_commit_and_which_lock_its_image_is(tmp_path: Path) -> None:
    """`provision.sh` writes image.json into the virtual environment, which names both."""
    venv.create(tmp_path / "venv", system_site_packages=False)
    (python,) = (tmp_path / "venv" / "lib").glob("python*")
    sources = "\n".join(path for path in sys.path if path and Path(path).is_dir())
    (python / "site-packages" / "sources.pth").write_text(sources)
    command = [tmp_path / "venv" / "bin" / "python", "-m", "everspot_train.agent.main", "--version"]
    version = importlib.metadata.version("everspot")
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"everspot {version}\n"
    (tmp_path / "venv" / "image.json").write_text('{"commit": "0123abc", "lock": "89ef"}')
    described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert described == f"everspot {version}, commit 0123abc, lock 89ef\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--commit", "main", "x.whl"], "a commit is 7 to 40 digits"),
        (["--nvswitch", "x.whl"], "there is no option --nvswitch"),
        (["--commit", "0123abc"], "usage: provision.sh"),
    ],
)
def test_the_provisioning_script_refuses_options_that_it_does_not_know(words: list[str], message: str) -> None:
    script = (BAKE / "provision.sh").read_text().rpartition('main "$@"')[0].replace("$EUID", "0")
    answer = subprocess.run(["bash", "-c", f'{script}\nmain "$@"', "provision", *words], capture_output=True, text=True)
    assert (answer.returncode, message in answer.stderr) == (1, True), answer.stderr


@pytest.mark.parametrize("words", [[], ["azure"]])
def test_the_clocks_script_refuses_a_cloud_whose_clock_it_does_not_know(words: list[str]) -> None:
    script = (BAKE / "clock.sh").read_text().replace("$EUID", "0")
    answer = subprocess.run(["bash", "-c", script, "clock", *words], capture_output=True, text=True)
    assert (answer.returncode, answer.stderr) == (1, "clock: usage: clock.sh aws|gcp\n")


def test_the_bases_that_the_readme_lists_are_those_of_the_bakes() -> None:
    bases = (BAKE / "README.md").read_text().partition("## Bases")[2].partition("\n## ")[0]
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ")[1] for row in bases.splitlines() if row.startswith("| ")}
    assert {"Debian 13", "Debian 12", "Ubuntu 24.04, the templates'"} <= rows.keys()
    assert Base().suite == "trixie"  # Debian 13
    assert rows["Debian 12"].startswith("3.11.2, which `provision.sh` refuses")
    for name, setting in (("everspot.pkr.hcl", "base_image_name"), ("everspot-gcp.pkr.hcl", "base_image_family")):
        variables = {key: value for block in template(name)["variable"] for key, value in block.items()}
        assert "2404" in variables[setting]["default"].replace(".", "")
        assert variables["python"]["default"].strip('"') == "python" + rows["Ubuntu 24.04, the templates'"]


def test_the_program_that_builds_a_bakes_wheel_is_there_after_the_set_up() -> None:
    programs = re.findall(r"^    (\S+) build --wheel$", (BAKE / "README.md").read_text(), re.MULTILINE)
    assert programs == ["uv", "uv"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "uv" in [Requirement(line).name for line in project["dependency-groups"]["dev"]]


def test_sealing_removes_what_one_machine_draws_for_itself_and_what_only_the_bake_used() -> None:
    seal = (BAKE / "provision.sh").read_text().partition("seal() {")[2].partition("\n}\n")[0]
    for leftover in ("random-seed", "credential.secret", "/var/lib/apt/lists", "/var/cache/apt", "/etc/resolv.conf"):
        assert leftover in seal


def test_the_tool_that_lists_the_packages_is_locked_and_not_of_the_image() -> None:
    tool = locked("sbom.txt")
    assert "cyclonedx-bom" in tool and all(count > 0 for _, count in tool.values())
    assert not {"cyclonedx-bom", "cyclonedx-python-lib"} & set(locked())


def test_this_machines_systemd_knows_all_that_the_units_say(tmp_path: Path) -> None:
    """Debian 12 has the oldest systemd of the bases. It would ignore an unknown property, and a protection would be
    missing."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("this machine has no systemd-analyze")
    units = [
        shutil.copy(unit, tmp_path)
        for kind in ("service", "socket", "path", "timer")
        for unit in BAKE.glob(f"*.{kind}")
    ]
    command = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    lines = subprocess.run(command, capture_output=True, text=True).stderr.splitlines()
    assert [line for line in lines if "is not executable" not in line] == []  # it is no image
