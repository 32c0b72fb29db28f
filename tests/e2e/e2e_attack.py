"""An attack by a job: a program tries to do more than its job, while there is another job to take something from."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from e2e_google import GoogleLive
from e2e_helpers import BUCKETS, LiveCluster
from everspot_core.jobs.checkpoint import CheckpointHead
from everspot_core.jobs.job import JobSpec, JobSubmission
from everspot_core.jobs.records import JobState

PROGRAM = Path(__file__).parent / "programs"
CONTROL, DATA = BUCKETS


def run_attack(
    live: LiveCluster | GoogleLive,
    out: Path,
    program: str,
    secret: str,
    write: Callable[[dict[str, Any], str, str], Any],
    env: Mapping[str, str],
) -> dict[str, Any]:
    """Return what the attacker found, the state of the victim, and what the credentials are worth after the job's end.

    Args:
        live: the cluster.
        out: the file of the attacker's answers.
        program: the attacking one.
        secret: where a secret of its job is.
        write: writes an object with the credentials of a result; returns the answer. Takes bucket and key.
        env: more variables of the job.
    """
    written = live.store.heads.create("victim", CheckpointHead(job_id="victim", epoch=3))
    assert written is not None
    job = _submit(live, out, program, secret, env)
    live.until(lambda: out.exists() or live.ended(job))
    assert out.exists(), b"".join(chunk.data for chunk in live.store.logs.read(job)).decode()
    result: dict[str, Any] = json.loads(out.read_text())
    out.with_suffix(".end").touch()
    assert live.until(lambda: live.ended(job)) is JobState.SUCCEEDED
    head = live.store.heads.get("victim")
    assert head is not None
    result["victim's head"] = head.etag == written.etag
    result["instances"] = sorted(live.store.instances.scan())
    following = f"{result['epoch'] + 1:06d}"
    result["after"] = {
        name: write(result, bucket, key)
        for name, bucket, key in (
            ("the next attempt's checkpoints", DATA, f"jobs/attacker/checkpoints/{following}/x"),
            ("the next attempt's metrics", DATA, f"jobs/attacker/metrics/{following}/x"),
            ("the next attempt's events", CONTROL, f"events/attacker/{following}-trainer-i-1-000001.json"),
            ("another's head", CONTROL, "heads/victim.json"),
            ("a phantom instance", CONTROL, "instances/i-0123456789abcdef0.json"),
        )
    }
    result["own head after"] = write(result, CONTROL, "heads/attacker.json")
    return result


def _submit(live: LiveCluster | GoogleLive, out: Path, program: str, secret: str, env: Mapping[str, str]) -> str:
    env = {
        **env,
        "ATTACK_CONTROL": CONTROL, "ATTACK_DATA": DATA, "ATTACK_OWN": "attacker", "ATTACK_VICTIM": "victim",
        "ATTACK_CODE": "code/0123.tar.gz", "ATTACK_OUT": str(out),
    }  # fmt: skip
    words = {"name": "attacker", "entrypoint": [program], "code": str(PROGRAM), "env": env}
    folder = out.parent / "corpus"
    folder.mkdir()
    (folder / "words.txt").write_text("words")
    dataset = live.store.datasets.put("corpus", folder)
    spec = JobSpec.model_validate(words | {"secrets": {"API_KEY": secret}, "datasets": ["corpus"]})
    job = JobSubmission(job_id="attacker", spec=spec, submitted_at=live.clock.now(), datasets=[dataset.id])
    return live.store.submit(job, PROGRAM).job_id
