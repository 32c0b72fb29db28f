"""Adding a second provider needs only a table of names: tested with a pretend SDK and upstream provider."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from everspot_local.bridge import providers, wire
from everspot_local.bridge.provider import Provider
from everspot_local.bridge.resources import ProviderResources
from everspot_local.bridge.schema import Field, Node
from everspot_local.bridge.sdk import Sdk
from everspot_local.bridge.table import Naming, ProviderTable
from pulumi.runtime.proto import provider_pb2 as pb

BRIDGE = Path(providers.__file__).parents[1]
MACHINE, ZONE, KEY = "acme:compute/machineV3:MachineV3", "acme:net/zone:Zone", "acme:net/sshKey:SshKey"
TABLE = ProviderTable(
    package="acme",
    prefix="apex",
    sdk="pulumi_acme",
    binary="terraform-provider-apex",
    plugin="pulumi-resource-acme",
    types={ZONE: "apex_dns_area"},
    folders={"net": "wide_net"},
    everywhere={"apex_labels": "acmeLabels"},
    own_settings=frozenset({"banner"}),
    fields={("apex_compute_machine", "owner"): "ownedBy"},
    sdk_ahead={("apex_compute_machine", ""): {"colour"}},
    version_suffix="_?v3",
    presets={"quiet": True},
    replacing=frozenset({"project"}),
    naming={"apex_compute_machine": Naming(longest=20, lower=True)},
    unnamed=frozenset({"apex_dns_area"}),
    endings={"spare": ".spare"},
)
GETTER = """
    @_builtins.property
    @pulumi.getter{alias}
    def {name}(self) -> {type}:
        return pulumi.get(self, "{name}")
"""
INDEX = """
 {"fqn": "pulumi_acme.compute",
  "classes": {
   "acme:compute/machineV3:MachineV3": "MachineV3"
 }}
 {"fqn": "pulumi_acme.net",
  "classes": {
   "acme:net/zone:Zone": "Zone"
 }}
 {"fqn": "pulumi_acme.net",
  "classes": {
   "acme:net/sshKey:SshKey": "SshKey"
 }}
"""


def written(cls, base, **properties):
    """A class as the SDK's generator writes it."""
    names = {n: re.sub("([A-Z])", r"_\1", n).lower() for n in properties}
    getters = (
        GETTER.format(name=names[n], alias=f'(name="{n}")' if names[n] != n else "", type=t)
        for n, t in properties.items()
    )
    return f"class {cls}{base}:\n" + "".join(getters)


@pytest.fixture
def sdk(tmp_path, monkeypatch):
    """The pretend provider's SDK, installed."""
    text, flag = "pulumi.Input[_builtins.str]", "pulumi.Input[Optional[_builtins.bool]]"
    machine = {"name": text, "ownedBy": text, "colour": text, "spare": flag}
    files = {
        "__init__.py": INDEX,
        "provider.py": written("ProviderArgs", "", project=text, quiet=flag),
        "compute/machine_v3.py": written("MachineV3Args", "", **machine)
        + written("MachineV3", "(pulumi.CustomResource)", address="pulumi.Output[_builtins.str]", **machine),
        "net/zone.py": written("ZoneArgs", "", name=text) + written("Zone", "(pulumi.CustomResource)", name=text),
        "net/ssh_key.py": written("SshKeyArgs", "", acmeLabels=text)
        + written("SshKey", "(pulumi.CustomResource)", acmeLabels=text),
    }
    for name, content in files.items():
        (tmp_path / "pulumi_acme" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pulumi_acme" / name).write_text(content)
    (tmp_path / "pulumi_acme-2.1.dist-info").mkdir()
    (tmp_path / "pulumi_acme-2.1.dist-info" / "METADATA").write_text("Name: pulumi-acme\nVersion: 2.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    return Sdk(TABLE.sdk)


class Upstream:
    """The pretend upstream provider: its schema, and a configuration that it remembers."""

    def __init__(self):
        def field(name, kind="string", **flags):
            return name, Field(name, Node(kind), **(flags or {"optional": True}))

        def block(*fields):
            return Node("object", fields=dict(fields), block=True)

        computed = {"computed": True}
        owned = (field("name"), field("owner"), field("spare", "bool"))
        self.types = {
            "apex_compute_machine": block(*owned, field("address", **computed), field("id", **computed)),
            "apex_dns_area": block(field("name"), field("id", **computed)),
            "apex_wide_net_ssh_key": block(field("apex_labels"), field("id", **computed)),
        }
        self.schema = SimpleNamespace(resource_schemas=dict.fromkeys(self.types), data_source_schemas={})
        self.pb = SimpleNamespace(ClientCapabilities=dict)
        self.configured = None

    def resource(self, name):
        return self.types[name], 0

    def provider(self):
        fields = {"project": Field("project", Node("string"), optional=True)}
        return Node("object", fields={**fields, "quiet": Field("quiet", Node("bool"), optional=True)}, block=True)

    def value(self, value):
        return value

    def call(self, method, **fields):
        if method == "Configure":
            self.configured = fields["config"]
        return SimpleNamespace(diagnostics=[], prepared_config=SimpleNamespace(msgpack=b""))


@pytest.fixture
def upstream():
    return Upstream()


@pytest.fixture
def provider(sdk, upstream):
    return Provider(ProviderResources(upstream, sdk, TABLE))


def checked(provider, token, news, name="Big"):
    urn = f"urn:pulumi:test::bridge::{token}::{name}"
    answer = provider.Check(pb.CheckRequest(urn=urn, news=wire.dump(news), randomSeed=b"1"), None)
    return wire.load(answer.inputs), {f.property: f.reason for f in answer.failures}


def test_names_of_types_and_fields_come_from_the_table(provider):
    machine = provider.resources.mapping(MACHINE)
    assert machine.upstream == "apex_compute_machine"
    assert {f.tf: f.pulumi for f in machine.node.fields.values()}["owner"] == "ownedBy"
    assert provider.resources.mapping(ZONE).upstream == "apex_dns_area"
    key = provider.resources.mapping(KEY)
    assert key.upstream == "apex_wide_net_ssh_key"
    assert key.node.fields["apex_labels"].pulumi == "acmeLabels"
    _, refused = checked(provider, MACHINE, {"colour": "red"})
    assert "colour" in refused["colour"]


def test_automatic_names_come_from_the_table(provider):
    inputs, refused = checked(provider, MACHINE, {"spare": True}, name="RatherLongForAName")
    assert refused == {}
    assert re.fullmatch(r"rather-[0-9a-f]{7}\.spare", inputs["name"])
    assert "name" not in checked(provider, ZONE, {})[0]


def test_the_configuration_has_the_tables_presets_and_replacements(provider, upstream):
    provider.Configure(pb.ConfigureRequest(args=wire.dump({"project": "p", "banner": "true"})), None)
    assert upstream.configured == {"project": "p", "quiet": True}
    old = wire.dump({"project": "p", "quiet": True, "banner": "true"})
    new = wire.dump({"project": "q", "quiet": False, "banner": "false"})
    answer = provider.DiffConfig(pb.DiffRequest(old_inputs=old, news=new), None)
    assert (list(answer.diffs), list(answer.replaces)) == (["project", "quiet"], ["project"])


def test_the_packages_schema_is_the_pretend_providers(provider):
    text = provider.GetSchema(pb.GetSchemaRequest(), None).schema
    assert '"name": "acme", "version": "2.1"' in text
    assert MACHINE in text
    assert "aws" not in text


def test_a_provider_without_a_table_is_named(tmp_path):
    assert providers.table(providers.USUAL).plugin == "pulumi-resource-aws"
    with pytest.raises(LookupError, match="no provider 'acme'; there are aws, gcp"):
        providers.table("acme")


@pytest.mark.parametrize("path", sorted(BRIDGE.glob("*.py")), ids=lambda path: path.name)
def test_nothing_but_the_tables_names_a_provider(path):
    assert re.findall(r"(?i)\baws|amazon|\bs3\b|google(?!\.protobuf)|azure", path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_a_provider_that_was_not_built_is_named_with_what_builds_it(tmp_path, name):
    env = {**os.environ, "EVERSPOT_TOOLCHAIN": str(tmp_path), "EVERSPOT_BRIDGE_PROVIDER": name}
    command = [sys.executable, "-m", "everspot_local.bridge"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    table = providers.table(name)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (f"{table.plugin}: {tmp_path}/bin/{table.binary} is missing: run `make setup CLOUD={name}`\n")
