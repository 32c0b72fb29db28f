"""Serves the components to every Pulumi language: `pulumi package add …/components`."""

import sys

import everspot
import pulumi
from everspot.common import BadComponentInputs
from pulumi.provider import ConstructResult, main
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

COMPONENTS = [
    kind
    for name in everspot.__all__
    if isinstance(kind := getattr(everspot, name), type) and issubclass(kind, pulumi.ComponentResource)
]


class Components(ComponentProvider):
    """Pulumi's own, which takes inputs that a component refuses for a fault of the component, and shows a traceback."""

    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: pulumi.Inputs,
        options: pulumi.ResourceOptions | None = None,
    ) -> ConstructResult:
        """Declare a component.

        Raises:
            InputPropertiesError: if its inputs are refused: the engine shows each of them.
        """
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as error:
            if isinstance(error.inner, BadComponentInputs):
                raise pulumi.InputPropertiesError(error.inner.message, error.inner.errors) from None
            raise


if __name__ == "__main__":
    main(Components(COMPONENTS, "everspot", None, "0.0.0"), sys.argv[1:])
