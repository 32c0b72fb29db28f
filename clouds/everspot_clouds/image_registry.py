"""Reads images from a registry by the OCI distribution specification 1.1, with the instance's own credentials.

Both clouds' registries speak it: they differ in how a client logs in (`Provider.registry_login`). Credentials stay in
the memory of this process, and are sent to the registry's own host alone: requests drops them when it follows a
redirect to the store of the layers.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import requests
from everspot_core.clock import Clock
from everspot_core.jobs.image_reference import RegistryImage

from everspot_clouds.base import CloudError, RegistryLogin, Trouble

MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
MOST_MANIFEST = 4 << 20
"""The most bytes of a manifest that registries have to accept (distribution specification, "Pushing Manifests")."""
TRIES = 5
FIRST_WAIT = timedelta(seconds=1)
"""The wait after the first failed try. Each further one is twice as long: 15 s in all."""
_CONNECT, _READ = timedelta(seconds=10), timedelta(seconds=60)
_CHUNK = 1 << 20
_MOST_WORDS = 300  # characters of a registry's message
_EXPIRED = (401, 403)
"""The statuses of credentials that have ended: 401 by the specification, 403 of ECR (ECR user guide, "HTTP 403
Errors")."""
_Result = TypeVar("_Result")


class RegistryError(CloudError):
    """A registry refuses an image, or does not answer."""


class ImageMissing(RegistryError):
    """The registry has no such repository, image or layer."""


class PullStopped(Exception):
    """The caller no longer wants the image."""


class _Authorization(requests.auth.AuthBase):
    """Sets the header by a hook, because requests would replace it by what a .netrc has for the host."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = self._value
        return request


class ImageRegistry:
    """Reads one image.

    Args:
        image: to be read.
        log_in: returns access to its registry; called again after the credentials have ended.
        clock: for the waits between tries.
        is_stopped: asked again and again; True ends a transfer by `PullStopped`.

    Attributes:
        moved_at: the monotonic time of the last piece that a transfer has moved.
    """

    def __init__(
        self,
        image: RegistryImage,
        log_in: Callable[[RegistryImage], RegistryLogin],
        clock: Clock,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._image = image
        self._log_in = log_in
        self._clock = clock
        self._is_stopped = is_stopped
        self._login: RegistryLogin | None = None
        self._session = requests.Session()
        self.moved_at = clock.monotonic()

    def __enter__(self) -> "ImageRegistry":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def read_manifest(self, digest: str) -> bytes:
        """Return a manifest or an index, by its digest.

        Raises:
            RegistryError: if the registry refuses, does not answer, or sends other bytes.
            PullStopped: if the caller no longer wants it.
        """

        def read(answer: requests.Response) -> bytes:
            data = bytearray()
            for chunk in self._chunks(answer):
                data += chunk
                if len(data) > MOST_MANIFEST:
                    raise RegistryError(f"{self._image.host}: {digest} is larger than a manifest", Trouble.REQUEST)
            _compare(hashlib.sha256(data), digest)
            return bytes(data)

        return self._retry(f"manifests/{digest}", {"Accept": ", ".join(MANIFEST_TYPES)}, read)

    def save_blob(self, digest: str, path: Path) -> None:
        """Write a layer or a configuration into a file.

        Raises:
            RegistryError: if the registry refuses, does not answer, or sends other bytes.
            PullStopped: if the caller no longer wants it.
            OSError: if the file cannot be written.
        """

        def save(answer: requests.Response) -> None:
            with path.open("wb") as file:
                self._copy(answer, digest, file)

        self._retry(f"blobs/{digest}", {}, save)

    def _copy(self, answer: requests.Response, digest: str, file: BinaryIO) -> None:
        hashed = hashlib.sha256()
        for chunk in self._chunks(answer):
            hashed.update(chunk)
            file.write(chunk)
        _compare(hashed, digest)

    def _chunks(self, answer: requests.Response) -> Iterator[bytes]:
        for chunk in answer.iter_content(_CHUNK):
            self.moved_at = self._clock.monotonic()
            self._check_stop()
            yield chunk

    def _retry(self, path: str, headers: Mapping[str, str], use: Callable[[requests.Response], _Result]) -> _Result:
        """Return what `use` makes of an answer. Passing failures are tried again, a limited number of times; ended
        credentials are replaced once."""
        wait, replaced = FIRST_WAIT, False
        remaining = TRIES
        while True:
            self._check_stop()
            try:
                return self._get(path, headers, use)
            except _Expired as error:
                if replaced:
                    raise error.refusal from None
                replaced, self._login = True, None
                continue
            except RegistryError as error:
                remaining -= 1
                if not remaining or error.trouble not in (Trouble.TRANSIENT, Trouble.THROTTLED):
                    raise
            self._clock.sleep(wait)
            wait *= 2

    def _get(self, path: str, headers: Mapping[str, str], use: Callable[[requests.Response], _Result]) -> _Result:
        if self._login is None:
            self._login = self._log_in(self._image)
        login, url = self._login, f"{self._login.url}/v2/{self._image.repository}/{path}"
        try:
            with self._session.get(
                url,
                headers={"Accept-Encoding": "identity", **login.headers, **headers},
                auth=_Authorization(login.authorization),
                stream=True,
                timeout=(_CONNECT.total_seconds(), _READ.total_seconds()),
            ) as answer:
                if answer.status_code != requests.codes.ok:
                    raise self._refusal(answer, login)
                return use(answer)
        except requests.RequestException as error:
            # Its text may hold the signed URL of a layer.
            raise RegistryError(f"{self._image.host}: {type(error).__name__}", Trouble.TRANSIENT) from None

    def _refusal(self, answer: requests.Response, login: RegistryLogin) -> Exception:
        status = answer.status_code
        by_registry = answer.url.startswith(f"{login.url}/")
        words = f"{self._image.host}: {status} {_message(answer) if by_registry else 'of the store of its layers'}"
        if status in _EXPIRED:
            refusal = RegistryError(words, Trouble.CREDENTIALS, login.fix)
            return _Expired(refusal)
        if status == requests.codes.not_found:
            return ImageMissing(words, Trouble.REQUEST)
        if status == requests.codes.too_many_requests:
            return RegistryError(words, Trouble.THROTTLED)
        return RegistryError(words, Trouble.TRANSIENT if status >= 500 else Trouble.REQUEST)

    def _check_stop(self) -> None:
        if self._is_stopped():
            raise PullStopped


class _Expired(Exception):
    """The registry no longer accepts the credentials, or refuses the image."""

    def __init__(self, refusal: RegistryError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


def _compare(hashed: Any, digest: str) -> None:
    if f"sha256:{hashed.hexdigest()}" != digest:
        raise RegistryError(f"{digest} has other bytes than its digest says", Trouble.TRANSIENT)


def _message(answer: requests.Response) -> str:
    """Return the code and the message of a registry's refusal (distribution specification, "Error Codes")."""
    try:
        first = answer.json()["errors"][0]
        words = f"{first['code']}: {first.get('message', '')}"
    except (ValueError, LookupError, TypeError, requests.RequestException):
        words = str(answer.reason)
    return words[:_MOST_WORDS]
