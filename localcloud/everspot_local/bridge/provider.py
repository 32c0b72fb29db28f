"""Pulumi's side of the bridge: the provider protocol, answered by what `resources` asks upstream."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from everspot_local.bridge import autoname, state, wire
from everspot_local.bridge.names import Mapping, NameMismatch
from everspot_local.bridge.package import package_schema
from everspot_local.bridge.plan import Change
from everspot_local.bridge.resources import Plan, ProviderResources, Unfinished, loaded
from everspot_local.bridge.sdk import SdkError
from everspot_local.bridge.state import ResourceState, config_with_timeout
from everspot_local.bridge.upstream import BridgeError
from everspot_local.bridge.values import BadValue

log = logging.getLogger(__name__)

NOT_CONFIG = frozenset({"version", "pluginDownloadURL"})
READABLE = (BridgeError, NameMismatch, SdkError, BadValue)
F = TypeVar("F", bound=Callable[..., Any])


class _Status:
    """The form in which gRPC takes a status with details."""

    def __init__(self, message: str, detail: any_pb2.Any) -> None:
        self.code, self.details = grpc.StatusCode.UNKNOWN, message
        rich = status_pb2.Status(code=self.code.value[0], message=message, details=[detail])
        self.trailing_metadata = (("grpc-status-details-bin", rich.SerializeToString()),)


def answered(method: F) -> F:
    """Turn exceptions into messages that the engine shows; unexpected ones are also written to the log in full."""

    @functools.wraps(method)
    def guarded(self: Provider, request: Any, context: grpc.ServicerContext) -> Any:
        name = method.__name__
        log.debug("%s %s", name, getattr(request, "urn", "") or getattr(request, "tok", ""))
        try:
            return method(self, request, context)
        except Unfinished as error:
            mapping = self.resources.mapping(_token(request.urn))
            detail = any_pb2.Any()
            inputs = request.properties if name == "Create" else request.news
            detail.Pack(
                provider_pb2.ErrorResourceInitFailed(
                    id=error.state.id,
                    properties=wire.dump(error.state.outputs(mapping)),
                    reasons=[str(error)],
                    inputs=inputs,
                )
            )
            context.abort_with_status(_Status(str(error), detail))
        except READABLE as error:
            log.info("%s refused: %s", name, error)
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except Exception as error:
            log.exception("%s failed", name)
            context.abort(grpc.StatusCode.INTERNAL, f"bridge: {name} failed: {type(error).__name__}: {error}")

    return guarded  # type: ignore[return-value]


def _token(urn: str) -> str:
    return urn.split("::")[2].rsplit("$", 1)[-1]


class Provider(provider_pb2_grpc.ResourceProviderServicer):
    """The provider protocol. Thread-safe: the engine calls in parallel, and upstream takes parallel calls."""

    def __init__(self, resources: ProviderResources) -> None:
        self.resources = resources
        self._not_config = NOT_CONFIG | resources.table.own_settings

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Refuse: all that this plugin supports is answered in `Configure`."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "not served")

    @answered
    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Return the version of the SDK that this plugin implements."""
        return plugin_pb2.PluginInfo(version=self.resources.sdk.version)

    @answered
    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Return names and types of the resources, from which `pulumi import` writes code."""
        return provider_pb2.GetSchemaResponse(schema=package_schema(self.resources))

    @answered
    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Accept a provider configuration unchanged; upstream validates it in `Configure`."""
        return provider_pb2.CheckResponse(inputs=request.news)

    @answered
    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Compare two provider configurations. Few changes need a replacement of what the provider manages."""
        old, new = wire.load(request.old_inputs) or wire.load(request.olds), wire.load(request.news)
        keys = sorted(k for k in {*old, *new} - self._not_config if old.get(k) != new.get(k))
        kind = provider_pb2.DiffResponse.DIFF_SOME if keys else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=kind, diffs=keys, replaces=[k for k in keys if k in self.resources.table.replacing]
        )

    @answered
    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Configure upstream; nested values arrive as JSON texts."""
        arguments = wire.load(request.args)
        scalars = {f.pulumi for f in self.resources.provider().node.fields.values() if f.node.scalar}
        config = {
            k: v if k in scalars or not isinstance(v, str) or wire.is_unknown(v) else json.loads(v)
            for k, v in arguments.items()
            if k not in self._not_config and not k.startswith("__") and v not in ("", None)
        }
        self.resources.configure({**self.resources.table.presets, **config})
        return provider_pb2.ConfigureResponse(supportsPreview=True, supports_autonaming_configuration=True)

    @answered
    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Name the resource if it has no name, and let upstream validate the inputs."""
        mapping = self.resources.mapping(_token(request.urn))
        proposal, mode = "", autoname.PROPOSE
        if request.HasField("autonaming"):
            proposal, mode = request.autonaming.proposed_name, request.autonaming.mode
        name = request.urn.split("::")[-1]
        olds, news = wire.load(request.olds), wire.load(request.news)
        news = {k: v for k, v in news.items() if v is not None}
        inputs = autoname.name_it(self.resources.table, mapping, news, olds, name, request.randomSeed, proposal, mode)
        failures = [
            provider_pb2.CheckFailure(property=path, reason=reason)
            for path, reason in self.resources.problems(mapping, inputs)
        ]
        return provider_pb2.CheckResponse(inputs=wire.dump(inputs), failures=failures)

    @answered
    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Return the changes in upstream's plan, and which of them force a replacement."""
        mapping = self.resources.mapping(_token(request.urn))
        news = wire.load(request.news)
        olds = wire.load(request.olds)
        prior = loaded(self.resources, mapping, request.id, olds)
        plan = self.resources.plan(
            mapping, prior, self.resources.config(mapping, news, prior, list(request.ignoreChanges))
        )
        changes = plan.changes(mapping)
        if not changes and not plan.replaces:
            return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)
        log.debug("diff %s: %s, replaces %s", request.urn, [c.path for c in changes], plan.replaces)
        # What upstream computes by itself is not worth a line where there is a change that somebody made.
        shown = [c for c in changes if c.field.settable and (c.field.pulumi in news or not c.field.computed)] or changes
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME,
            diffs=sorted({_top(c.path) for c in shown}),
            replaces=sorted({_top(p) for p in plan.replaces}),
            detailedDiff=_detailed(shown, plan),
            hasDetailedDiff=True,
            deleteBeforeReplace=bool(plan.replaces) and autoname.in_the_way(self.resources.table, mapping, olds, news),
        )

    @answered
    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Create a resource, or in a preview return what it would be."""
        mapping = self.resources.mapping(_token(request.urn))
        inputs, nothing = wire.load(request.properties), ResourceState()
        config = self.resources.config(mapping, inputs, nothing)
        config = config_with_timeout(config, mapping, "create", request.timeout)
        plan = self.resources.plan(mapping, nothing, config)
        if request.preview:
            outputs = _with_assets(ResourceState(plan.planned), inputs).outputs(mapping)
            return provider_pb2.CreateResponse(id="", properties=wire.dump(outputs))
        created = _with_assets(self.resources.apply(mapping, plan, config), inputs)
        return provider_pb2.CreateResponse(id=created.id, properties=wire.dump(created.outputs(mapping)))

    @answered
    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Update a resource in place, or in a preview return what it would be."""
        mapping = self.resources.mapping(_token(request.urn))
        news = wire.load(request.news)
        prior = loaded(self.resources, mapping, request.id, wire.load(request.olds))
        config = self.resources.config(mapping, news, prior, list(request.ignoreChanges))
        config = config_with_timeout(config, mapping, "update", request.timeout)
        plan = self.resources.plan(mapping, prior, config)
        done = (
            ResourceState(plan.planned, plan.private)
            if request.preview
            else self.resources.apply(mapping, plan, config)
        )
        return provider_pb2.UpdateResponse(properties=wire.dump(_with_assets(done, news).outputs(mapping)))

    @answered
    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Read a resource for a refresh, or by its id alone for an import."""
        mapping = self.resources.mapping(_token(request.urn))
        outputs, inputs = wire.load(request.properties), wire.load(request.inputs)
        prior = (
            loaded(self.resources, mapping, request.id, outputs)
            if state.META in outputs
            else self.resources.adopt(mapping, request.id)
        )
        now = self.resources.read(mapping, prior) if prior.value is not None else prior
        if now.value is None:
            return provider_pb2.ReadResponse(id="")
        fresh = _with_assets(now, inputs).outputs(mapping)
        described = state.refreshed_inputs(mapping, inputs, fresh)
        return provider_pb2.ReadResponse(
            id=now.id or request.id, properties=wire.dump(fresh), inputs=wire.dump(described)
        )

    @answered
    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Delete a resource."""
        mapping = self.resources.mapping(_token(request.urn))
        prior = loaded(self.resources, mapping, request.id, wire.load(request.properties))
        self.resources.delete(mapping, state.with_timeout(prior, mapping, "delete", request.timeout))
        return empty_pb2.Empty()

    @answered
    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Read a data source."""
        args = {k: v for k, v in wire.load(request.args).items() if v is not None}
        result = self.resources.invoke(self.resources.function(request.tok), args)
        return provider_pb2.InvokeResponse(**{"return": wire.dump(result)})

    @answered
    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Ask upstream to stop waiting for its operations."""
        self.resources.upstream.cancel()
        return empty_pb2.Empty()

    @answered
    def Attach(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Take note of an engine that attaches; nothing is needed."""
        return empty_pb2.Empty()


def _with_assets(resource_state: ResourceState, inputs: dict[str, Any]) -> ResourceState:
    resource_state.assets = {k: v for k, v in inputs.items() if wire.is_asset(v)}
    return resource_state


def _top(path: str) -> str:
    return path.replace("[", ".").split(".")[0]


def _detailed(changes: list[Change], plan: Plan) -> dict[str, Any]:
    """Return the engine's detailed diff; a change is a replacement if a path that forces one covers it."""
    out: dict[str, Any] = {}
    kinds = provider_pb2.PropertyDiff.Kind
    for change in changes:
        forced = any(_covers(p, change.path) or _covers(change.path, p) for p in plan.replaces)
        name = change.kind.upper() + ("_REPLACE" if forced else "")
        out[change.path] = provider_pb2.PropertyDiff(kind=kinds.Value(name))
    for path in plan.replaces:
        if not any(_covers(path, p) or _covers(p, path) for p in out):
            out[path] = provider_pb2.PropertyDiff(kind=kinds.Value("UPDATE_REPLACE"))
    return out


def _covers(short: str, long: str) -> bool:
    return long == short or long.startswith((f"{short}.", f"{short}["))


__all__ = ["Mapping", "Provider"]
