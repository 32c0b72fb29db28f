"""Logs in to ECR with the instance's role (Amazon ECR User Guide, "Private registry authentication")."""

import re
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from everspot_core.jobs.image_reference import RegistryImage

from everspot_clouds.aws.errors import format_error, trouble
from everspot_clouds.aws.rules import REGISTRY_HOST, SERVICE_DOMAINS
from everspot_clouds.base import RegistryLogin, Trouble
from everspot_clouds.image_registry import RegistryError

HOST = re.compile(REGISTRY_HOST)
"""Of the registries of accounts."""
_CONFIG = Config(connect_timeout=5, read_timeout=15, retries={"total_max_attempts": 4, "mode": "standard"})
_DENIED = "name its repository in the cluster's setting `imageRepositories`, and allow the agents' role in its policy"
_WAYS = "the network needs a way to ECR: interface endpoints of ecr.api and ecr.dkr, or the internet"
_OWN_HOSTS = tuple(f".{domain}" for domain in SERVICE_DOMAINS)


def log_in(image: RegistryImage) -> RegistryLogin:
    """Return access to the registry of an image. A token is valid for 12 hours, and opens what the role may read."""
    host = HOST.fullmatch(image.host)
    if host is None:
        raise RegistryError(f"{image.host} is no registry of ECR", Trouble.REQUEST)
    try:
        client = boto3.session.Session().client("ecr", region_name=host["region"], config=_CONFIG)
        token = client.get_authorization_token()["authorizationData"][0]["authorizationToken"]
    except ClientError as error:
        kind = trouble(error)
        fix = _DENIED if kind is Trouble.CREDENTIALS else ""
        raise RegistryError(f"ECR issues no token: {format_error(error)}", kind, fix) from None
    except BotoCoreError as error:
        raise RegistryError(f"ECR issues no token: {type(error).__name__}", trouble(error), _WAYS) from None
    endpoint = str(client.meta.endpoint_url)
    if str(urlsplit(endpoint).hostname).endswith(_OWN_HOSTS):
        return RegistryLogin(f"https://{image.host}", f"Basic {token}", fix=_DENIED)
    # The variables of AWS's SDKs name another endpoint, which then stands for the registry too.
    return RegistryLogin(endpoint.rstrip("/"), f"Basic {token}", {"Host": image.host}, _DENIED)
