"""Jobs on a booted image of Google Cloud: names are resolved, and the metadata server is closed to them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e_google import GoogleLive
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState
from everspot_local.options import DOORS
from image_machine import BOOT, LOOK_UP, resolver, until
from test_image_isolation import AS_AGENT, PYTHON, JobMachine

pytestmark = [pytest.mark.timeout(1800), pytest.mark.nightly]

JOB = """
import json, os, socket
from pathlib import Path
def reach(host, port):
    try:
        socket.create_connection((host, port), timeout=5).close()
        return "open"
    except OSError:
        return "closed"
import google.auth
from google.auth.transport.requests import Request
credentials, project = google.auth.default()
credentials.refresh(Request())
answers = {
    "user": os.getuid(), "project": project, "token": bool(credentials.token),
    "address": reach("169.254.169.254", 80), "name": reach("metadata.google.internal", 80),
}
print("ANSWERS " + json.dumps(answers), flush=True)
"""


@pytest.fixture
def machine(tmp_path: Path, google_image: Path) -> Iterator[JobMachine]:
    """A machine whose agent is the test, with Google's resolver at its address."""
    dropin = tmp_path / "added/etc/systemd/system/everspot-agent.service.d/tests.conf"
    dropin.parent.mkdir(parents=True)
    dropin.write_text("[Service]\nExecStart=\nExecStart=/usr/bin/sleep infinity\n")
    machine = JobMachine(tmp_path / "machine", google_image, tmp_path / "added")
    try:
        assert machine.await_boot() == "running"
        # Without a link but the loopback one, systemd takes the network to be down and asks no resolver.
        machine.run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
        for device, address in (("lo", "169.254.169.254/32"), ("veth0", "10.9.0.5/24"), ("veth1", "10.9.0.6/24")):
            machine.run("ip", "address", "add", address, "dev", device)
            machine.run("ip", "link", "set", device, "up")
        machine.run("systemd-run", "--unit=tests-resolver", PYTHON, "-c", resolver("169.254.169.254"))
        yield machine
    finally:
        machine.close()


def test_a_job_resolves_names_though_googles_resolver_is_closed_to_it(machine: JobMachine) -> None:
    look_up = lambda: machine.run(*AS_AGENT, PYTHON, "-c", LOOK_UP, check=False).strip()  # noqa: E731
    assert until(lambda: look_up() or None, "names are resolved", 60) == "10.1.2.3"
    assert machine.run_job("resolves", LOOK_UP) == {"code": 0, "output": "10.1.2.3\n", "files": None}
    program = "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'?', ('169.254.169.254', 53))"
    machine.run(*AS_AGENT, PYTHON, "-c", program)
    assert machine.run_job("asks", program)["code"] != 0


class ImageCluster(GoogleLive):
    """Machines that boot the image."""

    scale = 4.0

    def __init__(self, folder: Path, image: Path) -> None:
        self.image = image
        super().__init__(folder)

    def boot_command(self) -> tuple[str, ...]:
        return (*BOOT, "--image", str(self.image), *DOORS["gcp"])


def test_a_job_of_a_cluster_has_its_token_and_no_metadata_server(tmp_path: Path, google_image: Path) -> None:
    with ImageCluster(tmp_path / "cloud", google_image) as live:
        (tmp_path / "job").mkdir()
        (tmp_path / "job/main.py").write_text(JOB)
        spec = JobSpec.model_validate({"name": "j", "code": str(tmp_path / "job"), "entrypoint": ["main.py"]})
        submission = JobSubmission(job_id="j-1", spec=spec, submitted_at=live.clock.now())
        job = live.store.submit(submission, tmp_path / "job").job_id
        state = live.until(lambda: live.ended(job))
        log = b"".join(chunk.data for chunk in live.store.logs.read(job)).decode()
    assert state is JobState.SUCCEEDED, log
    (line,) = [line for line in log.splitlines() if line.startswith("ANSWERS ")]
    answers: dict[str, Any] = json.loads(line.removeprefix("ANSWERS "))
    assert answers.pop("user") not in (0, os.getuid())
    assert answers == {"project": "everspot-local", "token": True, "address": "closed", "name": "closed"}
