"""Stands in for the AWS Price List Query API: GetProducts of AmazonEC2, from the catalogue's on-demand prices, and of
the few products of EC2, VPC and S3 that a cluster pays for beside its instances.

It knows no other service, no other kind of filter than TERM_MATCH, no other terms than on-demand; beside each instance
type it lists the reservation of the same type that is never sold by itself, at a price of 0, as AWS does.
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
_PREFIXES = {"us-east-1": "", "eu-west-1": "EU-"}
"""What usage types begin with, by region (AWS Cost and Usage Report, "Usage type")."""

# Service, family, usage type without its region, further attributes, unit, and the prices of both regions. Not taken
# from the adapter that reads them: a wrong usage type there has to be found here.
_OTHERS: tuple[tuple[str, str, str, dict[str, str], str, float, float], ...] = (
    ("AmazonEC2", "Storage", "EBS:VolumeUsage.gp3", {"volumeApiName": "gp3"}, "GB-Mo", 0.08, 0.088),
    ("AmazonEC2", "System Operation", "EBS:VolumeP-IOPS.gp3", {"volumeApiName": "gp3"}, "IOPS-Mo", 0.005, 0.0055),
    ("AmazonEC2", "Provisioned Throughput", "EBS:VolumeP-Throughput.gp3", {"volumeApiName": "gp3"}, "GiBps-mo",
     40.96, 45.056),
    ("AmazonEC2", "NAT Gateway", "NatGateway-Hours", {"group": "NGW:NatGateway"}, "Hrs", 0.045, 0.048),
    ("AmazonEC2", "NAT Gateway", "NatGateway-Bytes", {"group": "NGW:NatGateway"}, "GB", 0.045, 0.048),
    ("AmazonVPC", "VpcEndpoint", "VpcEndpoint-Hours", {}, "Hrs", 0.01, 0.011),
    ("AmazonVPC", "VpcEndpoint", "VpcEndpoint-Bytes", {}, "GB", 0.01, 0.01),
    ("AmazonVPC", "", "PublicIPv4:InUseAddress", {"group": "VPCPublicIPv4Address"}, "Hrs", 0.005, 0.005),
    ("AmazonVPC", "", "PublicIPv4:IdleAddress", {"group": "VPCPublicIPv4Address"}, "Hrs", 0.005, 0.005),
    ("AmazonS3", "API Request", "Requests-Tier1", {"group": "S3-API-Tier1"}, "Requests", 0.000005, 0.000005),
    ("AmazonS3", "API Request", "Requests-Tier2", {"group": "S3-API-Tier2"}, "Requests", 0.0000004, 0.0000004),
)  # fmt: skip
_FAMILIES = {False: "Compute Instance", True: "Compute Instance (bare metal)"}
"""The product family of a type, by whether it is bare metal. Karpenter asks for both, and takes no price of either
while one has none (karpenter-provider-aws, pkg/providers/pricing)."""
_SERVICES = frozenset(row[0] for row in _OTHERS)


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
        service = str(request.get("ServiceCode"))
        if service not in _SERVICES:
            raise _NotListed("NotFoundException", f"no such service: {service}")
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
            listed = [*(_all(self._catalogue()) if service == "AmazonEC2" else ()), *_others(service)]
            products = [p for p in listed if _matches(p["product"], filters)]
        first = int(token)
        more = {"NextToken": str(first + size)} if first + size < len(products) else {}
        return {"FormatVersion": _FORMAT, "PriceList": [json.dumps(p) for p in products[first : first + size]], **more}


class _NotListed(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def _matches(product: dict[str, Any], filters: dict[str, str]) -> bool:
    """Return whether a product has all values. Neither their case nor that of the fields' names counts: Karpenter asks
    for `serviceCode`, which is the attribute `servicecode`."""
    fields = {name.lower(): value.lower() for name, value in product["attributes"].items()}
    fields["productfamily"] = product["productFamily"].lower()
    return all(fields.get(field.lower(), "") == value.lower() for field, value in filters.items())


def _all(catalogue: Catalogue) -> list[dict[str, Any]]:
    products = []
    for region in catalogue.regions:
        for name in catalogue.offered(region):
            price = catalogue.on_demand(name, region)
            if price is None or "." not in name:  # Google's types have hyphens
                continue
            kind = catalogue.types[name]
            metal = ".metal" in name
            attributes = {
                "instanceType": name, "regionCode": region, "operatingSystem": "Linux", "tenancy": "Shared",
                "preInstalledSw": "NA", "licenseModel": "No License required", "marketoption": "OnDemand",
                "vcpu": str(kind.vcpus), "memory": f"{kind.memory_gib:g} GiB", "operation": "RunInstances",
            }  # fmt: skip
            for status, usd in (("Used", price.usd_per_hour), ("UnusedCapacityReservation", 0.0)):
                products.append(_product({**attributes, "capacitystatus": status}, usd, family=_FAMILIES[metal]))
            if metal:  # a host of its own costs the same, and some clients read that row alone
                dedicated = {**attributes, "tenancy": "Dedicated", "capacitystatus": "Used"}
                products.append(_product(dedicated, price.usd_per_hour, family=_FAMILIES[metal]))
    return products


def _others(service: str) -> list[dict[str, Any]]:
    """Return the products of a service that are no instances."""
    return [
        _product({**attributes, "regionCode": region, "usagetype": f"{prefix}{usage}"}, usd, service, family, unit)
        for code, family, usage, attributes, unit, *prices in _OTHERS
        for (region, prefix), usd in zip(_PREFIXES.items(), prices, strict=True)
        if code == service
    ]


def _product(
    attributes: dict[str, str],
    usd: float,
    service: str = "AmazonEC2",
    family: str = "Compute Instance",
    unit: str = "Hrs",
) -> dict[str, Any]:
    attributes = {**attributes, "servicecode": service}
    parts = ("regionCode", "instanceType", "tenancy", "capacitystatus", "usagetype")
    names = (attributes.get(name, "") for name in parts)
    sku = ".".join(name for name in names if name).upper()
    dimension = {"unit": unit, "beginRange": "0", "endRange": "Inf", "pricePerUnit": {"USD": f"{usd:.10f}"}}
    return {
        "serviceCode": service,
        "product": {"productFamily": family, "sku": sku, "attributes": attributes},
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": {"sku": sku, "priceDimensions": {f"{sku}.1": dimension}}}},
    }
