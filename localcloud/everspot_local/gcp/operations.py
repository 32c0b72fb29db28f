"""Stands in for Compute Engine's operations: what a call began and whether it is done; each takes market time.

Zonal, regional and global ones lie apart, as on Compute. They are kept until the project is emptied, where Google
forgets them after 14 days. It does not tell progress between 0 and 100.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from everspot_local.gcp.answers import ApiError, missing
from everspot_local.gcp.compute.names import moment, new_id
from everspot_local.gcp.project import PROJECT, Project

SYSTEM = "system"
"""User of operations that nobody asked for."""
WAIT_AT_MOST = 120.0
"""Seconds that `wait` waits. Compute API, `globalOperations.wait`: "no more than 2 minutes"."""
Document = dict[str, Any]


class OperationFailed(Exception):
    """The error of an operation: its code, its message and the HTTP status for it."""

    def __init__(self, code: str, message: str, *, status: int = 400, details: list[Document] | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.details = code, message, status, details or []


@dataclass(eq=False)
class Operation:
    """One operation.

    Attributes:
        scope: `projects/P/zones/Z`, `…/regions/R` or `…/global`.
        begun: market time of its start.
        more: fields that it shows at its end.
    """

    name: str
    scope: str
    document: Document
    begun: datetime
    more: Document = field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Return whether the operation has ended, successfully or not."""
        return bool(self.document["status"] == "DONE")


class Operations:
    """All operations of a project. Called with the market's lock held.

    `listeners`: told of each at its beginning and at its end.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self._all: dict[str, Operation] = {}
        self._by_request_id: dict[tuple[str, str], Operation] = {}
        self._changed = threading.Condition(project.market.lock)
        self.listeners: list[Callable[[Document], None]] = []
        project.resets.append(self._forget)

    def begin(
        self,
        kind: str,
        scope: str,
        target: str,
        target_id: str,
        user: str,
        *,
        work: Callable[[], None] | None = None,
        duration: timedelta | None = None,
    ) -> Operation:
        """Begin an operation; it is done after a while, or when `finish` is called if `duration` is below zero.

        Args:
            kind: as it tells its type: `insert`, `delete`, `compute.instances.preempted`.
            scope: where it lies.
            target: path of what it is done to.
            target_id: numeric id of that.
            user: who asked for it.
            work: done at its end; OperationFailed is what it then tells.
            duration: market time; by default the market's delay for operations.
        """
        now = self._project.market.clock.now()
        number = new_id()
        name = f"operation-{int(now.timestamp() * 1000)}-{number[:13]}-{number[11:]}"
        document = {
            "kind": "compute#operation",
            "id": number,
            "name": name,
            "operationType": kind,
            "targetLink": self._link(target),
            "targetId": target_id,
            "status": "RUNNING",
            "user": user,
            "progress": 0,
            "insertTime": moment(now),
            "startTime": moment(now),
            "selfLink": self._link(f"{scope}/operations/{name}"),
            **self._place(scope),
        }
        operation = Operation(name, scope, document, now)
        self._all[f"{scope}/operations/{name}"] = operation
        self._notify(operation)
        duration = self._project.market.delays.operation if duration is None else duration
        if duration >= timedelta():
            self._project.market.timeline.at(now + duration, lambda: self._end(operation, work))
        return operation

    def done(self, kind: str, scope: str, target: str, target_id: str, user: str, message: str = "") -> Operation:
        """Record something that has happened already, as system events have."""
        operation = self.begin(kind, scope, target, target_id, user, duration=timedelta(seconds=-1))
        if message:
            operation.document["statusMessage"] = message
        self.finish(operation)
        return operation

    def finish(
        self, operation: Operation, failed: list[OperationFailed] | None = None, at: datetime | None = None
    ) -> None:
        """End an operation, with its error if it failed. `at`: the time that it shows; now by default."""
        if operation.done:
            return
        ended = moment(self._project.market.clock.now() if at is None else at)
        operation.document.update(status="DONE", progress=100, endTime=ended, **operation.more)
        if failed:
            errors = [{"code": f.code, "message": f.message, "errorDetails": f.details} for f in failed]
            operation.document.update(
                error={"errors": errors},
                httpErrorStatusCode=failed[0].status,
                httpErrorMessage=_HTTP.get(failed[0].status, "BAD REQUEST"),
            )
        self._changed.notify_all()
        self._notify(operation)

    def get(self, path: str) -> Document:
        """Return an operation by its path. It may be found only some time after the answer that began it: Google's own
        Terraform provider retries a 404 here (`tpgresource/common_operation.go`, CommonRefreshFunc).

        Raises:
            ApiError: 404.
        """
        operation = self._all.get(path)
        market = self._project.market
        if operation is None or market.clock.now() < operation.begun + market.delays.found:
            raise missing(path)
        return dict(operation.document)

    def wait(self, path: str) -> Document:
        """Return an operation when it is done or deleted, at the latest after two minutes of real time; other requests
        are served meanwhile.

        Raises:
            ApiError: 404.
        """
        if path not in self._all:
            raise missing(path)
        operation = self._all[path]
        self._changed.wait_for(lambda: operation.done or path not in self._all, WAIT_AT_MOST)
        return dict(operation.document)

    def under(self, scope: str) -> list[Document]:
        """Return the operations of a scope, in the order of their beginning; those of all scopes under `projects/P`."""
        return [dict(o.document) for o in self._all.values() if f"{o.scope}/".startswith(f"{scope}/")]

    def delete(self, path: str) -> None:
        """Forget an operation.

        Raises:
            ApiError: 404.
        """
        if self._all.pop(path, None) is None:
            raise missing(path)

    def repeated(self, method: str, params: Mapping[str, Any]) -> Operation | None:
        """Return the operation that a call began if it was made before: by its `requestId` (Compute API: "the server
        can check if original operation with the same request ID was received, and if so, will ignore the second
        request").

        Raises:
            ApiError: for an id that is no UUID, or the one that is all zeros.
        """
        request_id = params.get("requestId", "")
        if request_id and not _is_uuid(request_id):
            raise ApiError(
                400, "invalid", f"Invalid value for field 'requestId': '{request_id}'. The value must be a valid UUID."
            )
        return self._by_request_id.get((method, request_id)) if request_id else None

    def remember(self, method: str, params: Mapping[str, Any], operation: Operation) -> None:
        """Have a call with the same `requestId` get this operation from `repeated`."""
        if request_id := params.get("requestId"):
            self._by_request_id[(method, request_id)] = operation

    def _end(self, operation: Operation, work: Callable[[], None] | None) -> None:
        try:
            if work is not None:
                work()
        except OperationFailed as failed:
            self.finish(operation, [failed])
            return
        except ApiError as error:
            code = _code(error.reason)
            self.finish(operation, [OperationFailed(code, error.message, status=error.status)])
            return
        self.finish(operation)

    def _notify(self, operation: Operation) -> None:
        for listener in self.listeners:
            listener(dict(operation.document))

    def _place(self, scope: str) -> Document:
        kind, _, name = scope.removeprefix(f"projects/{PROJECT}/").partition("/")
        return {kind.removesuffix("s"): self._link(scope)} if name else {}

    def _link(self, path: str) -> str:
        return f"{self._project.endpoint}/compute/v1/{path}"

    def _forget(self) -> None:
        self._all.clear()
        self._by_request_id.clear()
        self._changed.notify_all()


_HTTP = {400: "BAD REQUEST", 403: "FORBIDDEN", 404: "NOT FOUND", 409: "CONFLICT", 503: "SERVICE UNAVAILABLE"}


def _code(reason: str) -> str:
    """Return a refusal's reason in the form of operations: `resourceInUseByAnotherResource` in capitals."""
    return "".join(f"_{c}" if c.isupper() else c.upper() for c in reason)


def _is_uuid(text: str) -> bool:
    parts = text.split("-")
    plain = [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(c in "0123456789abcdefABCDEF-" for c in text)
    return plain and set(text) != {"0", "-"}
