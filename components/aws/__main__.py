"""Serves AWS's components to every Pulumi language: `pulumi package add …/components/aws`."""

from everspot.serving import serve

if __name__ == "__main__":
    serve("Aws")
