"""The way into `everspot`: packages that are missing are named in a sentence, before anything needs them."""

from everspot_core.extras import check


def main() -> None:
    """Run the program."""
    check("everspot", "cli")
    from everspot_cli.main import main as run

    run()
