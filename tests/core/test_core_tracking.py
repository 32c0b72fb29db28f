"""Where a job's metrics go besides the store: the fields of the job, and what a run has cost so far."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from everspot_core.jobs.job import JobSpec
from everspot_core.jobs.tracking import Spending, Tracking, allows_credentials, derive_run_id, wandb_settings
from pydantic import ValidationError

SERVER = "https://mlflow.example.com"
TOKEN = {"MLFLOW_TRACKING_TOKEN": "ssm:/token"}


def a_job(**fields: Any) -> JobSpec:
    return JobSpec.model_validate({"name": "a", "recipe": "image-classification", **fields})


def test_a_job_may_name_a_server_and_gives_its_credentials_as_secrets() -> None:
    spec = a_job(tracking={"mlflow": f"{SERVER}/"}, secrets=TOKEN)
    assert spec.tracking is not None and spec.tracking.mlflow == SERVER
    assert a_job().tracking is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tracking": {"mlflow": "https://user:word@example.com"}}, "holds credentials"),
        ({"tracking": {"mlflow": "file:///runs"}}, "has to be the URL of a server"),
        ({"tracking": {"mlflow": "https://example.com/?a=1"}}, "has to be the URL of a server"),
        ({"tracking": {"mlflow": "http://example.com:port"}}, "has to be the URL of a server"),
        ({"tracking": {"mlflow": "http://example.com"}, "secrets": TOKEN}, "needs https"),
        ({"tracking": {"mlflow": SERVER}, "env": {"MLFLOW_TRACKING_TOKEN": "x"}}, "is a credential"),
        ({"tracking": {"wandb": "p"}, "env": {"WANDB_API_KEY": "x"}}, "is a credential"),
        ({"tracking": {"wandb": "a/b/c"}}, "has to be a project"),
    ],
)
def test_credentials_in_the_file_and_addresses_that_are_none_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        a_job(**fields)


def test_credentials_leave_the_machine_by_https_alone() -> None:
    assert allows_credentials(SERVER) and allows_credentials("http://127.0.0.1:5000")
    assert not allows_credentials("http://mlflow.internal:5000") and not allows_credentials(
        "http://127.0.0.1.example.com"
    )


def test_wandb_writes_one_run_offline_unless_there_is_a_key() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert wandb_settings(None, "j", at, {}) == wandb_settings(Tracking(mlflow=SERVER), "j", at, {}) == {}
    offline = wandb_settings(Tracking(wandb="vision/resnet"), "resnet-1", at, {})
    of_another_cluster = wandb_settings(Tracking(wandb="vision/resnet"), "resnet-1", at + timedelta(seconds=1), {})
    assert of_another_cluster["WANDB_RUN_ID"] != offline["WANDB_RUN_ID"]
    assert offline == {
        "WANDB_PROJECT": "resnet", "WANDB_ENTITY": "vision", "WANDB_NAME": "resnet-1",
        "WANDB_RUN_ID": derive_run_id("resnet-1", at), "WANDB_RESUME": "allow", "WANDB_MODE": "offline",
    }  # fmt: skip
    assert "WANDB_MODE" not in wandb_settings(Tracking(wandb="resnet"), "resnet-1", at, {"WANDB_API_KEY": "ssm:/key"})


def test_what_is_not_known_of_the_cost_is_no_figure() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    spending = Spending(dollars=1.5, gpu_hours=2, usd_per_hour=0.5, gpus=4, at=at)
    assert (spending.dollars_after(0.5), spending.gpu_hours_after(0.5)) == (1.75, 4.0)
    assert Spending(dollars=1.5, at=at).dollars_after(1) is None
    assert Spending(usd_per_hour=1, at=at).dollars_after(1) is None
    assert Spending(at=at).gpu_hours_after(1) is None
