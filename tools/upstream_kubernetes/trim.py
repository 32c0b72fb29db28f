"""Copy the source of Pulumi's Kubernetes provider, and make the two files that it embeds from those beside them.

usage: trim.py MODULE_DIR OUT_DIR VERSION      (MODULE_DIR: where Go keeps the module's own source)

The module's own generator (`cmd/pulumi-resource-kubernetes/generate.go`) does the same: it writes the schema without
its line breaks, with the version of the provider.
"""

import json
import shutil
import sys
from pathlib import Path

COMMAND = Path("cmd/pulumi-resource-kubernetes")
EMBEDDED = {"schema.json": "schema-embed.json", "terraform-mapping.json": "terraform-mapping-embed.json"}
LOCAL_SDK = "replace github.com/pulumi/pulumi-kubernetes/sdk/v4 => ../sdk\n"


class UnknownForm(RuntimeError):
    """The source does not look as this script expects: another version needs another script."""


def copy(module: Path, out: Path) -> None:
    """Copy the module, without the read-only modes of Go's module cache."""
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(module, out, copy_function=shutil.copyfile)
    for path in [out, *out.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def main() -> None:
    """Write the copy."""
    module, out, version = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    copy(module, out)
    required = (out / "go.mod").read_text()
    if LOCAL_SDK not in required:
        raise UnknownForm(f"go.mod does not say {LOCAL_SDK!r}")
    (out / "go.mod").write_text(required.replace(LOCAL_SDK, ""))
    for source, embedded in EMBEDDED.items():
        document = json.loads((out / COMMAND / source).read_text())
        if source == "schema.json":
            document["version"] = version
        (out / COMMAND / embedded).write_text(json.dumps(document))


if __name__ == "__main__":
    main()
