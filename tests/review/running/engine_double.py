"""A program that answers as the engine does, from a folder (`ENGINE_DOUBLE`):

    VERB.STACK.jsonl  the event log that `preview`, `refresh` or `up` writes, VERB.STACK.code how it ends (0),
    VERB.STACK.told   what it prints on standard error, VERB.STACK.hangs   that it ignores being asked to stop,
    VERB.STACK.waits  that it ends as soon as the job's first identity token is another one,
    stacks.json, state.STACK.json   what `stack ls` and `stack export` answer,
    after.STACK.jsonl, after.STACK.code   what `preview` answers from the next `up` on,
    lock.STACK        what `up` and `refresh --yes` say instead, until `cancel` removes it,
    next_lock.STACK   the lock that somebody takes as soon as `cancel` has removed that one

Each call is noted in calls.jsonl, with the variables that it was given.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

KEPT = (
    "GITHUB_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "GITHUB_ENV",
    "GITHUB_PATH",
    "PULUMI_DEBUG_COMMANDS",
    "AWS_ROLE_ARN",
)


def main() -> int:
    here, words = Path(os.environ["ENGINE_DOUBLE"]), sys.argv[1:]
    options = dict(
        argument.lstrip("-").split("=", 1) for argument in words if argument.startswith("--") and "=" in argument
    )
    stack, verb = options.get("stack", ""), words[0]
    with (here / "calls.jsonl").open("a") as book:
        variables = {name: os.environ[name] for name in KEPT if name in os.environ}
        book.write(json.dumps({"words": words, "env": variables, "cwd": str(Path.cwd())}) + "\n")
    if verb == "stack":
        sys.stdout.write((here / ("stacks.json" if words[1] == "ls" else f"state.{stack}.json")).read_text())
        return 0
    lock = here / f"lock.{stack}"
    if verb == "cancel":
        lock.unlink()
        if (following := here / f"next_lock.{stack}").exists():
            following.rename(lock)
        return 0
    if lock.exists() and (verb == "up" or "--yes" in words):
        sys.stderr.write(lock.read_text().replace("PID", str(os.getpid())))
        return 1
    for kind in ("jsonl", "code"):
        if verb == "up" and (after := here / f"after.{stack}.{kind}").exists():
            after.rename(here / f"preview.{stack}.{kind}")
    if "--event-log" in words and (log := here / f"{verb}.{stack}.jsonl").exists():
        Path(words[words.index("--event-log") + 1]).write_text(log.read_text())
    if (here / f"{verb}.{stack}.hangs").exists():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        (here / "hanging").write_text(str(os.getpid()))
        time.sleep(600)
    if (here / f"{verb}.{stack}.waits").exists():
        token = Path(os.environ["EVERSPOT_ID_TOKENS"].partition("=")[0])
        first, ends = token.read_text(), time.monotonic() + 60
        while token.read_text() == first:
            if time.monotonic() > ends:
                return 255
            time.sleep(0.01)
    stderr, code = here / f"{verb}.{stack}.told", here / f"{verb}.{stack}.code"
    sys.stderr.write(stderr.read_text() if stderr.exists() else "")
    return int(code.read_text()) if code.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
