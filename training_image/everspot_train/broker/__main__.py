"""Serves one connection: `python -I -m everspot_train.broker`, started by everspot-broker.socket with the connection as
its standard input.
"""

import logging
import os
import pwd
import select
import signal
import socket
import struct
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from everspot_train.agent.artifacts.open_files import find_mapped_files, find_open_files
from everspot_train.broker import mounts, protocol
from everspot_train.broker.mounts import Owner
from everspot_train.broker.protocol import BadRequest, Channel, ConnectionLost
from everspot_train.broker.unit import own_unit, processes
from everspot_train.broker.users import JobUser, clear_users, take_user

AGENT_USER = "everspot"
MESSAGE_TIMEOUT = timedelta(seconds=10)
"""The time for the rest of a message after its beginning has arrived."""

_LOOK_SECONDS = 0.02

_log = logging.getLogger("broker")


class Broker:
    """One connection, and the job that was started over it.

    Args:
        channel: the connection.
        agent: the user of the agent, the only one that may connect.
    """

    def __init__(self, channel: Channel, agent: Owner) -> None:
        self._channel = channel
        self._agent = agent
        self._user: JobUser | None = None
        self._group: Path | None = None
        self._main: int | None = None

    def serve(self) -> None:
        """Answer requests until the other side closes the connection or the job is killed. Then end the job and remove
        everything of it.

        Raises:
            OSError: if something of the job remains.
        """
        try:
            while self._serve_one():
                continue
        except ConnectionLost as error:
            _log.info("%s", error)
        finally:
            self._end()

    def _serve_one(self) -> bool:
        """Wait for the job's end or a request, and handle it. Return whether to continue."""
        connection = self._channel.fileno()
        ready, _, _ = select.select([connection, *([self._main] if self._main is not None else [])], [], [])
        if self._main in ready:
            self._report_end()
        if connection not in ready:
            return True
        message = self._channel.receive(MESSAGE_TIMEOUT)
        if message is None:
            raise BadRequest("the rest of a message has not come")
        request = protocol.parse_request(message)
        try:
            answer = self._answer(request)
        except OSError as error:
            _log.warning("%s: %s", message.get("kind"), error)
            answer = {"error": str(error)}
        self._channel.send(answer)
        return not isinstance(request, protocol.KillRequest)

    def _answer(self, request: protocol.Request) -> dict[str, Any]:
        match request:
            case protocol.StartRequest():
                return self._start(request)
            case protocol.SignalRequest(pids):
                return {"signalled": self._signal(pids)}
            case protocol.FilesRequest(root, mapped):
                members, folder = self._processes(), os.fsencode(root)
                files = (find_mapped_files(members, folder),) if mapped else find_open_files(members, folder)
                return {"files": [[os.fsdecode(path) for path in sorted(paths)] for paths in files]}
            case protocol.KillRequest():
                self._end()
                return {"killed": True}
            case protocol.ClearRequest():
                return {"cleared": clear_users()}

    def _start(self, request: protocol.StartRequest) -> dict[str, Any]:
        if self._user is not None:
            raise BadRequest("a connection has one job")
        folders: dict[str, int] = {}
        user = self._user = take_user(own_unit())
        try:
            for kind, (place, names) in request.folders().items():
                folders[kind] = mounts.open_folder(place, names, self._agent)
            user.unit.start(request, user.stage(folders, self._agent))
            state = user.unit.state()
        finally:
            for folder in folders.values():
                os.close(folder)
            user.unstage()
        self._group = state.group
        if state.main:
            with suppress(ProcessLookupError):  # it has just ended
                self._main = os.pidfd_open(state.main)
        _log.info("a job runs as %s", user.name)
        if self._main is None:
            self._report_end()
        return {"started": str(state.group) if state.group is not None else "", "user": user.name}

    def _report_end(self) -> None:
        assert self._user is not None  # noqa: S101  only a started job ends
        if self._main is not None:
            os.close(self._main)
            self._main = None
        end = time.monotonic() + MESSAGE_TIMEOUT.total_seconds()
        while (state := self._user.unit.state()).code is None and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)  # systemd has not reaped the process yet
        code = state.code if state.code is not None else -signal.SIGKILL
        self._channel.send({"ended": code, "oom": state.out_of_memory})

    def _processes(self) -> set[int]:
        return processes(self._group) if self._group is not None else set()

    def _signal(self, pids: tuple[int, ...]) -> list[int]:
        """Send SIGTERM to those of the processes that belong to the job, and return them. The pidfd ensures that an id
        was not reused."""
        signalled = []
        for pid in pids:
            try:
                process = os.pidfd_open(pid)
            except OSError:
                continue
            try:
                if pid in self._processes():
                    signal.pidfd_send_signal(process, signal.SIGTERM)
                    signalled.append(pid)
            except ProcessLookupError:
                continue
            finally:
                os.close(process)
        return signalled

    def _end(self) -> None:
        user, self._user = self._user, None
        if self._main is not None:
            os.close(self._main)
            self._main = None
        if user is not None:
            try:
                user.clear()
            finally:
                user.release()


def main() -> None:
    """Serve the connection on standard input. Exits with 1 after an invalid request."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    connection = socket.socket(fileno=os.dup(0))
    peer = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    entry = pwd.getpwnam(AGENT_USER)
    if peer[1] != entry.pw_uid:
        sys.exit(f"user {peer[1]} is not the agent")
    channel = Channel(connection, protocol.LONGEST_REQUEST)
    try:
        Broker(channel, Owner(entry.pw_uid, entry.pw_gid)).serve()
    except BadRequest as error:
        with suppress(OSError):
            channel.send({"error": str(error)})
        sys.exit(str(error))
    except OSError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
