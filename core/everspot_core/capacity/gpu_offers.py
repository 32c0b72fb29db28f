"""Instance types with GPUs in all regions with known prices, the cheapest GPU first."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from everspot_core.capacity.catalogue import Catalogue, InstanceType, Price

WHOLE = 0.75
"""Share of a model's memory from which on a GPU is a whole one."""


@dataclass(frozen=True)
class GpuOffer:
    """A type with GPUs in a region. `spot`: lowest and highest price over the zones; None where no price is known.
    `share`: of each GPU that the type has, 1 for whole ones."""

    instance_type: InstanceType
    region: str
    on_demand: Price | None
    spot: tuple[Price, Price] | None
    share: float = 1.0

    @property
    def usd_per_gpu_hour(self) -> float | None:
        """The lowest known price of an hour, divided by the GPUs, for whole GPUs; None if none is known."""
        prices = [price.usd_per_hour for price in (self.on_demand, *(self.spot or ())) if price is not None]
        return min(prices) / (self.instance_type.gpus * self.share) if prices else None


def has_model(kind: InstanceType, model: str) -> bool:
    """Return whether a type has GPUs of a model, whatever the size of their memory: A100 is A100-80GB too."""
    own, wanted_model = (kind.gpu or "").casefold(), model.casefold()
    return kind.gpus > 0 and (own == wanted_model or own.startswith(f"{wanted_model}-"))


def list_gpu_offers(
    catalogue: Catalogue, model: str | None = None, regions: Collection[str] | None = None
) -> list[GpuOffer]:
    """Return every offer of a type with GPUs that has a price, cheapest GPU first.

    Args:
        catalogue: Types and prices.
        model: The GPU; None for all.
        regions: Only these; None for all that have prices.
    """
    memory: dict[str, float] = {}
    for kind in catalogue.types.values():
        memory[kind.gpu or ""] = max(memory.get(kind.gpu or "", 0.0), kind.gpu_memory_gib)
    offers = []
    for region in catalogue.regions if regions is None else sorted(regions):
        for name in catalogue.offered(region):
            offered = catalogue.types.get(name)
            if offered is None or not (has_model(offered, model) if model is not None else offered.gpus > 0):
                continue
            listed, spot = catalogue.on_demand(name, region), catalogue.spot_range(name, region)
            offers.append(GpuOffer(offered, region, listed, spot, _share(offered, memory)))
    priced = [(usd, offer) for offer in offers if (usd := offer.usd_per_gpu_hour) is not None]
    priced.sort(key=lambda pair: (pair[0], pair[1].instance_type.name, pair[1].region))
    return [offer for _, offer in priced]


def _share(kind: InstanceType, memory: Mapping[str, float]) -> float:
    """Return the part of a GPU that each of a type's GPUs is, by its memory. `memory`: of whole GPUs, by model. Clouds
    state a few percent less or more for the same GPU."""
    whole = memory.get(kind.gpu or "", 0.0)
    part = kind.gpu_memory_gib / whole if whole else 1.0
    return part if 0 < part < WHOLE else 1.0


def list_models(types: Iterable[InstanceType]) -> list[str]:
    """Return the models of GPUs that some types have, sorted."""
    return sorted({kind.gpu for kind in types if kind.gpu})
