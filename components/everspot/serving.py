"""Serves the components to every Pulumi language, for the folders that `pulumi package add` takes."""

import sys

import pulumi
from pulumi.provider import ConstructResult, main
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError

import everspot
from everspot.common import BadComponentInputs

PACKAGE = "everspot"


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


def list_components(*prefixes: str) -> list[type[pulumi.ComponentResource]]:
    """Return the components whose names begin with one of the prefixes, such as `Aws`."""
    # Only what begins so is imported: an environment with one cloud's SDK serves that cloud's components.
    kinds = [getattr(everspot, name) for name in everspot.__all__ if name.startswith(prefixes)]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, pulumi.ComponentResource)]


def serve(*prefixes: str) -> None:
    """Serve the components with these prefixes to the engine, until it ends this process."""
    main(Components(list_components(*prefixes), PACKAGE, None, "0.0.0"), sys.argv[1:])
