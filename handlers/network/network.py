"""Handlers of the tag Network: who may connect to an instance."""

from typing import Any

from control.boundary import AuditedChanges
from control.policy import networks as rules
from control.policy.violations import Violation, refuse
from control.workflows.network.networks import apply_network
from handlers import preconditions
from handlers.calls import OrgCall
from handlers.network import views
from specserver import Reply
from specserver.problems import Problem
from storage.instances.instances import Instance
from storage.network import networks
from storage.network.networks import Network

Body = dict[str, Any]


def get(call: OrgCall, instance: Instance) -> Reply:
    return _answer(networks.of_instance(call.db, instance), instance)


def replace(call: OrgCall, instance: Instance, body: Body, if_match: str | None = None) -> Reply:
    instance.change(waits=False)
    network = networks.of_instance(call.db, instance)
    _check_unchanged(network, if_match)
    wanted = _checked(call, body)
    changes = AuditedChanges(
        lambda: views.audited({name: getattr(network, name) for name in wanted})
    )
    network.replace(wanted, call.caller.id)
    call.db.add(network)
    call.db.flush()
    opened = rules.is_open(network.allow_cidrs)
    told = {**views.audited(wanted), "open_to_the_world": opened}
    call.audit(target=instance.id, detail=told, changes=changes)
    call.start(apply_network, instance)
    return _answer(network, instance)


def _checked(call: OrgCall, body: Body) -> Body:
    """The body in the form that is kept; raises Invalid with all that is wrong."""
    wanted = dict(body)
    wrong: list[Violation] = []
    if body.get("allow_cidrs") is not None:
        wanted["allow_cidrs"], wrong = rules.normal_cidrs(body["allow_cidrs"])
    if body.get("client_ca_pem") is not None:
        kept, faults = rules.normal_authorities(body["client_ca_pem"], call.now)
        wanted["client_ca_pem"] = kept
        wrong += faults
    refuse(wrong, "the network is invalid in {} places")
    return wanted


def _check_unchanged(network: Network, if_match: str | None) -> None:
    """So that of two who read the same list, the second does not undo what the first did."""
    if if_match is None:
        raise Problem(428, "send If-Match with the ETag from GET …/network, or `*`")
    preconditions.check(if_match, views.etag(network), "the network")


def _answer(network: Network, instance: Instance) -> Reply:
    headers = {"ETag": views.etag(network)}
    return Reply(200, views.network(network, instance), headers)
