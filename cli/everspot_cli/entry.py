"""Entry point of `everspot`. It names missing packages in one sentence, before anything imports them."""

from everspot_core.extras import check


def main() -> None:
    """Run the program."""
    check("everspot", "cli")
    from everspot_cli.main import main as run

    run()
