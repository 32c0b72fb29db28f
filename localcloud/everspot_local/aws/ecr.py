"""Stands in for ECR's registry, `ACCOUNT.dkr.ecr.REGION.amazonaws.com`, and for the bucket of its layers. Repositories
and the images in them are moto's; layers and tokens are kept here, in memory.

It speaks the part of the OCI distribution specification 1.1 by which clients push and pull. Uploads in chunks and of
other repositories' layers, deletions, lists and referrers are refused.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from moto.core.responses import ActionResult
from moto.ecr.models import Repository, ecr_backends
from werkzeug.wrappers import Request, Response

from everspot_local.aws import account
from everspot_local.aws.account import ACCOUNT
from everspot_local.aws.iam.door import find_caller
from everspot_local.aws.iam.policy_language import Call
from everspot_local.aws.registry_state import RegistryState, RegistryToken

_HOST = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com")
_PATH = re.compile(r"/v2/(?P<name>[a-z0-9._/-]+)/(?P<kind>manifests|blobs/uploads|blobs)/(?P<reference>[^/]*)")
_LAYERS = re.compile(r"/prod-[a-z0-9-]+-starport-layer-bucket/(sha256:[0-9a-f]{64})")
_ACTIONS = {
    ("GET", "manifests"): "BatchGetImage",
    ("HEAD", "manifests"): "BatchGetImage",
    ("PUT", "manifests"): "PutImage",
    ("GET", "blobs"): "GetDownloadUrlForLayer",
    ("HEAD", "blobs"): "BatchCheckLayerAvailability",
    ("POST", "blobs/uploads"): "InitiateLayerUpload",
    ("PATCH", "blobs/uploads"): "UploadLayerPart",
    ("PUT", "blobs/uploads"): "CompleteLayerUpload",
}
"""The permission for each request (ECR User Guide, "IAM permissions for pushing an image", and for pulling one)."""


class _Refusal(Exception):
    """A refusal of the registry. `code`: of the distribution specification."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def get_authorization_token(self: Any) -> ActionResult:
    """Issue a token for what the caller may do, in moto's place."""
    token, ends_at = account.current().registry.issue_token(find_caller(self), str(self.region))
    proxy = f"https://{ACCOUNT}.dkr.ecr.{self.region}.amazonaws.com"
    return ActionResult(
        {"authorizationData": [{"authorizationToken": token, "expiresAt": ends_at, "proxyEndpoint": proxy}]}
    )


def handles(environ: dict[str, Any]) -> bool:
    """Return whether a request is for the registry, or for a layer."""
    path = str(environ.get("PATH_INFO", ""))
    return bool(_HOST.fullmatch(str(environ.get("HTTP_HOST", ""))) or _LAYERS.fullmatch(path))


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
    """Answer one request, as a WSGI application."""
    request = Request(environ)
    try:
        layer = _LAYERS.fullmatch(request.path)
        answer = _send_layer(request, layer[1]) if layer else _answer(request)
    except _Refusal as error:
        body = json.dumps({"errors": [{"code": error.code, "message": str(error)}]})
        answer = Response(body, error.status, content_type="application/json; charset=utf-8")
        if error.status == 401:
            answer.headers["Www-Authenticate"] = f'Basic realm="https://{request.host}/",service="ecr.amazonaws.com"'
    return answer(environ, start_response)


def _answer(request: Request) -> Response:
    here = account.current()
    host, place = _HOST.fullmatch(request.host), _PATH.fullmatch(request.path)
    assert host is not None  # noqa: S101  `handles` has matched it
    if here.market.disturbances.occurs("throttle"):
        raise _Refusal(429, "TOOMANYREQUESTS", "Rate exceeded")
    token = _read_token(request, here.registry)
    if token.region != host[2] or token.ends_at <= datetime.now(UTC):
        raise _Refusal(403, "DENIED", "Your authorization token has expired. Reauthenticate and try again.")
    if request.path == "/v2/":
        return Response("", 200)
    action = _ACTIONS.get((request.method, place["kind"])) if place is not None else None
    if place is None or action is None:
        raise _Refusal(405, "UNSUPPORTED", f"The local cloud does not support {request.method} {request.path}.")
    _authorize(token, action, host[1], host[2], place["name"])
    repository = ecr_backends[ACCOUNT][host[2]].repositories.get(place["name"])
    if repository is None:
        words = f"The repository with name '{place['name']}' does not exist in the registry with id '{host[1]}'"
        raise _Refusal(404, "NAME_UNKNOWN", words)
    if place["kind"] == "manifests":
        return _manifest(request, here.registry, repository, place["reference"])
    if place["kind"] == "blobs":
        return _blob(request, here.registry, place["name"], place["reference"])
    return _upload(request, here.registry, place["name"], place["reference"])


def _read_token(request: Request, registry: RegistryState) -> RegistryToken:
    login = request.authorization
    if login is None or login.type != "basic":
        raise _Refusal(401, "UNAUTHORIZED", "Not Authorized")
    token = registry.tokens.get(str(login.password))
    if login.username != "AWS" or token is None:
        raise _Refusal(403, "DENIED", "Your authorization token has expired. Reauthenticate and try again.")
    return token


def _authorize(token: RegistryToken, action: str, owner: str, region: str, name: str) -> None:
    """Refuse what the policies do not allow. Registries of other accounts allow nothing to this one."""
    resource = f"arn:aws:ecr:{region}:{owner}:repository/{name}"
    call = Call(f"ecr:{action}", resource, {"aws:requestedregion": (region,), "aws:securetransport": ("true",)})
    denied = token.caller.denied([call]) if token.caller is not None else None
    reason = denied.reason if denied is not None else ""
    if owner != ACCOUNT:
        reason = f"because no resource-based policy allows the {call.action} action"
    if reason:
        principal = token.caller.principal if token.caller is not None else f"arn:aws:iam::{ACCOUNT}:root"
        words = f"User: {principal} is not authorized to perform: {call.action} on resource: {resource} {reason}"
        raise _Refusal(403, "DENIED", words)


def _manifest(request: Request, registry: RegistryState, repository: Repository, reference: str) -> Response:
    if request.method == "PUT":
        return _put_manifest(request, registry, repository, reference)
    images = [i for i in repository.images if reference in (i.get_image_digest(), *i.image_tags)]
    if not images:
        raise _Refusal(404, "MANIFEST_UNKNOWN", "Requested image not found")
    headers = {"Docker-Content-Digest": images[0].get_image_digest()}
    kind = images[0].image_manifest_media_type
    return Response(images[0].image_manifest.encode(), 200, headers, content_type=kind)


def _put_manifest(request: Request, registry: RegistryState, repository: Repository, reference: str) -> Response:
    data = request.get_data()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if reference.startswith("sha256:") and reference != digest:
        raise _Refusal(400, "DIGEST_INVALID", "The digest of the manifest does not match its bytes")
    document = json.loads(data)
    parts = [document.get("config"), *document.get("layers", [])] if "layers" in document else []
    missing = [part["digest"] for part in parts if (repository.name, part["digest"]) not in registry.blobs]
    if missing:
        raise _Refusal(404, "MANIFEST_BLOB_UNKNOWN", f"Layers with digests '{missing}' required for pushing are absent")
    tag = None if reference.startswith("sha256:") else reference
    backend = ecr_backends[ACCOUNT][repository.region_name]
    if not any(image.get_image_digest() == digest and tag in (None, *image.image_tags) for image in repository.images):
        backend.put_image(repository.name, data.decode(), tag, request.content_type, digest)  # type: ignore[arg-type]
    return Response("", 201, {"Location": f"/v2/{repository.name}/manifests/{digest}", "Docker-Content-Digest": digest})


def _blob(request: Request, registry: RegistryState, name: str, digest: str) -> Response:
    blob = registry.blobs.get((name, digest))
    if blob is None:
        raise _Refusal(404, "BLOB_UNKNOWN", "The layer with digest does not exist in the repository")
    if request.method == "HEAD":
        return Response("", 200, {"Content-Length": str(len(blob)), "Docker-Content-Digest": digest})
    # Layers are in S3, on another host than the registry: clients must not send it the registry's token.
    signature = secrets.token_urlsafe(16)
    registry.signatures.add(signature)
    endpoint = urlsplit(account.current().endpoint)
    other = "localhost" if endpoint.hostname == "127.0.0.1" else "127.0.0.1"
    bucket = f"prod-{account.current().region}-starport-layer-bucket"
    place = f"{endpoint.scheme}://{other}:{endpoint.port}/{bucket}/{digest}?X-Amz-Signature={signature}"
    return Response("", 307, {"Location": place})


def _send_layer(request: Request, digest: str) -> Response:
    registry = account.current().registry
    if "Authorization" in request.headers:
        return Response(
            "<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism allowed</Message></Error>", 400
        )
    blob = next((data for (_, key), data in registry.blobs.items() if key == digest), None)
    if request.args.get("X-Amz-Signature") not in registry.signatures or blob is None or request.method != "GET":
        return Response("<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>", 403)
    return Response(blob, 200, content_type="application/octet-stream")


def _upload(request: Request, registry: RegistryState, name: str, upload: str) -> Response:
    query = parse_qs(request.query_string.decode())
    if request.method == "POST":
        if upload or query:
            raise _Refusal(405, "UNSUPPORTED", "The local cloud does not support uploads in one request, or mounts.")
        upload = secrets.token_hex(16)
        registry.uploads[upload] = b""
        return Response("", 202, {"Location": f"/v2/{name}/blobs/uploads/{upload}", "Range": "0-0"})
    if upload not in registry.uploads:
        raise _Refusal(404, "BLOB_UPLOAD_UNKNOWN", "The upload could not be found")
    registry.uploads[upload] += request.get_data()
    if request.method == "PATCH":
        end = max(0, len(registry.uploads[upload]) - 1)
        return Response("", 202, {"Location": f"/v2/{name}/blobs/uploads/{upload}", "Range": f"0-{end}"})
    data, digest = registry.uploads.pop(upload), query.get("digest", [""])[0]
    if digest != f"sha256:{hashlib.sha256(data).hexdigest()}":
        raise _Refusal(400, "DIGEST_INVALID", "The layer digest does not match its bytes")
    registry.blobs[name, digest] = data
    return Response("", 201, {"Location": f"/v2/{name}/blobs/{digest}", "Docker-Content-Digest": digest})
