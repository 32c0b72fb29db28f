"""The bridge's facts about one provider: the names that no rule gives, and the provider's few oddities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Naming:
    """How the name of a type is made: its property, its greatest length, and what must stand around it."""

    property: str = "name"
    longest: int = 255
    prefix: str = ""
    lower: bool = False


@dataclass(frozen=True)
class ProviderTable:
    """One provider.

    Attributes:
        package: first word of its tokens.
        prefix: first word of its upstream types.
        sdk: its SDK's Python package.
        binary: the upstream provider's program.
        plugin: the plugin name that the engine looks for.
    """

    package: str
    prefix: str
    sdk: str
    binary: str
    plugin: str
    # Types that the naming rule does not give: Pulumi token → upstream type.
    types: Mapping[str, str] = field(default_factory=dict)
    # Folders of the SDK whose word in upstream's types is another one.
    folders: Mapping[str, str] = field(default_factory=dict)
    # Fields that it does not give: (upstream type, dotted upstream path) → Pulumi name.
    fields: Mapping[tuple[str, str], str] = field(default_factory=dict)
    # Attributes that have another name in every type: upstream's → Pulumi's.
    everywhere: Mapping[str, str] = field(default_factory=dict)
    # What the SDK has and the upstream build, some months older, does not have yet: (upstream type, path) → names.
    # Using one of them is refused by name; anything else that upstream lacks is a mismatch.
    sdk_ahead: Mapping[tuple[str, str], set[str]] = field(default_factory=dict)
    # Folders of the SDK whose types carry no service name upstream.
    bare_folders: frozenset[str] = frozenset()
    # A pattern at the end of a token's name, in snake_case, that upstream's name does not have.
    version_suffix: str = ""
    # Parts of the provider's configuration that may have properties without an upstream attribute.
    open_config: frozenset[str] = frozenset()
    # What the official plugin presets in the provider's configuration, and the upstream provider does not.
    presets: Mapping[str, object] = field(default_factory=dict)
    # Settings of the provider that are the official plugin's own, which upstream has no attribute for.
    own_settings: frozenset[str] = frozenset()
    # Settings of the provider whose change replaces what it manages.
    replacing: frozenset[str] = frozenset()
    # Automatic names: types whose rule is not the usual one, and types whose `name` is not their own.
    naming: Mapping[str, Naming] = field(default_factory=dict)
    unnamed: frozenset[str] = frozenset()
    # Inputs that, when true, put an ending behind an automatic name.
    endings: Mapping[str, str] = field(default_factory=dict)
    # Environment variable of an endpoint that is made the proxy for plain HTTP when it is an IP address.
    proxied: str = ""

    @property
    def provider_token(self) -> str:
        """The Pulumi type of the provider itself."""
        return f"pulumi:providers:{self.package}"
