"""The lifecycle of resources: each step that the engine asks for, in calls that upstream understands."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everspot_local.bridge import state, wire
from everspot_local.bridge.ignored import ignore
from everspot_local.bridge.names import Mapping, Namer, upstream_type
from everspot_local.bridge.plan import Change, changes, proposed, pulumi_path, replacements
from everspot_local.bridge.sdk import Names, Sdk
from everspot_local.bridge.state import ResourceState
from everspot_local.bridge.table import ProviderTable
from everspot_local.bridge.upstream import BridgeError, Upstream, decode, diagnostics, raise_errors
from everspot_local.bridge.values import BadValue, from_upstream, to_upstream, unknown_properties, without_unknowns


class Unfinished(BridgeError):
    """An operation failed after the resource came to be; `state` is what upstream knows of it."""

    def __init__(self, message: str, state: ResourceState) -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True)
class Plan:
    """The plan of upstream: the planned state and the Pulumi paths that force a replacement."""

    prior: Any
    planned: Any
    private: bytes
    replaces: list[str]

    def changes(self, mapping: Mapping) -> list[Change]:
        """Return the differences between the prior and the planned state."""
        return list(changes(mapping.node, self.prior, self.planned))


class ProviderResources:
    """One upstream provider with the names of its types."""

    def __init__(self, upstream: Upstream, sdk: Sdk, table: ProviderTable) -> None:
        self.upstream = upstream
        self.sdk = sdk
        self.table = table
        self._namer = Namer(sdk, table)
        self._mappings: dict[str, Mapping] = {}

    def mapping(self, token: str) -> Mapping:
        """Return a resource type with its names, checked against the SDK.

        Raises:
            NameMismatch, SdkError: the type is not known on one of the sides, or the names do not fit.
        """
        if token not in self._mappings:
            name = upstream_type(self.table, token, self.upstream.schema.resource_schemas)
            node, version = self.upstream.resource(name)
            self._mappings[token] = self._name(token, name, copy.deepcopy(node), self.sdk.resource(token), version)
        return self._mappings[token]

    def function(self, token: str) -> Mapping:
        """Return a function (data source) with its names, checked against the SDK."""
        if token not in self._mappings:
            name = upstream_type(self.table, token, self.upstream.schema.data_source_schemas)
            node = copy.deepcopy(self.upstream.data_source(name))
            self._mappings[token] = self._name(token, name, node, self.sdk.function(token), 0)
        return self._mappings[token]

    def provider(self) -> Mapping:
        """Return the provider's own configuration with its names."""
        token = self.table.provider_token
        if token not in self._mappings:
            node = copy.deepcopy(self.upstream.provider())
            self._mappings[token] = self._name(token, "", node, Names(self.sdk.provider(), {}), 0)
        return self._mappings[token]

    def _name(self, token: str, upstream: str, node: Any, names: Names, version: int) -> Mapping:
        self._namer.assign(token, upstream, node, names)
        return Mapping(token, upstream, node, names, version)

    def configure(self, config: dict[str, Any]) -> None:
        """Configure the upstream provider.

        Raises:
            BridgeError: it refuses, in its own words.
        """
        mapping = self.provider()
        bad = list(unknown_properties(mapping.node, config))
        if bad:
            raise BridgeError("\n".join(f"{b.path}: {b}" for b in bad))
        value = self.upstream.value(to_upstream(mapping.node, config))
        prepared = self.upstream.call("PrepareProviderConfig", config=value)
        raise_errors(prepared.diagnostics)
        final = prepared.prepared_config if prepared.prepared_config.msgpack else value
        raise_errors(self.upstream.call("Configure", terraform_version="1.13.0", config=final).diagnostics)

    def problems(self, mapping: Mapping, inputs: dict[str, Any]) -> list[tuple[str, str]]:
        """Return everything that is wrong with a configuration: (Pulumi path, reason)."""
        bad = list(unknown_properties(mapping.node, inputs))
        try:
            config = to_upstream(mapping.node, inputs)
        except BadValue as error:
            bad.append(error)
        if bad:
            return [(b.path, str(b)) for b in bad]
        allowed = self.upstream.pb.ClientCapabilities(write_only_attributes_allowed=True)
        answer = self.upstream.call(
            "ValidateResourceTypeConfig",
            type_name=mapping.upstream,
            config=self.upstream.value(config),
            client_capabilities=allowed,
        )
        return [(pulumi_path(mapping.node, d.path), d.text) for d in diagnostics(answer.diagnostics) if d.error]

    def plan(self, mapping: Mapping, prior: ResourceState, config: dict[str, Any]) -> Plan:
        """Return upstream's plan from a resource's prior state to a configuration.

        Raises:
            BridgeError: it refuses.
        """
        value = self.upstream.value
        answer = self.upstream.call(
            "PlanResourceChange",
            type_name=mapping.upstream,
            prior_state=value(prior.value),
            proposed_new_state=value(proposed(mapping.node, config, prior.value)),
            config=value(config),
            prior_private=prior.private,
        )
        raise_errors(answer.diagnostics)
        planned = decode(answer.planned_state.msgpack)
        paths = [
            [getattr(step, step.WhichOneof("selector")) for step in path.steps] for path in answer.requires_replace
        ]
        forced = replacements(mapping.node, prior.value, planned, paths) if prior.value is not None else []
        return Plan(prior.value, planned, answer.planned_private, forced)

    def config(
        self, mapping: Mapping, inputs: dict[str, Any], prior: ResourceState, ignored: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the configuration of some inputs, with the prior values where changes are ignored."""
        config: dict[str, Any] = to_upstream(mapping.node, inputs)
        if prior.value is not None:
            ignore(mapping.node, config, prior.value, ignored)
        return config

    def apply(self, mapping: Mapping, plan: Plan, config: dict[str, Any]) -> ResourceState:
        """Carry out a plan.

        Raises:
            Unfinished: it failed half way; the resource exists.
            BridgeError: it failed, and there is nothing.
        """
        value = self.upstream.value
        answer = self.upstream.call(
            "ApplyResourceChange",
            type_name=mapping.upstream,
            prior_state=value(plan.prior),
            planned_state=value(plan.planned),
            config=value(config),
            planned_private=plan.private,
        )
        done = ResourceState(decode(answer.new_state.msgpack), answer.private)
        try:
            raise_errors(answer.diagnostics)
        except BridgeError as error:
            done.value = without_unknowns(done.value)  # nobody will ever know what a failed step did not come to
            if done.id:
                raise Unfinished(str(error), done) from error
            raise
        return done

    def read(self, mapping: Mapping, prior: ResourceState) -> ResourceState:
        """Return the resource as it is now; `value` is None when it is gone."""
        answer = self.upstream.call(
            "ReadResource",
            type_name=mapping.upstream,
            current_state=self.upstream.value(prior.value),
            private=prior.private,
        )
        raise_errors(answer.diagnostics)
        return ResourceState(decode(answer.new_state.msgpack), answer.private)

    def adopt(self, mapping: Mapping, resource_id: str) -> ResourceState:
        """Return upstream's state for an id alone (an import), not read yet."""
        answer = self.upstream.call("ImportResourceState", type_name=mapping.upstream, id=resource_id)
        raise_errors(answer.diagnostics)
        imported = next((r for r in answer.imported_resources if r.type_name == mapping.upstream), None)
        return ResourceState(decode(imported.state.msgpack), imported.private) if imported else ResourceState()

    def delete(self, mapping: Mapping, prior: ResourceState) -> None:
        """Delete a resource.

        Raises:
            BridgeError: upstream could not.
        """
        nothing = self.upstream.value(None)
        answer = self.upstream.call(
            "ApplyResourceChange",
            type_name=mapping.upstream,
            prior_state=self.upstream.value(prior.value),
            planned_state=nothing,
            config=nothing,
            planned_private=prior.private,
        )
        raise_errors(answer.diagnostics)

    def invoke(self, mapping: Mapping, args: dict[str, Any]) -> dict[str, Any]:
        """Read a data source.

        Raises:
            BridgeError: upstream refuses, or there is no such thing.
        """
        bad = list(unknown_properties(mapping.node, args))
        if bad:
            raise BridgeError("\n".join(f"{b.path}: {b}" for b in bad))
        config = self.upstream.value(to_upstream(mapping.node, args))
        name = mapping.upstream
        raise_errors(self.upstream.call("ValidateDataSourceConfig", type_name=name, config=config).diagnostics)
        answer = self.upstream.call("ReadDataSource", type_name=name, config=config)
        raise_errors(answer.diagnostics)
        value = decode(answer.state.msgpack)
        result: dict[str, Any] = from_upstream(mapping.node, value)
        if "id" in mapping.names.outputs:
            result["id"] = (value or {}).get("id") or result.get("region") or "-"
        return result


def loaded(resources: ProviderResources, mapping: Mapping, resource_id: str, outputs: dict[str, Any]) -> ResourceState:
    """Rebuild a state from outputs and keep the assets that were given as they were given."""
    loaded_state = state.load(resources.upstream, mapping, resource_id, outputs)
    loaded_state.assets = {k: v for k, v in outputs.items() if wire.is_asset(v)}
    return loaded_state
