"""Pushes an image in OCI's layout to the local cloud's ECR, as clients of the distribution specification do."""

import base64
import json
from pathlib import Path
from typing import Any

import boto3
import requests

REGION, ACCOUNT = "us-east-1", "123456789012"
HOST = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"


class EcrClient:
    """A client with the account owner's permissions."""

    def __init__(self, endpoint: str, **credentials: str) -> None:
        keys = credentials or {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        self.api: Any = boto3.client("ecr", endpoint_url=endpoint, region_name=REGION, **keys)
        token = self.api.get_authorization_token()["authorizationData"][0]["authorizationToken"]
        self._user, self._password = base64.b64decode(token).decode().split(":")
        self._endpoint = endpoint

    def request(self, method: str, path: str, host: str = HOST, **more: Any) -> requests.Response:
        headers = {"Host": host, **more.pop("headers", {})}
        more.setdefault("auth", (self._user, self._password))
        url = f"{self._endpoint}/v2/{path}"
        return requests.request(method, url, headers=headers, allow_redirects=False, timeout=60, **more)

    def push(self, repository: str, layout: Path) -> str:
        """Push an image, and return the digest by which it is pulled."""
        (descriptor,) = json.loads((layout / "index.json").read_text())["manifests"]
        manifest = (layout / "blobs/sha256" / descriptor["digest"].partition(":")[2]).read_bytes()
        document = json.loads(manifest)
        for part in (document["config"], *document["layers"]):
            if self.request("HEAD", f"{repository}/blobs/{part['digest']}").status_code != 200:
                self._upload(repository, layout, part["digest"])
        kind = {"Content-Type": descriptor["mediaType"]}
        answer = self.request("PUT", f"{repository}/manifests/{descriptor['digest']}", data=manifest, headers=kind)
        assert answer.status_code == 201, answer.text
        return str(descriptor["digest"])

    def _upload(self, repository: str, layout: Path, digest: str) -> None:
        place = self.request("POST", f"{repository}/blobs/uploads/").headers["Location"].removeprefix("/v2/")
        data = (layout / "blobs/sha256" / digest.partition(":")[2]).read_bytes()
        answer = self.request("PUT", place, params={"digest": digest}, data=data)
        assert answer.status_code == 201, answer.text
