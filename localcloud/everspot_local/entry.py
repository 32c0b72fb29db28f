"""The way into `everspot-local`: packages that are missing are named in a sentence, before anything needs them."""

from everspot_core.extras import check


def main() -> None:
    """Run the program."""
    check("everspot-local", "local")
    from everspot_local.main import main as run

    run()
