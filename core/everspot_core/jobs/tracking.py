"""Trackers that get a job's metrics besides the store: MLflow, and Weights & Biases."""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, ValidationInfo, field_validator

from everspot_core.documents import Frozen, Stored, Utc, is_stored
from everspot_core.jobs.reported_values import Rate, Total
from everspot_core.validation.field_types import Line
from everspot_core.validation.problems import Problem

MLFLOW_CREDENTIALS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
WANDB_CREDENTIAL = "WANDB_API_KEY"
_WANDB_PROJECT = re.compile(r"([A-Za-z0-9_-]{1,64}/)?[A-Za-z0-9_.-]{1,128}")


class Tracking(Frozen):
    """Trackers that get a job's metrics. Credentials are `secrets`, never part of the file."""

    mlflow: Line | None = Field(
        default=None,
        description="URL of an MLflow tracking server. The job is one run there, which goes on after interruptions. "
        "Credentials come from the job's `secrets` `MLFLOW_TRACKING_TOKEN`, or `MLFLOW_TRACKING_USERNAME` and "
        "`MLFLOW_TRACKING_PASSWORD`, by https only.",
    )
    experiment: Line | None = Field(default=None, description="MLflow's experiment. Default: the name of the job.")
    wandb: Line | None = Field(
        default=None,
        description="Project of Weights & Biases, `project` or `team/project`, for a program that uses `wandb`. All "
        "attempts are one run. Without a secret `WANDB_API_KEY` it is offline, below `outputs/wandb`.",
    )

    @field_validator("mlflow")
    @classmethod
    def _is_server(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or is_stored(info):
            return value
        try:
            parts = urlsplit(value)
            has_host = bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            has_host = False
        if not has_host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
            raise ValueError("has to be the URL of a server, such as https://mlflow.example.com")
        if parts.username is not None or parts.password is not None:
            raise ValueError("holds credentials: give them by secrets, such as MLFLOW_TRACKING_TOKEN")
        return value.rstrip("/")

    @field_validator("wandb")
    @classmethod
    def _is_project(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and not is_stored(info) and _WANDB_PROJECT.fullmatch(value) is None:
            raise ValueError("has to be a project, or team/project")
        return value


def tracking_faults(values: Mapping[str, Any]) -> list[Problem]:
    """Return the faults of a job that would send its tracker's credentials unencrypted, or has them in plain text.
    `values`: the job's fields."""
    tracking, env, secrets = values.get("tracking"), values.get("env") or {}, values.get("secrets") or {}
    problems = [
        Problem(f"env.{name}", "is a credential: give it by secrets")
        for name in (*MLFLOW_CREDENTIALS, WANDB_CREDENTIAL)
        if tracking is not None and name in env and name != "MLFLOW_TRACKING_USERNAME"
    ]
    if tracking is None or tracking.mlflow is None:
        return problems
    if any(name in secrets for name in MLFLOW_CREDENTIALS) and not allows_credentials(tracking.mlflow):
        problems.append(Problem("tracking.mlflow", "needs https, because the job has credentials for it"))
    return problems


def allows_credentials(url: str) -> bool:
    """Return whether credentials may be sent to a URL: by https, or to a loopback address."""
    parts = urlsplit(url)
    try:
        return parts.scheme == "https" or ip_address(parts.hostname or "").is_loopback
    except ValueError:  # a host name, which may have any address
        return False


def derive_run_id(job_id: str, submitted_at: datetime) -> str:
    """Return the name of a job's run at a tracker, the same for all attempts and visits.

    The id alone does not do: the trials of a sweep have the same ids in each cluster, and a tracker has several.
    """
    return f"{job_id}-{hashlib.sha256(f'{submitted_at.timestamp():.6f}'.encode()).hexdigest()[:8]}"


def wandb_settings(
    tracking: Tracking | None, job_id: str, submitted_at: datetime, secrets: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables with which the `wandb` of all attempts writes one run; empty without a project."""
    if tracking is None or tracking.wandb is None:
        return {}
    team, _, project = tracking.wandb.rpartition("/")
    settings = {
        "WANDB_PROJECT": project,
        "WANDB_RUN_ID": derive_run_id(job_id, submitted_at),
        "WANDB_NAME": job_id,
        "WANDB_RESUME": "allow",
    }
    settings |= {"WANDB_ENTITY": team} if team else {}
    return settings if WANDB_CREDENTIAL in secrets else settings | {"WANDB_MODE": "offline"}


class Spending(Stored):
    """The cost of a job when an attempt begins, and the price of the attempt."""

    dollars: Total = Field(default=None, description="Spent so far, by the rules of the bill; None: not known.")
    gpu_hours: Total = None
    usd_per_hour: Rate = Field(
        default=None, description="The price of its part of the instance when the attempt began."
    )
    gpus: int = 0
    at: Utc

    def dollars_after(self, hours: float) -> float | None:
        """Return the dollars so far, once the attempt has lasted that many hours of market time."""
        return self.dollars + self.usd_per_hour * hours if self.dollars is not None and self.usd_per_hour else None

    def gpu_hours_after(self, hours: float) -> float | None:
        """Return the GPU-hours so far, once the attempt has lasted that many hours of market time."""
        return self.gpu_hours + self.gpus * hours if self.gpu_hours is not None else None
