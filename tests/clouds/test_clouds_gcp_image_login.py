"""Images of Artifact Registry: how its registry is asked, by a small one that takes access tokens alone."""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from everspot_clouds.base import Trouble
from everspot_clouds.gcp.image_login import log_in
from everspot_clouds.image_registry import ImageMissing, ImageRegistry, RegistryError
from everspot_core.jobs.image_reference import RegistryImage
from everspot_store import ManualClock
from werkzeug.serving import make_server
from werkzeug.wrappers import Request, Response

MANIFEST = b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
IMAGE = RegistryImage("europe-docker.pkg.dev", "everspot-local/images/train", DIGEST)


@Request.application
def registry(request: Request) -> Response:
    if request.headers.get("Authorization") != "Bearer access-token":
        return Response('{"errors": [{"code": "DENIED", "message": "Permission denied"}]}', 403)
    right = request.host == IMAGE.host and request.path == f"/artifactregistry/v2/{IMAGE.repository}/manifests/{DIGEST}"
    return Response(MANIFEST) if right else Response('{"errors": [{"code": "NAME_UNKNOWN", "message": ""}]}', 404)


@pytest.fixture(autouse=True)
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = make_server("127.0.0.1", 0, registry, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("EVERSPOT_GCP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "access-token")
    yield
    server.shutdown()
    thread.join(60)
    server.server_close()


def test_an_image_is_read_by_the_access_token_of_the_instance(tmp_path: Path) -> None:
    with ImageRegistry(IMAGE, log_in, ManualClock()) as images:
        assert images.read_manifest(DIGEST) == MANIFEST
        with pytest.raises(ImageMissing, match="404 NAME_UNKNOWN"):
            images.save_blob(DIGEST, tmp_path / "blob")


def test_a_token_that_may_not_read_is_refused_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "other")
    with ImageRegistry(IMAGE, log_in, ManualClock()) as images, pytest.raises(RegistryError) as caught:
        images.read_manifest(DIGEST)
    assert "403 DENIED: Permission denied" in str(caught.value) and "other" not in str(caught.value)
    assert caught.value.trouble is Trouble.CREDENTIALS and "imageRepositories" in caught.value.fix


def test_the_token_is_sent_to_no_other_registry() -> None:
    with pytest.raises(RegistryError, match=r"ghcr\.io is no host of Artifact Registry"):
        log_in(RegistryImage("ghcr.io", "a/b", DIGEST))
