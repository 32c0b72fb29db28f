"""The writer's program: `python -m everspot_train.writer`, started by the trainer of the first rank.

It ends when the trainer closes its stdin, or dies. It ignores SIGTERM, because the trainer decides what is still
published.
"""

import logging
import os
import signal
import sys
import threading
import time

from everspot_store import Store, SystemClock

from everspot_train.agent_requests import Requests
from everspot_train.rundir import RunDir, read_context
from everspot_train.writer.protocol import (
    ALIVE_EVERY,
    REQUEST,
    AliveAnswer,
    AnyAnswer,
    EndRequest,
    FailedAnswer,
    MakeWayRequest,
    PublishRequest,
    RestoreRequest,
    SkipRequest,
)
from everspot_train.writer.service import Reply, WriterService

_PARENT_POLL_SECONDS = 0.5


def main() -> None:
    """Carry out the trainer's requests until the trainer ends."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s:%(name)s:%(message)s", stream=sys.stderr)
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    # Output of libraries must not mix with the answers.
    answers, sys.stdout = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1), sys.stderr
    lock = threading.Lock()

    def reply(answer: AnyAnswer) -> None:
        with lock:
            answers.write(answer.model_dump_json() + "\n")
            answers.flush()

    threading.Thread(target=_show_life, args=(reply,), daemon=True).start()
    try:
        publisher = _open(reply)
    except Exception as error:  # the trainer waits for an answer, so any error is one
        reply(FailedAnswer.from_error(error))
        return
    for line in sys.stdin:
        request = REQUEST.validate_json(line)
        match request:
            case RestoreRequest():
                publisher.restore(request)
            case PublishRequest():
                publisher.publish(request)
            case MakeWayRequest():
                publisher.make_way(request)
            case SkipRequest():
                publisher.skip(request.broken)
            case EndRequest():
                break
    publisher.close()


def _open(reply: Reply) -> WriterService:
    rundir = RunDir.from_environment()
    if rundir is None:
        raise SystemExit("the checkpoint writer is started by a trainer")
    context, clock = read_context(rundir), SystemClock.from_environment()
    requests = Requests(rundir, clock)
    store = Store.open(context.control_url, context.data_url, clock=clock)
    checkpoints = store.checkpoints(
        context.job_id, context.epoch, guard=requests.may_write, incarnation=context.incarnation
    )
    return WriterService(checkpoints, clock, reply, requests.suspended)


def _show_life(reply: Reply) -> None:
    """Send heartbeats to the trainer, which replaces a writer without heartbeats."""
    while True:
        reply(AliveAnswer())
        time.sleep(ALIVE_EVERY.total_seconds())


def _end_with_parent(parent: int) -> None:
    """End with the trainer, even if one of its forks keeps the pipe open."""
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
