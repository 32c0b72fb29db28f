"""Stands in for the AWS Price List Query API: GetProducts of AmazonEC2, from the catalogue's on-demand prices.

It knows no other service, no other kind of filter than TERM_MATCH, no other terms than on-demand; beside each product
it lists the reservation of the same type that is never sold by itself, at a price of 0, as AWS does.
"""

import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

from everspot_core.capacity.catalogue import Catalogue

from everspot_local.aws.signatures import signed_region

TARGET = "AWSPriceListService."
REGIONS = ("us-east-1", "eu-central-1", "ap-south-1")  # botocore's endpoints.json: api.pricing
PAGE = 100
_FORMAT = "aws_v1"


class PriceList:
    """The service as a WSGI application of its own, since moto has none of it. `catalogue`: returns the current one."""

    def __init__(self, catalogue: Callable[[], Catalogue]) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()

    @staticmethod
    def handles(environ: dict[str, Any]) -> bool:
        """Return whether a request is for this service."""
        return str(environ.get("HTTP_X_AMZ_TARGET", "")).startswith(TARGET)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        length = int(environ.get("CONTENT_LENGTH") or 0)
        try:
            region = signed_region({"Authorization": environ.get("HTTP_AUTHORIZATION", "")})
            if region not in (None, *REGIONS):
                raise _NotListed("AccessDeniedException", f"the Price List API is not to be had in {region}")
            action = environ["HTTP_X_AMZ_TARGET"].removeprefix(TARGET)
            if action != "GetProducts":
                raise _NotListed("InvalidParameterException", f"{action} is not known to the local cloud")
            answer, status = self._products(json.loads(environ["wsgi.input"].read(length) or b"{}")), "200 OK"
        except _NotListed as error:
            answer, status = {"__type": error.code, "message": str(error)}, "400 Bad Request"
        body = json.dumps(answer).encode()
        start_response(status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))])
        return [body]

    def _products(self, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("ServiceCode") != "AmazonEC2":
            raise _NotListed("NotFoundException", f"no such service: {request.get('ServiceCode')}")
        size, token = int(request.get("MaxResults") or PAGE), str(request.get("NextToken") or "0")
        if not 1 <= size <= PAGE:
            raise _NotListed("InvalidParameterException", f"MaxResults has to lie between 1 and {PAGE}")
        if not token.isdigit():
            raise _NotListed("InvalidNextTokenException", "the token is not one of ours")
        filters = {}
        for entry in request.get("Filters") or []:
            if entry.get("Type") != "TERM_MATCH":
                raise _NotListed("InvalidParameterException", f"filters of the type {entry.get('Type')} are not known")
            filters[entry["Field"]] = entry["Value"]
        with self._lock:
            products = [p for p in _all(self._catalogue()) if _matches(p["product"]["attributes"], filters)]
        first = int(token)
        more = {"NextToken": str(first + size)} if first + size < len(products) else {}
        return {"FormatVersion": _FORMAT, "PriceList": [json.dumps(p) for p in products[first : first + size]], **more}


class _NotListed(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _matches(attributes: dict[str, str], filters: dict[str, str]) -> bool:
    return all(attributes.get(field, "").lower() == value.lower() for field, value in filters.items())


def _all(catalogue: Catalogue) -> list[dict[str, Any]]:
    products = []
    for region in catalogue.regions:
        for name in catalogue.offered(region):
            price = catalogue.on_demand(name, region)
            if price is None or "." not in name:  # Google's types have hyphens
                continue
            kind = catalogue.types[name]
            attributes = {
                "instanceType": name, "regionCode": region, "operatingSystem": "Linux", "tenancy": "Shared",
                "preInstalledSw": "NA", "licenseModel": "No License required", "marketoption": "OnDemand",
                "vcpu": str(kind.vcpus), "memory": f"{kind.memory_gib:g} GiB", "operation": "RunInstances",
            }  # fmt: skip
            for status, usd in (("Used", price.usd_per_hour), ("UnusedCapacityReservation", 0.0)):
                products.append(_product({**attributes, "capacitystatus": status}, usd))
    return products


def _product(attributes: dict[str, str], usd: float) -> dict[str, Any]:
    sku = f"{attributes['regionCode']}.{attributes['instanceType']}.{attributes['capacitystatus']}".upper()
    dimension = {"unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": f"{usd:.10f}"}}
    return {
        "serviceCode": "AmazonEC2",
        "product": {"productFamily": "Compute Instance", "sku": sku, "attributes": attributes},
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": {"sku": sku, "priceDimensions": {f"{sku}.1": dimension}}}},
    }
