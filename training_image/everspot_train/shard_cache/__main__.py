"""Downloads files of streamed datasets for its parent process: `python -m everspot_train.shard_cache DIR BYTES [URL]`.

URL is the control bucket of a cluster; without it the agent's run directory names the bucket.
A request is a line of JSON on standard input, and its answer one on standard output. It ends with its input.
"""

import json
import sys
from pathlib import Path
from typing import Any

from everspot_store import Store, StoreUnavailable, SystemClock

from everspot_train.rundir import RunContext, RunDir
from everspot_train.shard_cache.cache import ShardCache

_WITH_URL = 3


def main(arguments: list[str]) -> None:
    """Answer requests until there are no more."""
    clock = SystemClock.from_environment()
    if len(arguments) == _WITH_URL:
        store = Store.open(arguments[2], clock=clock)
    else:
        rundir = RunDir.from_environment()
        context = rundir.read(RunContext) if rundir is not None else None
        if context is None:
            sys.exit("everspot: no run directory and no bucket: a streamed dataset needs one of them")
        store = Store.open(context.control_url, context.data_url, clock=clock)
    cache = ShardCache(Path(arguments[0]), int(arguments[1]), store.datasets.download, store.clock)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict[str, Any] = {"fetched": cache.fetch(request["digest"], request["length"])}
        except Exception as error:  # the process that asks for it raises it
            words = f"{type(error).__name__}: {error}"
            answer = {"error": words, "unavailable": isinstance(error, StoreUnavailable)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
