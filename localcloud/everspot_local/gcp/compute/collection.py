"""Stands in for what all collections of Compute have in common: get, list, aggregated list, insert, patch and delete.

A list is told in pages, filtered by the simple expressions that `filters` reads. It sorts by
name, or by the time of creation.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from everspot_local.gcp.answers import ApiError, invalid
from everspot_local.gcp.compute.filters import matcher
from everspot_local.gcp.compute.names import check_name
from everspot_local.gcp.compute.state import Compute
from everspot_local.gcp.router import Handler, Request

Document = dict[str, Any]
PAGE = 500
_OWN = ("kind", "id", "name", "creationTimestamp", "selfLink", "region", "zone")


@dataclass(frozen=True)
class Collection:
    """One kind of resources.

    Attributes:
        plural: name in paths, such as `instanceTemplates`.
        resource: name in methods, such as `regionInstanceTemplates`.
        param: path parameter that names one resource.
        kind: of its documents.
        complete: checks the body of a new or changed resource, and returns it with the fields that the API adds.
        delete_later: whether only the operation, not the call, checks for uses by other resources.
        show: returns the shown document of a resource, by its path and document.
    """

    plural: str
    resource: str
    param: str
    kind: str
    complete: Callable[[Compute, str, Document], Document]
    delete_later: bool = False
    show: Callable[[Compute, str, Document], Document] = lambda _compute, _path, document: document
    verbs: tuple[str, ...] = ("get", "list", "insert", "delete")

    def routes(self, compute: Compute) -> dict[str, Handler]:
        """Return handlers for its verbs, by method id."""
        handlers = {
            "get": self.get,
            "list": self.list,
            "aggregatedList": self.aggregated,
            "insert": self.insert,
            "patch": self.patch,
            "delete": self.delete,
        }
        return {f"compute.{self.resource}.{verb}": _with(handlers[verb], compute) for verb in self.verbs}

    def path(self, compute: Compute, request: Request) -> str:
        """Return the path of the resource that a call names."""
        return f"{compute.scope(request.params)}/{self.plural}/{request.params[self.param]}"

    def get(self, compute: Compute, request: Request) -> Document:
        """Return one resource."""
        path = self.path(compute, request)
        return self.show(compute, path, compute.get(path))

    def list(self, compute: Compute, request: Request) -> Document:
        """Return the resources of one scope."""
        folder = f"{compute.scope(request.params)}/{self.plural}"
        answer = {"kind": f"compute#{self.kind}List", "id": folder, "selfLink": compute.link(folder)}
        items = [self.show(compute, f"{folder}/{document['name']}", document) for document in compute.under(folder)]
        return {**answer, **paged(items, request.params)}

    def aggregated(self, compute: Compute, request: Request) -> Document:
        """Return the resources of all scopes, by scope; a scope without any has a warning (unless it is left out), as
        on Compute."""
        compute.check_project(request.params)
        entries = [(path, self.show(compute, path, document)) for path, document in compute.of_kind(self.plural)]
        return aggregated(self.plural, self.kind, entries, request.params, compute)

    def insert(self, compute: Compute, request: Request) -> Document:
        """Create a resource; it exists immediately, and its operation is done after a while."""
        if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
            return repeated.document
        scope = compute.scope(request.params)
        path = f"{scope}/{self.plural}/{check_name(request.body.get('name'))}"
        body = self.complete(compute, scope, dict(request.body))
        compute.add(path, self.kind, body)
        return compute.begun(request, "insert", path).document

    def patch(self, compute: Compute, request: Request) -> Document:
        """Change some fields of a resource; null or an empty value removes a field."""
        before = compute.get(self.path(compute, request))
        return self._change(compute, request, "patch", merged(before, request.body))

    def replace(self, compute: Compute, request: Request) -> Document:
        """Replace all fields of a resource except the fields that the API itself adds."""
        before = compute.get(self.path(compute, request))
        own_fields = {key: before[key] for key in _OWN if key in before}
        return self._change(compute, request, "update", {**request.body, **own_fields})

    def _change(self, compute: Compute, request: Request, kind: str, changed: Document) -> Document:
        if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
            return repeated.document
        path = self.path(compute, request)
        before = compute.get(path)
        if changed.get("name", before["name"]) != before["name"]:
            raise invalid("resource.name", changed["name"], "Resource name cannot be changed.")
        after = self.complete(compute, compute.scope(request.params), changed)
        before.clear()
        before.update(after)
        return compute.begun(request, kind, path).document

    def delete(self, compute: Compute, request: Request) -> Document:
        """Delete a resource; it is gone when the operation is done."""
        if (repeated := compute.operations.repeated(request.method, request.params)) is not None:
            return repeated.document
        path = self.path(compute, request)
        compute.get(path)

        def work() -> None:
            compute.check_unused(path)
            compute.resources.pop(path, None)

        if not self.delete_later:
            compute.check_unused(path)
        return compute.begun(request, "delete", path, work=work).document


def _with(verb: Callable[[Compute, Request], Document], compute: Compute) -> Handler:
    return lambda request: verb(compute, request)


def merged(before: Mapping[str, Any], change: Mapping[str, Any]) -> Document:
    """Return a resource with a patch applied: null removes a value and messages are merged (JSON merge patch, RFC
    7396). An empty value removes, too: the API shows no empty ones."""
    after = dict(before)
    for key, value in change.items():
        if value is None or value in ("", [], {}):
            after.pop(key, None)
        elif isinstance(value, dict) and isinstance(after.get(key), dict):
            after[key] = merged(after[key], value)
        else:
            after[key] = value
    return after


def paged(documents: list[Document], params: Mapping[str, Any]) -> Document:
    """Return one page of the resources that a filter selects, in the order of names, or the newest first where
    `orderBy` asks for it.

    Raises:
        ApiError: for a filter, size, order or page token that cannot be read.
    """
    fits = matcher(params.get("filter", ""))
    order = params.get("orderBy", "name")
    if order not in ("name", "creationTimestamp desc"):
        raise invalid("orderBy", order, "Only name and creationTimestamp desc are supported.")
    if order == "name":
        selected = sorted((d for d in documents if fits(d)), key=lambda d: str(d["name"]))
    else:
        selected = sorted((d for d in documents if fits(d)), key=_created, reverse=True)
    first, size = _first(params.get("pageToken", "")), page_size(params)
    page: Document = {"items": selected[first : first + size]}
    if first + size < len(selected):
        page["nextPageToken"] = base64.urlsafe_b64encode(f"at:{first + size}".encode()).decode()
    return page


def _created(document: Document) -> str:
    """Return when a resource was created; operations call it `insertTime`."""
    return str(document.get("creationTimestamp") or document.get("insertTime"))


def aggregated(
    plural: str, kind: str, entries: list[tuple[str, Document]], params: Mapping[str, Any], compute: Compute
) -> Document:
    """Return documents with their paths, in pages over all scopes, by scope."""
    scopes: dict[str, Any] = {}
    page = paged([{**document, "_scope": _scope_in(path)} for path, document in entries], params)
    for document in page.pop("items"):
        scope = document.pop("_scope")
        scopes.setdefault(scope, {plural: []})[plural].append(document)
    folder = f"projects/{params['project']}/aggregated/{plural}"
    answer = {"kind": f"compute#{kind}AggregatedList", "id": folder, "selfLink": compute.link(folder)}
    return {**answer, "items": scopes, **page}


def page_size(params: Mapping[str, Any]) -> int:
    """Return the most entries of a page. Compute API: "acceptable values are 0 to 500, inclusive (default 500)"."""
    size = int(params.get("maxResults", PAGE))
    if not 0 <= size <= PAGE:
        raise invalid("maxResults", size, f"Must be between 0 and {PAGE}.")
    return size or PAGE


def _first(token: str) -> int:
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("at:")) if token else 0
    except ValueError:
        raise ApiError(400, "invalid", f"Invalid value for field 'pageToken': '{token}'.") from None


def _scope_in(path: str) -> str:
    """Return `zones/Z`, `regions/R` or `global` of a path."""
    parts = path.split("/")
    return "global" if parts[2] == "global" else "/".join(parts[2:4])
