"""`pulumi up` by the real engine with the image that Packer baked, on both clouds.

The image's id comes by its parameter or its family into the stack's template, and from there to contained machines, on
which a job trains, meets a notice and goes on. The clouds' own bakes are described in `test_image_bake.py` and
`test_image_bake_google.py`.
"""

import json
import shlex
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from builder_image import Proxy
from everspot_clouds.gcp.http_api import Api
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import EventKind, JobState
from everspot_store import Store, SystemClock
from packer_aws import bake_on_aws
from packer_bake import boot_builder
from packer_google import bake_on_google

from tests.engine.conftest import Rig, copied, running

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3000), pytest.mark.nightly]
PROGRAM = Path(__file__).parents[1] / "agent/programs/toy"
PARAMETER = "/everspot/image/baked"
FAMILY = "everspot"
SCALE = 4.0
"""A notice is half a minute of real time."""
PATIENCE_SECONDS = 900
T = TypeVar("T")


@contextmanager
def baking_cloud(tmp_path: Path, cloud: str) -> Iterator[Rig]:
    """Run a local cloud whose machines boot images; this process has the environment of its owner."""
    proxy = Proxy()
    tmp_path.joinpath("project").mkdir()
    home = copied(tmp_path / "project")
    boot = shlex.join(boot_builder(tmp_path, cloud, proxy))
    options = (f"--time-scale={SCALE:g}", f"--delay=shutdown={90 * SCALE:g}s", "--boot-command", boot)
    try:
        with running(home, cloud, *options, processes=True) as rig, pytest.MonkeyPatch.context() as patch:
            for name, value in rig.env.items():
                patch.setenv(name, value)
            yield rig
    finally:
        proxy.close()


def until(rig: Rig, condition: Callable[[], T | None]) -> T:
    """Wait until it is there; with the machines' consoles if it never is."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.5)
    raise AssertionError(consoles(rig))


def consoles(rig: Rig) -> str:
    return "\n".join(log.read_text()[-3000:] for log in rig.project.glob("local/instances/*/console.log"))


def check_training(rig: Rig, interrupt: Callable[[str], None]) -> tuple[str, str]:
    """Let a job train, meet a notice and go on elsewhere from the very step; return its two instances."""
    store = Store.open(rig.outputs["controlUrl"], rig.outputs["dataUrl"], clock=SystemClock.from_environment())
    env = {"TOY_STEPS": "1000000", "TOY_STEP_SECONDS": "0.5", "TOY_EVERY": "1000000"}
    words = {"name": "baked", "entrypoint": ["toy_train.py"], "code": str(PROGRAM), "env": env}
    submission = JobSubmission(
        job_id="baked", spec=JobSpec.model_validate(words), submitted_at=SystemClock.from_environment().now()
    )
    job = store.submit(submission, PROGRAM).job_id

    def owner() -> str | None:
        record = store.records.get(job)
        trains = record is not None and record.value.state is JobState.RUNNING and record.value.progress.step >= 2
        return record.value.owner if record is not None and trains else None

    def find_event(kind: EventKind, instance: str) -> Any:
        return next((e for e in store.events(job) if e.kind is kind and e.instance_id == instance), None)

    first = until(rig, owner)
    interrupt(first)
    interrupted = until(rig, lambda: find_event(EventKind.INTERRUPTED, first))
    second = until(rig, lambda: next((o for o in [owner()] if o not in (None, first)), None))
    training = until(rig, lambda: find_event(EventKind.TRAINING, second))
    assert interrupted.data["durable_step"] >= 2
    assert (training.data["from_step"], training.data["restored"]) == (interrupted.data["durable_step"], True)
    return first, second


def test_a_stack_on_aws_comes_up_with_the_image_of_its_parameter(tmp_path: Path, lower_layers: None) -> None:
    with baking_cloud(tmp_path, "aws") as rig:
        ec2, endpoint, region = rig.client("ec2"), rig.env["AWS_ENDPOINT_URL"], rig.env["AWS_REGION"]
        bake_on_aws(tmp_path / "bake", ec2, endpoint, region, PARAMETER, lambda: consoles(rig))
        image = rig.client("ssm").get_parameter(Name=PARAMETER)["Parameter"]["Value"]
        rig.settings("imageId", None)
        rig.settings("imageParameter", PARAMETER)
        rig.up("account")
        rig.up("local")
        first, second = check_training(rig, lambda instance: rig.market("interrupt", instance=instance))
        answer = ec2.describe_instances(InstanceIds=[first, second])
        instances = [instance for each in answer["Reservations"] for instance in each["Instances"]]
        assert {instance["ImageId"] for instance in instances} == {image}
        assert "systemd" in ec2.get_console_output(InstanceId=second)["Output"]


def test_a_stack_on_google_comes_up_with_the_newest_image_of_its_family(tmp_path: Path, lower_layers: None) -> None:
    with baking_cloud(tmp_path, "gcp") as rig:
        api, region = Api(SystemClock.from_environment()), rig.env["GOOGLE_REGION"]
        endpoint, project = rig.env["EVERSPOT_GCP_ENDPOINT"], "projects/everspot-local"

        def do(verb: str, path: str, body: Any) -> None:
            operation = api.call(verb, "compute", f"{project}/{path}", body=body)
            while operation["status"] != "DONE":
                operation = api.call("POST", "compute", operation["selfLink"].partition("/compute/v1/")[2] + "/wait")
            assert "error" not in operation, operation

        def interrupt(instance: str) -> None:
            body = json.dumps({"instance": instance}).encode()
            with urllib.request.urlopen(urllib.request.Request(f"{endpoint}/_market/interrupt", data=body)):
                pass

        bake_on_google(tmp_path / "bake", do, endpoint, region, FAMILY, lambda: consoles(rig))
        image = api.get("compute", f"{project}/global/images/family/{FAMILY}")
        assert image["name"].startswith("everspot-1")
        rig.up("local-gcp")
        first, second = check_training(rig, interrupt)
        disks = api.get("compute", f"{project}/aggregated/disks")["items"]
        sources = {disk["sourceImage"] for scope in disks.values() for disk in scope.get("disks", ())}
        assert sources == {image["selfLink"]}, (first, second)
