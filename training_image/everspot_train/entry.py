"""The entry point of `everspot-agent`: it names missing packages in one sentence before anything needs them."""

from everspot_core.extras import check


def main() -> None:
    """Run the program."""
    check("everspot-agent", "image")
    from everspot_train.agent.main import main as run

    run()
