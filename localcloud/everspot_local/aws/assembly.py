"""Puts the account together, and its services behind one endpoint."""

from collections.abc import Callable
from typing import Any

from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import create_backend_app

from everspot_local.aws import account as accounts
from everspot_local.aws import ecr, moto_parts
from everspot_local.aws.account import ACCOUNT, Account
from everspot_local.aws.autoscaling.groups import member_ended
from everspot_local.aws.cloudwatch import cbor
from everspot_local.aws.dispatch import Dispatcher
from everspot_local.aws.ec2.instances import LAUNCH_FAILURES
from everspot_local.aws.imds.documents import Documents
from everspot_local.aws.imds.service import MetadataServices
from everspot_local.aws.price_list import PriceList
from everspot_local.aws.s3.disturbed import DisturbedS3
from everspot_local.machines.lifecycle import Machines
from everspot_local.machines.machine import Machine
from everspot_local.machines.processes import Boot
from everspot_local.market.market import LocalMarket
from everspot_local.market.market_log import Journal
from everspot_local.options import Options


class AwsProvider:
    """A local AWS. One at a time in a process, as moto's state is the process's."""

    def __init__(self, options: Options) -> None:
        accounts.check_free()
        moto_parts.take_moto()
        self._options = options

    def zone_ids(self, region: str) -> dict[str, str]:
        """Return zone ids by zone name."""
        return moto_parts.zone_ids(region)

    def join(self, market: LocalMarket) -> None:
        """Make the account and enter it."""
        self.account = assemble(self._options, market)
        self.machines, self.calls = self.account.machines, self.account.calls
        accounts.enter(self.account)

    def application(self) -> Callable[..., Any]:
        """Return all of the account's services as one WSGI application."""
        return services(self.account)

    def answer_at(self, endpoint: str) -> None:
        """Set the URL at which all services answer, for `AWS_ENDPOINT_URL`."""
        self.account.endpoint = endpoint

    def reset(self) -> None:
        """Empty the account."""
        self.account.reset()
        moto_parts.empty_moto()

    def close(self) -> None:
        """End the metadata services and restore moto's own classes."""
        self.account.metadata.close_all()
        self.account.calls.close()
        moto_parts.give_moto_back()
        accounts.enter(None)


def open_provider(options: Options) -> AwsProvider:
    """Return a local AWS.

    Raises:
        RuntimeError: if there is one in this process already.
    """
    return AwsProvider(options)


def assemble(options: Options, market: LocalMarket) -> Account:
    """Return an account with nothing in it, whose machines take their instances from a market."""
    machines = Machines(market, Boot(options.state_dir / "instances", options.boot_command, options.data_dir))
    machines.failure_codes = frozenset(LAUNCH_FAILURES)
    machines.listeners += [
        lambda machine: _fleet_replaces(market.region, machine),
        lambda machine: member_ended(market, machine.id),
    ]
    metadata = MetadataServices(Documents(market, machines))
    return Account(options, market, machines, metadata, Journal(options.state_dir / "calls.jsonl"))


def services(account: Account) -> Callable[..., Any]:
    """Return all of the account's services as one WSGI application."""
    moto = Dispatcher(create_backend_app)
    price_list = PriceList(lambda: account.market.pools.catalogue)
    translated = cbor.CborTranslator(moto)

    def application(environ: dict[str, Any], start_response: Any) -> Any:
        if ecr.handles(environ):
            return ecr.application(environ, start_response)
        if cbor.uses_cbor(environ):
            return translated(environ, start_response)
        return (price_list if price_list.handles(environ) else moto)(environ, start_response)

    return DisturbedS3(application, lambda: account.market.disturbances)


def _fleet_replaces(region: str, machine: Machine) -> None:
    """Tell a machine's fleet, if it has one, that the machine has ended."""
    fleets: dict[str, Any] = ec2_backends[ACCOUNT][region].fleets  # moto's own kind of fleet is never made
    fleet = fleets.get(machine.fleet) if machine.fleet else None
    if fleet is not None:
        fleet.member_ended(machine.id)
