"""Checks of the ARNs among the inputs: each has to name a resource of the right kind."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from everspot_clouds.aws.rules import REGISTRY_HOST, partition
from everspot_clouds.aws.tags import arn_problem
from everspot_core.validation.problems import Problems, camel, shown

HOST = re.compile(REGISTRY_HOST)
"""The host of an account's registry in a region."""
_REPOSITORY = re.compile(r"(?=.{2,256}\Z)[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
"""The name of a repository (ECR API Reference, "CreateRepository")."""
SECRETS = {"secretsmanager": "secret:", "ssm": "parameter/"}
"""The services whose values jobs may read, and how the ARNs of their resources begin."""


def check_arn(problems: Problems, args: Mapping[str, Any], key: str, service: str, resource: str) -> None:
    """Add a problem if an input is given as plain text and is not the ARN of such a resource."""
    arn = args.get(key)
    if arn is not None:
        _check_arn(problems, camel(key), arn, service, resource)


def check_arns(problems: Problems, name: str, arns: Sequence[Any], service: str, resource: str) -> None:
    """Like `check_arn`, for every ARN of a list."""
    for index, arn in enumerate(arns):
        _check_arn(problems, f"{name}[{index}]", arn, service, resource)


def check_secrets(problems: Problems, arns: Sequence[str]) -> None:
    """Add a problem for every ARN that does not name a secret of Secrets Manager or a parameter of SSM."""
    for index, arn in enumerate(arns):
        wrong = [arn_problem(arn, service, resource, open_end=True) for service, resource in SECRETS.items()]
        form = "is the ARN neither of a secret (arn:aws:secretsmanager:…:secret:…) nor of a parameter (arn:aws:ssm:…)"
        wild = next((reason for reason in wrong if reason is not None and "wildcard" in reason), None)
        problems.need(None in wrong, f"secretArns[{index}]", wild or f"{shown(arn)} {form}")


def check_repositories(problems: Problems, repositories: Sequence[str], region: str | None = None) -> None:
    """Add a problem for every text that does not name a repository of ECR, in `region` if it is known."""
    form = "ACCOUNT.dkr.ecr.REGION.amazonaws.com/NAME"
    for index, repository in enumerate(repositories):
        arn = repository_arn(repository)
        words = f"{shown(repository)} is no repository of ECR, {form}"
        if arn is not None and region is not None:
            words = f"{shown(repository)} is not in the cluster's region, {region}"
        fits = arn is not None and region in (None, arn.split(":")[3])
        problems.need(fits, f"imageRepositories[{index}]", words)


def repository_arn(repository: str) -> str | None:
    """Return the ARN of a repository of ECR by its URI; None if it is none."""
    host, _, name = repository.partition("/")
    place = HOST.fullmatch(host)
    if place is None or not _REPOSITORY.fullmatch(name):
        return None
    return f"arn:{partition(place['region'])}:ecr:{place['region']}:{place['account']}:repository/{name}"


def _check_arn(problems: Problems, name: str, arn: object, service: str, resource: str) -> None:
    if isinstance(arn, str):
        wrong = arn_problem(arn, service, resource)
        problems.need(wrong is None, name, wrong or "")
