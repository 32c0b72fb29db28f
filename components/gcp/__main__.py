"""Serves Google Cloud's components to every Pulumi language: `pulumi package add …/components/gcp`."""

from everspot.serving import serve

if __name__ == "__main__":
    serve("Gcp")
