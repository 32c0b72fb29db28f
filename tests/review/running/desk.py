"""A change under review: a project in a git repository, and an engine with scripted answers."""

import contextlib
import io
import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from everspot_cli.main import main

HERE = Path(__file__).parent
PROJECT = "name: everspot\nruntime: python\nmain: stacks/\nstackConfigDir: stacks\n"


@dataclass
class Desk:
    """Where a change is judged. `root`: the project's git repository; `engine`: the folder that its double answers
    from."""

    root: Path
    engine: Path
    env: dict[str, str]

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def git(self, *words: str) -> str:
        argv = [
            "git",
            "-c",
            "user.name=dev",
            "-c",
            "user.email=dev@forge.test",
            "-c",
            "commit.gpgsign=false",
            *words,
        ]
        return subprocess.run(argv, cwd=self.root, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, message: str = "change") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def answers(self, verb: str, stack: str, steps: list[dict[str, Any]], code: int = 0, stderr: str = "") -> None:
        """Have the engine's double write a log of these steps."""
        events: list[dict[str, Any]] = [*steps, {"summaryEvent": {"result": "succeeded" if not code else "failed"}}]
        (self.engine / f"{verb}.{stack}.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        (self.engine / f"{verb}.{stack}.code").write_text(str(code))
        (self.engine / f"{verb}.{stack}.told").write_text(stderr)

    def calls(self) -> list[dict[str, Any]]:
        book = self.engine / "calls.jsonl"
        return [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []

    def verbs(self) -> list[str]:
        """Return the engine's commands that change its state."""
        return [call["words"][0] for call in self.calls() if call["words"][0] != "stack"]

    def run(self, *words: str, before: Sequence[str] = (), **env: str) -> "subprocess.CompletedProcess[str]":
        """`everspot [BEFORE] review …` in this process, by the function that the command itself calls."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code, environment = 0, mock.patch.dict(os.environ, {**self.env, **env}, clear=True)
        with environment, contextlib.chdir(self.root), redirect_stdout(out), redirect_stderr(err):
            try:
                main([*before, "review", *words])
            except SystemExit as ended:
                code = int(ended.code or 0)
        streams = (stream.buffer.getvalue().decode() for stream in (out, err))
        return subprocess.CompletedProcess(["everspot", *before, "review", *words], code, *streams)


def step(op: str, name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    """An event of the engine about one queue."""
    kind = "aws:sqs/queue:Queue"
    urn = f"urn:pulumi:dev::everspot::{kind}::{name}"
    sides = {
        side: None if inputs is None else {"urn": urn, "type": kind, "custom": True, "id": name, "inputs": inputs}
        for side, inputs in (("old", old), ("new", new))
    }
    diff = {
        key: {"diffKind": "update"}
        for key in {**(old or {}), **(new or {})}
        if (old or {}).get(key) != (new or {}).get(key)
    }
    return {"resourcePreEvent": {"metadata": {"op": op, "urn": urn, "type": kind, "detailedDiff": diff, **sides}}}


UPDATE = step("update", "queue", {"delaySeconds": 1}, {"delaySeconds": 2})
OTHER = step("update", "queue", {"delaySeconds": 1}, {"delaySeconds": 3})
SAME = step("same", "queue", {"delaySeconds": 1}, {"delaySeconds": 1})


def rule(level: str = "mandatory") -> dict[str, Any]:
    """An event about a broken rule."""
    urn = "urn:pulumi:dev::everspot::aws:sqs/queue:Queue::queue"
    words = {"policyName": "queue-encrypted", "policyPackName": "everspot", "enforcementLevel": level}
    return {"policyEvent": {**words, "resourceUrn": urn, "message": "Queues are encrypted.\nnothing encrypts it"}}
