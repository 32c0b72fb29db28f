"""Reads a job's secrets by name: from the agent, or with the instance's role. They exist in this process and its
children only."""

import http.client
import json
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from everspot_clouds.base import CloudError
from everspot_clouds.registry import provider

from everspot_train.prepare.errors import NotReady

SECRETS_VARIABLE = "EVERSPOT_SECRETS"
"""The variable with the URL at which the agent serves the values of the job's secrets, if the job's own credentials
cannot read them."""
SECRETS_PATH = "/secrets"
_TIMEOUT = timedelta(minutes=5)  # the agent asks the cloud for one value after the other, each with bounded retries
_LONGEST = 120 * 1024  # bytes: Linux takes 128 KiB for one variable


def read_secrets(references: Mapping[str, str], cloud: str, region: str, url: str | None = None) -> dict[str, str]:
    """Return the values of secrets by variable. `url`: of the agent; None: read them from the cloud, whose client is
    loaded only then.

    Raises:
        NotReady: if a secret cannot be read. The message has its name, and never a value.
    """
    if not references:
        return {}
    values = _of_agent(references, url) if url is not None else _of_cloud(references, cloud, region)
    for variable, value in values.items():
        if "\0" in value or len(value.encode()) > _LONGEST:
            raise NotReady(f"secret {references[variable]} for {variable} is no value that a variable can hold")
    return values


def _of_cloud(references: Mapping[str, str], cloud: str, region: str) -> dict[str, str]:
    read = provider(cloud).secrets(region)
    values = {}
    for variable, reference in references.items():
        try:
            values[variable] = read(reference)
        except CloudError as error:
            raise _unreadable(variable, reference, str(error), error.fix) from None
    return values


def _of_agent(references: Mapping[str, str], url: str) -> dict[str, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is on the loopback address
    try:
        with opener.open(url, timeout=_TIMEOUT.total_seconds()) as response:
            answer: dict[str, Any] = json.load(response)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NotReady(f"the agent does not serve the job's secrets: {type(error).__name__}") from None
    if fault := answer.get("fault"):
        raise _unreadable(fault["variable"], references[fault["variable"]], fault["error"], fault["fix"])
    return {variable: str(answer["values"][variable]) for variable in references}


def _unreadable(variable: str, reference: str, error: str, fix: str) -> NotReady:
    return NotReady(f"secret {reference} for {variable} cannot be read: {error}" + (f": {fix}" if fix else ""))
