"""The entry point of `everspot-local`: names missing packages in a sentence, before they are imported."""

from everspot_core.extras import check


def main() -> None:
    """Run the program."""
    check("everspot-local", "local")
    from everspot_local.main import main as run

    run()
