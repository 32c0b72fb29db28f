"""Serves the components of both clouds to every Pulumi language: `pulumi package add …/components`."""

from everspot.serving import serve

if __name__ == "__main__":
    serve("Aws", "Gcp")
