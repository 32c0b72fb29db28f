"""The image that a bake starts from, in place of a cloud's: Debian, what `make image` keeps of it, and a way in by SSH.

Of a cloud's own image it has what a builder needs: an SSH server, a user who may do everything, and the program that
takes the key of the launch from the metadata service, where those have cloud-init.
"""

import fcntl
import hashlib
import json
import os
import select
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from everspot_local.image import chroot, inputs
from everspot_local.image.inputs import Base

USER = "ubuntu"
GOOGLE_GROUP = "google-sudoers"
"""Members may do everything, on images of Google Cloud."""
SETTINGS = tuple(name for name in chroot.PASSED if name != "SOURCE_DATE_EPOCH")
"""Variables with settings of package managers, for the sessions of the builder."""
PREFIX = "BUILDER_"
"""Before their names in the environment of machines, whose own services do not use them."""
AUTHORITIES = "/usr/local/share/authorities.crt"
FIRST_BOOT = f"""#!/usr/bin/python3
import os, pathlib, pwd, subprocess, urllib.error, urllib.request
ROOT = "http://169.254.169.254"
def ask(path, method="GET", **headers):
    headers = {{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(ROOT + path, method=method, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
    return opener.open(request, timeout=60).read().decode()
def read_key():
    if os.environ.get("EVERSPOT_CLOUD") == "gcp":
        text = ask("/computeMetadata/v1/instance/attributes/ssh-keys", Metadata_Flavor="Google")
        user, _, key = text.partition(":")
        return user, key
    token = ask("/latest/api/token", "PUT", X_aws_ec2_metadata_token_ttl_seconds="60")
    return "{USER}", ask("/latest/meta-data/public-keys/0/openssh-key", X_aws_ec2_metadata_token=token)
subprocess.run(["ssh-keygen", "-A"], check=True)
try:
    user, key = read_key()
except urllib.error.HTTPError:
    raise SystemExit(0)  # launched without a key
if user not in (each.pw_name for each in pwd.getpwall()):  # as Google's guest agent makes users
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", "--groups", "{GOOGLE_GROUP}", user], check=True)
folder = pathlib.Path("/home", user, ".ssh")
folder.mkdir(mode=0o700, exist_ok=True)
(folder / "authorized_keys").write_text(key + "\\n")
subprocess.run(["chown", "-R", user + ":", folder], check=True)
# Below /run, so that nothing of it is in the image.
place = pathlib.Path("/run/first-boot")
place.mkdir()
values = {{name: os.environ.get("{PREFIX}" + name) for name in {SETTINGS!r}}}
words = [f"{{name}}={{value}}" for name, value in values.items() if value]
(place / "sshd.conf").write_text("SetEnv " + " ".join(words) + "\\n" if words else "")
# Only here the agent's folder is a mount, as no overlay shows files under other owners. Sealing finds a plain folder.
unit = pathlib.Path("/run/systemd/system/everspot-agent.service.d/first-boot.conf")
unit.parent.mkdir(parents=True, exist_ok=True)
unit.write_text("[Service]\\nExecStopPost=+-/usr/bin/umount --recursive /var/lib/everspot\\n")
subprocess.run(["systemctl", "daemon-reload"], check=True)
"""
SET_UP = f"""set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
apt-get -q -y install --no-install-recommends openssh-server sudo systemd-resolved chrony
apt-get clean
rm -rf /var/lib/apt/lists/* /etc/ssh/ssh_host_* /etc/resolv.conf
useradd --create-home --shell /bin/bash {USER}
groupadd --system {GOOGLE_GROUP}
echo '{USER} ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/builder
echo '%{GOOGLE_GROUP} ALL=(ALL) NOPASSWD: ALL' >>/etc/sudoers.d/builder
echo 'Defaults env_keep += "{" ".join(SETTINGS)}"' >>/etc/sudoers.d/builder
printf 'Include /run/first-boot/*.conf\\nListenAddress 127.0.0.1\\n' >/etc/ssh/sshd_config.d/builder.conf
install -m 0755 /mnt/first-boot /usr/local/sbin/first-boot
install -m 0644 /mnt/first-boot.service /etc/systemd/system/first-boot.service
install -m 0644 /mnt/authorities.crt {AUTHORITIES}
systemctl enable first-boot.service ssh.service
"""
UNIT = """[Unit]
Before=ssh.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/first-boot
[Install]
WantedBy=multi-user.target
RequiredBy=ssh.service
"""


def builder_image(root: Path, cache: Path, folder: Path, cloud: str) -> Path:
    """Make the image's folder above the layers that `make image` keeps; the layer above them is kept too."""
    base = Base()
    lower = [
        cache / "layers" / f"base-{inputs.digest_base(base)}",
        cache / "layers" / f"dependencies-{inputs.digest_dependencies(root, base)}",
    ]
    digest = hashlib.sha256("".join((str(lower), SET_UP, FIRST_BOOT, UNIT)).encode()).hexdigest()[:16]
    layer = cache / "builder" / digest
    layer.parent.mkdir(parents=True, exist_ok=True)
    with (cache / "builder" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not layer.exists():
            for old in layer.parent.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            _make(layer, lower)
    folder.mkdir()
    (folder / "image.json").write_text(json.dumps({"layers": [str(path) for path in (*lower, layer)], "cloud": cloud}))
    return folder


def _make(layer: Path, lower: list[Path]) -> None:
    part = layer.with_suffix(".part")
    places = {name: part / name for name in ("upper", "work", "root", "shared")}
    for place in places.values():
        place.mkdir(parents=True)
    shared = places["shared"]
    (shared / "set-up").write_text(SET_UP)
    (shared / "first-boot").write_text(FIRST_BOOT)
    (shared / "first-boot.service").write_text(UNIT)
    shutil.copyfile(chroot.CERTIFICATES, shared / "authorities.crt")
    tree = chroot.LayerMounts(tuple(map(str, lower)), **{name: str(place) for name, place in places.items()})
    answer = subprocess.run(
        chroot.command(tree, ["bash", "/mnt/set-up"]), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stdout[-3000:] + answer.stderr[-3000:]
    places["upper"].rename(layer)
    shutil.rmtree(part)


def package_settings(proxy: str) -> dict[str, str]:
    """Return the variables for package managers of a machine without a network: a proxy on this machine."""
    settings = {name: os.environ[name] for name in SETTINGS if name in os.environ and "proxy" not in name.lower()}
    settings |= {"PIP_CERT": AUTHORITIES, "HTTPS_PROXY": proxy}
    return {f"{PREFIX}{name}": value for name, value in settings.items()}


class Proxy:
    """A proxy on the loopback interface that opens connections for CONNECT: a bake's way to the package index."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            method, target, _ = read_head(client).split(" ", 2)
            if method != "CONNECT":
                client.sendall(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n")
                return
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port)), timeout=60) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                copy_both(client, server)


def read_head(client: socket.socket) -> str:
    """Return the head of a request.

    Raises:
        ConnectionError: if the connection ends before.
    """
    head = b""
    while b"\r\n\r\n" not in head:
        data = client.recv(4096)
        if not data:
            raise ConnectionError("there is no whole request")
        head += data
    return head.decode()


def copy_both(client: socket.socket, server: socket.socket) -> None:
    """Copy between two connections until either ends."""
    other = {client: server, server: client}
    while True:
        for ready in select.select([client, server], [], [])[0]:
            data = ready.recv(1 << 16)
            if not data:
                return
            other[ready].sendall(data)
