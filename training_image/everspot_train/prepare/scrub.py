"""Runs a program and removes secrets from its output before the output reaches a file or the store."""

import fcntl
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FrameType

from everspot_train import masking

MASK = masking.MASK.encode()
_CHUNK = 64 * 1024
_OUTLIVED = b"\neverspot: the program is over, and a child of it is not: what it prints from here on is not kept\n"
_LOOK_SECONDS = 0.2  # between two checks whether a program without output has ended


class Scrubber:
    """Replaces secrets in a stream of bytes, even if they are cut across pieces. Only bytes that may be the beginning
    of a secret are held back."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = sorted((form.encode() for form in masking.secret_forms(secrets)), key=len, reverse=True)
        self._pending = b""

    def feed(self, data: bytes) -> bytes:
        """Add bytes, and return the bytes that can be passed on now."""
        out, self._pending = self._scrubbed(self._pending + data, last=False)
        return out

    def flush(self) -> bytes:
        """Return the bytes that were held back, at the end of the stream."""
        out, self._pending = self._scrubbed(self._pending, last=True)
        return out

    def _scrubbed(self, text: bytes, *, last: bool) -> tuple[bytes, bytes]:
        """`text` without its secrets (leftmost and longest first), and its end that may yet become one."""
        out, at = [], 0
        while True:
            open_at = len(text) if last else len(text) - self._beginning(text[at:])
            where, secret = min(((text.find(s, at), -len(s)) for s in self._secrets if s in text[at:]), default=(-1, 0))
            if where < 0 or where >= open_at:  # what begins at or behind an open beginning may be part of a longer one
                break
            out += [text[at:where], MASK]
            at = where - secret
        return b"".join([*out, text[at:open_at]]), text[open_at:]

    def _beginning(self, text: bytes) -> int:
        """Return the length of the longest end of `text` that a secret begins with."""
        longest = 0
        for secret in self._secrets:
            for length in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:length]):
                    longest = length
                    break
        return longest


def run_scrubbed(command: Sequence[str], environment: Mapping[str, str], secrets: Sequence[str]) -> int:
    """Run a program to its end, and pass on the output of it and its children without the secrets.

    Returns its exit code, or 128 plus the signal that ended it. If there are secrets, SIGTERM and SIGINT are passed on
    to it. A child that outlives it is not waited for, since the job is over; the output says so.
    """
    if not masking.secret_forms(secrets):
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
        return _as_ours(done.returncode)
    process = subprocess.Popen(  # noqa: S603
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )

    def hand_on(number: int, _frame: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    previous_handlers = {number: signal.signal(number, hand_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        scrubber, out = Scrubber(secrets), sys.stdout.buffer
        for piece in _pieces(process):
            out.write(scrubber.feed(piece))
            out.flush()
        out.write(scrubber.flush())
        out.flush()
        code = process.wait()
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
    return _as_ours(code)


def _pieces(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """Yield the output of the program and its children until it ends. A child that outlives it could keep the pipe
    open."""
    assert process.stdout is not None  # noqa: S101  asked for above
    with process.stdout as pipe:
        remaining: int | None = (
            None  # bytes that may be the program's own, once it is over: no more than the pipe holds
        )
        while remaining is None or remaining > 0:
            if remaining is None and process.poll() is not None:
                remaining = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
            if select.select([pipe], [], [], _LOOK_SECONDS if remaining is None else 0)[0]:
                piece = os.read(pipe.fileno(), _CHUNK if remaining is None else min(remaining, _CHUNK))
                if not piece:
                    return
                remaining = None if remaining is None else remaining - len(piece)
                yield piece
            elif remaining is not None:
                break
        yield _OUTLIVED


def _as_ours(code: int) -> int:
    """Return an exit code as a shell gives it: 128 plus the number of the signal."""
    return code if code >= 0 else 128 - code
