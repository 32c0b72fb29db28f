"""Holds gateways and addresses to EC2's order of deletion: what something still uses cannot be deleted.

NAT gateways need an internet gateway ("Troubleshoot NAT gateways": Gateway.NotAttached), and keep subnet, address and
internet gateway in use until they are deleted. moto deletes any of them at any time, and leaves a deleted NAT gateway's
address taken.
"""

from collections.abc import Iterator
from typing import Any

from moto.ec2.exceptions import DependencyViolationError, EC2ClientError
from moto.ec2.models.nat_gateways import NatGateway


def check_nat_gateway(backend: Any, params: dict[str, Any]) -> None:
    """Check CreateNatGateway. EC2 creates a public NAT gateway without an internet gateway, which then fails with this
    code; here it is refused immediately."""
    vpc_id = backend.get_subnet(str(params.get("SubnetId") or "")).vpc_id
    if params.get("ConnectivityType") != "private" and not any(_attached(backend, vpc_id)):
        raise EC2ClientError("Gateway.NotAttached", f"Network {vpc_id} has no Internet gateway attached")


def delete_nat_gateway(backend: Any, nat_gateway_id: str) -> NatGateway:
    """Delete a NAT gateway and release its address and its interface, which moto keeps."""
    nat: NatGateway | None = backend.nat_gateways.get(nat_gateway_id)
    if nat is None:
        raise EC2ClientError("NatGatewayNotFound", f"The Nat Gateway {nat_gateway_id} was not found")
    if nat.state != "deleted":
        nat.state = "deleted"
        for address in nat.address_set:
            if association := address.get("associationId"):
                backend.disassociate_address(association_id=association)
        backend.delete_network_interface(nat._eni.id)
    return nat


def check_release(backend: Any, params: dict[str, Any]) -> None:
    """Refuse to release a VPC's address that is still associated (EC2 API Reference, ReleaseAddress)."""
    for address in backend.addresses:
        if address.allocation_id == params.get("AllocationId") and address.association_id:
            raise EC2ClientError("InvalidIPAddress.InUse", f"Address {address.public_ip} is in use.")


def check_detachment(backend: Any, params: dict[str, Any]) -> None:
    """Refuse to detach an internet gateway from a network with Elastic IP addresses (EC2 API Reference)."""
    vpc_id = str(params.get("VpcId") or "")
    if any(address.eni is not None and address.eni.subnet.vpc_id == vpc_id for address in backend.addresses):
        raise DependencyViolationError(
            f"Network {vpc_id} has some mapped public address(es). Please unmap those public address(es) before "
            "detaching the gateway."
        )


def check_subnet_deletion(backend: Any, params: dict[str, Any]) -> None:
    """Refuse to delete a subnet with a NAT gateway in it."""
    subnet_id = str(params.get("SubnetId") or "")
    if any(nat.subnet_id == subnet_id and nat.state != "deleted" for nat in backend.nat_gateways.values()):
        raise DependencyViolationError(f"The subnet '{subnet_id}' has dependencies and cannot be deleted.")


def check_vpc_deletion(backend: Any, params: dict[str, Any]) -> None:
    """Refuse to delete a VPC with an internet gateway (EC2 API Reference, DeleteVpc)."""
    vpc_id = str(params.get("VpcId") or "")
    if any(_attached(backend, vpc_id)):
        raise DependencyViolationError(f"The vpc '{vpc_id}' has dependencies and cannot be deleted.")


def _attached(backend: Any, vpc_id: str) -> Iterator[bool]:
    for gateway in backend.internet_gateways.values():
        yield gateway.vpc is not None and gateway.vpc.id == vpc_id
