"""GPUs of jobs with `image`: CDI specifications as tables, and one real container with harmless devices."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from agent_helpers import Cluster, eventually
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState, Reason
from everspot_train.agent.cdi import CdiError, read_edits, select_edits
from everspot_train.device_edits import DeviceMount
from oci_layout import entry, pack_layer, python_files, write_layout

FILE = Path("/etc/cdi/nvidia.yaml")


def hook(*words: str, path: str = "/usr/bin/nvidia-cdi-hook", name: str = "createContainer") -> dict[str, Any]:
    return {"hookName": name, "path": path, "args": [Path(path).name, *words], "env": ["NVIDIA_CTK_DEBUG=false"]}


def mount(source: str, target: str | None = None, *options: str) -> dict[str, Any]:
    return {"hostPath": source, "containerPath": target or source, "options": ["ro", "nosuid", "bind", *options]}


def device(name: str, node: str, **edits: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/gpu{name}", "hostPath": node}], **edits}}


def specification(common: Any = None, *devices: Any, **fields: Any) -> dict[str, Any]:
    pair = (device("0", "/dev/null"), device("1", "/dev/zero"))
    whole = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "containerEdits": common or {}}
    return {**whole, "devices": list(devices or pair), **fields}


def select(document: Any, *gpus: int) -> Any:
    return select_edits([{FILE: json.dumps(document)}], gpus)


COMMON = {
    "env": ["NVIDIA_VISIBLE_DEVICES=void", "EMPTY="],
    "deviceNodes": [{"path": "/dev/ctl", "hostPath": "/dev/full", "permissions": "rwm", "fileMode": 438}],
    "mounts": [mount("/usr/lib/libcuda.so.580", "/usr//lib/./libcuda.so.580")],
    "hooks": [
        hook(
            "create-symlinks", "--link", "../libcuda.so.1::/usr/lib/a/libcuda.so", "--link=libcuda.so.580::/usr/lib/b"
        ),
        hook("hook", "update-ldcache", "--folder", "/usr/lib", path="/usr/bin/nvidia-ctk"),
        hook("update-ldcache", "--ldconfig-path", "/sbin/ldconfig", "--folder", "/usr/lib"),
        hook("enable-cuda-compat", "--host-driver-version=580.1"),
        hook("disable-device-node-modification"),
    ],
}


@pytest.mark.parametrize(
    ("gpus", "nodes", "visible"),
    [
        ((0,), {"/dev/gpu0": "/dev/null"}, "0"),
        ((1,), {"/dev/gpu1": "/dev/zero"}, "0"),
        ((1, 0), {"/dev/gpu0": "/dev/null", "/dev/gpu1": "/dev/zero"}, "0,1"),
    ],
)
def test_a_job_gets_its_own_gpus_and_what_all_have_in_common(gpus: Any, nodes: dict[str, str], visible: str) -> None:
    whole = {"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/gpu0", "hostPath": "/dev/null"}]}}
    document = specification(COMMON, device("0", "/dev/null"), device("1", "/dev/zero"), whole)
    edits = select(document, *gpus)
    assert edits.nodes == {"/dev/ctl": "/dev/full", **nodes}
    assert edits.environment == {"NVIDIA_VISIBLE_DEVICES": "void", "EMPTY": "", "CUDA_VISIBLE_DEVICES": visible}
    target = "/usr/lib/libcuda.so.580"
    assert edits.mounts == [DeviceMount(target, target, ("ro", "nosuid", "bind"))]
    assert edits.links == {"/usr/lib/a/libcuda.so": "../libcuda.so.1", "/usr/lib/b": "libcuda.so.580"}
    assert edits.library_folders == ["/usr/lib"]


def edited(**edits: Any) -> dict[str, Any]:
    return specification(None, device("0", "/dev/null", **edits))


NULL = {"path": "/dev/gpu0", "hostPath": "/dev/null"}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (specification(cdiVersion="2.0.0"), "cdiVersion: String should match pattern"),
        (specification(cdiVersion="0.5.0.1"), "cdiVersion"),
        (specification(devices={}), "devices: Input should be a valid list"),
        (edited(additionalGids=["root"]), r"devices\.0\.containerEdits\.additionalGids\.0: Input should be"),
        (edited(env=["NONE"]), "env has 'NONE', which is not NAME=VALUE"),
        (edited(mounts=[mount("/usr/lib", "/")]), "containerPath / would hide"),
        (edited(mounts=[mount("/usr/lib", "/usr")]), "containerPath /usr would hide"),
        (edited(mounts=[mount("/usr/lib", "/a/../etc/x")]), "no absolute path"),
        (edited(mounts=[mount("/usr/lib", "usr/lib")]), "no absolute path"),
        (edited(mounts=[mount("/", "/usr/lib")]), "hostPath is the whole machine"),
        (edited(deviceNodes=[{"path": "/etc/x", "hostPath": "/dev/null"}]), "/etc/x is not below /dev"),
        (edited(deviceNodes=[{"path": "/dev/none-such"}]), "/dev/none-such: No such file"),
        (edited(deviceNodes=[{**NULL, "hostPath": "/etc/hostname"}]), "/etc/hostname, which is no device"),
        (edited(deviceNodes=[{**NULL, "major": 1, "minor": 4}]), "other numbers than this machine"),
        (edited(deviceNodes=[{**NULL, "type": "b"}]), "other numbers than this machine"),
        (edited(deviceNodes=[{**NULL, "permissions": "r"}]), r"deviceNodes\.0\.permissions"),
        (specification({"deviceNodes": [{"path": "/dev/gpu1"}]}), "has /dev/gpu1 of the device 1"),
        (edited(hooks=[hook("create-symlinks", "--link", "x::/etc")]), "/etc would hide"),
        (edited(hooks=[hook("create-symlinks", "--link", "x::/dev/dri/../../etc/x")]), "no absolute path"),
    ],
)
def test_a_malformed_specification_is_refused_by_file_and_field(document: Any, problem: str) -> None:
    with pytest.raises(CdiError, match=problem) as error_info:
        select(document, 0)
    assert str(FILE) in str(error_info.value)


COMMON_PLACE, DEVICE_PLACE = f"{FILE}, containerEdits", f"{FILE}, device 0"


@pytest.mark.parametrize(
    ("document", "left_out"),
    [
        (specification(cdiVersion="1.4.0"), []),
        (specification(owner="x"), [f"{FILE}: owner"]),
        (specification({"netDevices": []}), [f"{COMMON_PLACE}: netDevices"]),
        (edited(intelRdt={}), [f"{DEVICE_PLACE}: intelRdt"]),
        (edited(additionalGids=[44]), []),
        (edited(deviceNodes=[{**NULL, "numa": 1}]), [f"{DEVICE_PLACE}: deviceNodes /dev/gpu0: numa"]),
        (edited(mounts=[mount("/usr/lib", "//proc/x")]), [f"{DEVICE_PLACE}: the mount /proc/x"]),
        (edited(mounts=[mount("/tmp/nvidia-mps")]), [f"{DEVICE_PLACE}: the mount /tmp/nvidia-mps"]),
        (edited(mounts=[mount("/usr/lib", None, "shared")]), [f"{DEVICE_PLACE}: the mount /usr/lib"]),
        (edited(mounts=[{**mount("/usr/lib"), "type": "tmpfs"}]), [f"{DEVICE_PLACE}: the mount /usr/lib"]),
        (edited(mounts=[{**mount("/usr/lib"), "mapping": {}}]), [f"{DEVICE_PLACE}: the mount /usr/lib"]),
        (
            edited(hooks=[hook("create-symlinks", "--link", "a::/usr/lib/b", path="/home/a/hook")]),
            [f"{DEVICE_PLACE}: the hook /home/a/hook create-symlinks --link a::/usr/lib/b"],
        ),
        (edited(hooks=[hook("run", "sh")]), [f"{DEVICE_PLACE}: the hook /usr/bin/nvidia-cdi-hook run sh"]),
        (
            edited(hooks=[hook("update-ldcache", "--folder", "/usr/lib", "--root", "/")]),
            [f"{DEVICE_PLACE}: the hook /usr/bin/nvidia-cdi-hook update-ldcache --folder /usr/lib --root /"],
        ),
        (
            edited(hooks=[hook("create-symlinks", "--link")]),
            [f"{DEVICE_PLACE}: the hook /usr/bin/nvidia-cdi-hook create-symlinks --link"],
        ),
        (edited(hooks=[hook("create-symlinks", "--link", "a::/proc/b")]), [f"{DEVICE_PLACE}: the link /proc/b"]),
        (
            edited(hooks=[hook("chmod", name="poststop")]),
            [f"{DEVICE_PLACE}: the hook /usr/bin/nvidia-cdi-hook chmod"],
        ),
    ],
)
def test_what_is_unknown_is_left_out_by_name_and_the_gpu_is_there(document: Any, left_out: list[str]) -> None:
    edits = select(document, 0)
    assert (edits.nodes, edits.left_out) == ({"/dev/gpu0": "/dev/null"}, left_out)
    assert (edits.mounts, edits.links, edits.library_folders) == ([], {}, [])


LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@pytest.mark.parametrize("version", ["1.17.8", "1.18.2", "1.19.1", "1.20.0"])
def test_what_nvidias_toolkit_writes_is_applied_whole(version: str) -> None:
    document = yaml.safe_load((Path(__file__).parent / "specifications" / f"nvidia-ctk-{version}.yaml").read_text())
    for part in (document, *document["devices"]):
        for node in part["containerEdits"]["deviceNodes"]:  # which this machine does not have
            node["hostPath"] = "/dev/null"
            node.pop("major", None)
            node.pop("minor", None)
    edits = select(document, 1)
    assert edits.left_out == []
    common = ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]
    assert sorted(edits.nodes) == ["/dev/dri/card2", "/dev/dri/renderD129", *common[:3], "/dev/nvidia1", common[3]]
    assert edits.links[f"{LIBRARIES}/libcuda.so"] == "libcuda.so.1"
    assert edits.links[f"{LIBRARIES}/gbm/nvidia-drm_gbm.so"] == "../libnvidia-allocator.so.1"
    assert not [link for link in edits.links if link.startswith("/dev/")]
    assert edits.library_folders == [LIBRARIES, f"{LIBRARIES}/vdpau"]
    targets = {mount.target for mount in edits.mounts}
    assert {f"{LIBRARIES}/libcuda.so.580.126.09", "/usr/bin/nvidia-smi", "/run/nvidia-persistenced/socket"} <= targets


def test_a_later_folder_replaces_devices_and_one_folder_has_each_once(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("none", "etc", "run")]
    with pytest.raises(CdiError, match=r"nvidia\.com/gpu=0 of this machine, none at all: everspot-gpus\.service"):
        read_edits(folders, [0])
    for folder, node in zip(folders[1:], ("/dev/null", "/dev/zero"), strict=True):
        folder.mkdir()
        (folder / "a.yaml").write_text(yaml.safe_dump(specification(None, device("0", node))))
        (folder / "other.json").write_text(json.dumps({"kind": "vendor.com/net", "unknown": True}))
        (folder / "notes.txt").write_text("{")
    assert read_edits(folders, [0]).nodes == {"/dev/gpu0": "/dev/zero"}
    with pytest.raises(CdiError, match=r"gpu=1 of this machine, only 0"):
        read_edits(folders, [0, 1])
    (folders[2] / "b.json").write_text(json.dumps(specification()))
    with pytest.raises(CdiError, match=r"a\.yaml has a device 0 too"):
        read_edits(folders, [0])
    (folders[2] / "b.json").write_text("{")
    with pytest.raises(CdiError, match=r"b\.json is no YAML"):
        read_edits(folders, [0])
    (folders[2] / "b.json").unlink()
    absent = edited(mounts=[mount(str(tmp_path / "lost"), "/usr/lib/lost")])
    (folders[2] / "a.yaml").write_text(yaml.safe_dump(absent))
    with pytest.raises(CdiError, match="lost, which this machine does not have"):
        read_edits(folders, [0])


PROGRAM = """
import json, os, pathlib
library = pathlib.Path("/usr/lib/driver/libdriver.so.1")
is_writable = os.statvfs(library).f_flag & os.ST_RDONLY == 0
with open("/dev/gpu0", "rb", buffering=0) as gpu, open("/dev/null", "wb") as null:
    read = gpu.read(3)
    null.write(b"x")
names = ("OF_ALL", "OF_0", "OF_1", "CUDA_VISIBLE_DEVICES", "OWN", "LD_LIBRARY_PATH")
print(json.dumps({
    "read": list(read), "dev": sorted(name for name in os.listdir("/dev") if name.startswith("gpu")),
    "kmsg": os.path.exists("/dev/kmsg"), "stdin": os.path.exists("/dev/fd"), "shm": os.path.isdir("/dev/shm"),
    "library": library.read_text(), "link": library.with_name("libdriver.so").read_text(), "is_writable": is_writable,
    "other": os.path.exists("/usr/lib/driver/other"), "env": {name: os.environ.get(name) for name in names},
}))
"""


def submit(cluster: Cluster, tmp_path: Path) -> None:
    layers = [pack_layer([entry("marker", b"of the image")], python_files())]
    write_layout(tmp_path / "layout", layers, ["OF_0=of the image", "LD_LIBRARY_PATH=/opt/lib"])
    dataset = cluster.store.datasets.put("my-image", tmp_path / "layout").id
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.py").write_text(PROGRAM)
    fields: dict[str, Any] = {"image": "my-image", "resources": {"gpus": 1}, "env": {"OWN": "of the job"}}
    spec = JobSpec(name="toy", entrypoint=["main.py"], code=str(code), **fields)
    cluster.store.submit(
        JobSubmission(job_id="job-1", spec=spec, submitted_at=cluster.clock.now(), datasets=[dataset]), code
    )
    cluster.assign("job-1", "i-1")


def test_a_container_has_the_devices_files_and_variables_of_its_own_gpu_alone(cluster: Cluster, tmp_path: Path) -> None:
    """Given a specification of two harmless devices, when a job of one GPU runs, then it sees the first alone."""
    machine_library = tmp_path / "libdriver.so.1.580"
    machine_library.write_text("of the machine")
    (tmp_path / "libdriver.so.1").symlink_to(machine_library.name)
    (tmp_path / "libother.so.1").symlink_to("libother.so.1.580")
    library = "/usr/lib/driver/libdriver.so.1.580"
    common = {
        "env": ["OF_ALL=yes", "OWN=of the machine"],
        "mounts": [mount(str(machine_library), library)],
        "hooks": [
            hook("create-symlinks", "--link", "libdriver.so.1::/usr/lib/driver/libdriver.so"),
            hook("update-ldcache", "--folder", "/usr/lib/driver"),
        ],
    }
    other = {"env": ["OF_1=yes"], "mounts": [mount(str(machine_library), "/usr/lib/driver/other")]}
    newer = {"env": ["OF_0=yes"], "netDevices": [], "hooks": [hook("later"), hook("update-application-profile")]}
    devices = (device("0", "/dev/zero", **newer), device("1", "/dev/full", **other))
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi" / "gpus.yaml").write_text(yaml.safe_dump(specification(common, *devices)))
    submit(cluster, tmp_path)
    cluster.start_agent("i-1", EVERSPOT_CDI=f"{tmp_path}/none:{tmp_path}/cdi")
    cluster.wait_state("job-1", JobState.SUCCEEDED)
    (line,) = [line for line in cluster.printed().splitlines() if line.startswith("{")]
    (note,) = [line for line in cluster.printed().splitlines() if "CDI" in line]
    place = f"{tmp_path}/cdi/gpus.yaml, device 0"
    assert note.endswith(f"not applied: {place}: netDevices; {place}: the hook /usr/bin/nvidia-cdi-hook later")
    environment = {
        "OF_ALL": "yes", "OF_0": "yes", "OF_1": None, "CUDA_VISIBLE_DEVICES": "0", "OWN": "of the job",
        "LD_LIBRARY_PATH": "/opt/lib:/usr/lib/driver",
    }  # fmt: skip
    assert json.loads(line) == {
        "read": [0, 0, 0], "dev": ["gpu0"], "kmsg": False, "stdin": True, "shm": True, "library": "of the machine",
        "link": "of the machine", "is_writable": False, "other": False, "env": environment,
    }  # fmt: skip


def test_a_machine_without_a_specification_is_not_the_jobs_fault(cluster: Cluster, tmp_path: Path) -> None:
    submit(cluster, tmp_path)
    cluster.start_agent("i-1", EVERSPOT_CDI=str(tmp_path / "none"))
    record = eventually("it is given back", lambda: (r := cluster.record("job-1")) and r.last_reason and r)
    assert (record.state, record.last_reason) == (JobState.PENDING, Reason.MACHINE)
    assert "i-1 cannot give a container its GPUs: no CDI specification has the device nvidia.com/gpu=0" in record.detail
