"""Serves the components to every Pulumi language: `pulumi package add …/components`."""

import everspot
import pulumi
from pulumi.provider.experimental import component_provider_host

COMPONENTS = [
    kind
    for name in everspot.__all__
    if isinstance(kind := getattr(everspot, name), type) and issubclass(kind, pulumi.ComponentResource)
]

if __name__ == "__main__":
    component_provider_host(name="everspot", components=COMPONENTS)
