"""Known prices for a command: those of the project around it, and newer ones from the price lists."""

from collections.abc import Iterable

from everspot_clouds import price_files
from everspot_clouds.base import CloudError, NotOffered
from everspot_clouds.price_files import BadPriceFile
from everspot_clouds.registry import UnknownCloud, provider
from everspot_core.capacity.catalogue import Catalogue
from everspot_core.capacity.price_table import PriceTable

from everspot_cli.errors import CliError, Exit
from everspot_cli.session import Session


def load_catalogue(session: Session) -> Catalogue:
    """Return the types and prices that are known here, without a cluster.

    Raises:
        CliError: if a file of the project's prices cannot be read.
    """
    try:
        return price_files.load_catalogue(now=session.prices_now)
    except BadPriceFile as error:
        raise CliError(str(error)) from None


def read_price_lists(session: Session, cloud: str, region: str, types: Iterable[str]) -> PriceTable:
    """Return the prices of a region now: of the types, and of all its types with GPUs. Shows its progress.

    Raises:
        CliError: if the price lists cannot be read, or have none of the types.
    """
    with session.errors.status(f"reading the price lists of {region} …") as status:
        pages = 0

        def page() -> None:
            nonlocal pages
            pages += 1
            status.update(f"reading the price lists of {region} … {pages} pages")

        try:
            table = provider(cloud).price_table(region, types, session.prices_now, page, gpu_types=True)
        except (NotOffered, UnknownCloud) as error:
            raise CliError(str(error)) from None
        except CloudError as error:
            raise CliError(str(error), Exit.UNAVAILABLE, hint=error.fix) from None
    if not table.prices:
        raise CliError(f"the price lists name none of these types in {region}", hint="is the region right?")
    return table
