"""Runs torchrun and reports which of its processes failed first, and how: `python -m everspot_train.launcher` takes
torchrun's arguments.

torchrun copies an exception of a process to its own TORCHELASTIC_ERROR_FILE, and ends with 1 and a page of text. It
does not report the end of a process that wrote no exception, such as one that was killed. This launcher always writes
the file, with the process's exit code (negative for a signal), and leaves that text out.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import parse_args, run

from everspot_train.lost_peer import is_lost_peer
from everspot_train.masking import masked, own_secrets
from everspot_train.worker import ERROR_FILE_VARIABLE

_SIGNALLED = 128


def main(arguments: list[str]) -> int:
    """Run torchrun. Returns the exit code of the process that failed first, or 128 plus the signal that killed it."""
    try:
        run(parse_args(arguments))
    except SignalException as error:
        return _SIGNALLED + int(error.sigval)
    except ChildFailedError as error:
        rank, failure = _first_failure(error.failures)
        _write_error(rank, failure)
        return failure.exitcode if failure.exitcode > 0 else _SIGNALLED - failure.exitcode
    return 0


def _first_failure(failures: Mapping[int, ProcessFailure]) -> tuple[int, ProcessFailure]:
    """Return the failure that caused the others, with its rank. The others lose their peer, often within the same
    second, or are ended by torchrun."""

    def order(item: tuple[int, ProcessFailure]) -> tuple[bool, int]:
        failure = item[1]
        follows = failure.exitcode == -signal.SIGTERM or is_lost_peer(str(_document(failure).get("message", "")))
        return follows, failure.timestamp

    return min(failures.items(), key=order)


def _document(failure: ProcessFailure) -> dict[str, Any]:
    message: Any = failure.message  # a text by its annotation; of a process that wrote its exception, a document
    return message if isinstance(message, dict) else {"message": ""}


def _write_error(rank: int, failure: ProcessFailure) -> None:
    document = _document(failure)
    extra = {"timestamp": str(int(time.time())), **document.get("extraInfo", {})}
    path = os.environ.get(ERROR_FILE_VARIABLE)
    if path:
        whole = {**document, "errorCode": failure.exitcode, "extraInfo": {**extra, "rank": rank}}
        Path(path).write_text(json.dumps({"message": masked(whole, own_secrets())}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
