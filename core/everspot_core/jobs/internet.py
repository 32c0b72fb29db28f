"""Finds the internet services that a job uses, by its environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from everspot_core.jobs.job import JobSpec


@dataclass(frozen=True, slots=True)
class InternetService:
    """A service that programs call over the internet.

    Attributes:
        name: Its usual name.
        host: The host of its API.
        tokens: Environment variables of its credentials.
        offline: Environment variables that keep its client from making calls, each with the values that do so, the
            usual one first.
        elsewhere: Environment variables that name another server, such as one within the network.
    """

    name: str
    host: str
    tokens: frozenset[str]
    offline: Mapping[str, tuple[str, ...]]
    elsewhere: frozenset[str] = frozenset()

    @property
    def offline_setting(self) -> str | None:
        """A setting for the job's `env` that keeps the client from making calls; None if the client has no such
        setting."""
        return next((f"{name}={values[0]}" for name, values in self.offline.items()), None)


_YES = ("1", "true", "True", "TRUE", "yes", "on", "ON", "YES")

SERVICES = (
    InternetService(
        "Weights & Biases",
        "api.wandb.ai",
        frozenset({"WANDB_API_KEY"}),
        {"WANDB_MODE": ("offline", "disabled", "dryrun"), "WANDB_DISABLED": _YES},
        frozenset({"WANDB_BASE_URL"}),
    ),
    InternetService(
        "Hugging Face",
        "huggingface.co",
        frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACEHUB_API_TOKEN"}),
        {"HF_HUB_OFFLINE": _YES},
        frozenset({"HF_ENDPOINT"}),
    ),
    InternetService("Comet", "www.comet.com", frozenset({"COMET_API_KEY"}), {}, frozenset({"COMET_URL_OVERRIDE"})),
    InternetService(
        "Neptune", "app.neptune.ai", frozenset({"NEPTUNE_API_TOKEN"}), {"NEPTUNE_MODE": ("offline", "debug")}
    ),
    InternetService("Kaggle", "www.kaggle.com", frozenset({"KAGGLE_KEY", "KAGGLE_API_TOKEN"}), {}),
    InternetService("OpenAI", "api.openai.com", frozenset({"OPENAI_API_KEY"}), {}, frozenset({"OPENAI_BASE_URL"})),
    InternetService("NVIDIA NGC", "api.ngc.nvidia.com", frozenset({"NGC_API_KEY", "NGC_CLI_API_KEY"}), {}),
    InternetService("GitHub", "github.com", frozenset({"GITHUB_TOKEN", "GH_TOKEN"}), {}, frozenset({"GH_HOST"})),
)
"""Services whose clients read these variables (source: each service's documentation of its client)."""


def services_used(spec: JobSpec) -> list[tuple[str, InternetService]]:
    """Return the secrets of a job that are credentials of services on the internet, each with the service.

    A service is left out if the job's `env` keeps its client from making calls or names another server.
    """
    return [
        (variable, service)
        for variable in sorted(spec.secrets)
        for service in SERVICES
        if variable in service.tokens and not _stays_inside(service, spec.env)
    ]


def _stays_inside(service: InternetService, env: Mapping[str, str]) -> bool:
    offline = any(env.get(name) in values for name, values in service.offline.items())
    return offline or any(name in env for name in service.elsewhere)
