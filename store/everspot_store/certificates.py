"""Certificates that a proxy which inspects TLS needs, from the variables of the clouds' own clients.

obstore and Python's ssl read none of these variables.
"""

import logging
import os
import re
import ssl
from collections.abc import Callable
from pathlib import Path

from everspot_store.errors import StoreError, StoreUntrusted

_VARIABLES = {"s3": ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"), "gs": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")}
"""The variables of botocore and of requests, by the scheme of a bucket. The first that is set counts."""
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_log = logging.getLogger(__name__)


def read_certificates(url: str, loads: Callable[[bytes], bool]) -> bytes:
    """Return further certificates to trust for a bucket, as PEM; empty if there are none.

    A folder is left out, because it is the system's own. As in OpenSSL, one certificate that cannot be loaded does not
    make the others useless.

    Args:
        url: Of the bucket.
        loads: Whether a client can load certificates.

    Raises:
        StoreError: if the file cannot be read.
    """
    for variable in _variables(url):
        if path := os.environ.get(variable):
            try:
                content = b"" if Path(path).is_dir() else Path(path).read_bytes()
            except OSError as error:
                raise StoreError(f"{variable} names {path}, which cannot be read: {error.strerror}") from error
            if not content or loads(content):
                return content
            blocks = _CERTIFICATE.findall(content)
            usable = [certificate for certificate in blocks if loads(certificate)]
            _log.warning("%s names %s: %d of its %d certificates can be read", variable, path, len(usable), len(blocks))
            return b"\n".join(usable)
    return b""


def trusting(url: str) -> ssl.SSLContext:
    """Return a context that trusts the system's certificates and those of `read_certificates`. Raises as that does."""
    context = ssl.create_default_context()

    def loads(pem: bytes) -> bool:
        try:
            context.load_verify_locations(cadata=pem.decode("ascii", "replace"))
        except ssl.SSLError:
            return False
        return True

    read_certificates(url, loads)
    return context


def untrusted(url: str, reason: str) -> StoreUntrusted:
    """Return the error for a refused certificate of a bucket's server."""
    advice = f"if a proxy inspects TLS, {_variables(url)[0]} has to name the file with its certificate"
    return StoreUntrusted(f"the certificate of {url} is refused ({reason}): {advice}")


def _variables(url: str) -> tuple[str, ...]:
    return _VARIABLES[url.partition(":")[0]]
