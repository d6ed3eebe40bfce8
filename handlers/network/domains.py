"""Handlers of the tag Domains: host names of their owners' own that lead to an instance."""

from typing import Any

from control.policy import domains as rules
from control.policy.plans import PLANS
from control.policy.violations import refuse
from control.workflows.network.domains import verify_domain
from control.workflows.network.networks import apply_network
from handlers import paging
from handlers.calls import OrgCall
from handlers.network.views import domain as view
from specserver import Reply
from storage import identifiers
from storage.access import memberships
from storage.catalogue import cells
from storage.instances.instances import Instance
from storage.network import domains, networks
from storage.network.domains import Domain

Body = dict[str, Any]


def list_(call: OrgCall, instance: Instance, limit: int, cursor: str | None = None) -> Body:
    after = paging.after(call, cursor)
    return paging.page(call, domains.page(call.db, instance, limit=limit, after=after), view)


def create(call: OrgCall, instance: Instance, body: Body) -> Reply:
    instance.change(waits=False)
    hostname = _checked(call, instance, body["hostname"])
    domain = Domain(
        id=identifiers.new("dom_"),
        org_id=call.org.id,
        instance_id=instance.id,
        hostname=hostname,
        cname_target=instance.host,
    )
    call.db.add(domain)
    call.db.flush()
    call.audit(target=domain.id, detail={"instance": instance.id, "hostname": hostname})
    base = f"/v1/orgs/{call.org.id}/instances/{instance.id}/domains"
    return Reply.created(view(domain), f"{base}/{domain.id}")


def delete(call: OrgCall, instance: Instance, domain: Domain) -> Reply:
    call.db.delete(domain)
    call.audit(target=domain.id, detail={"instance": instance.id, "hostname": domain.hostname})
    networks.domains_changed(call.db, instance)
    call.start(apply_network, instance)
    return Reply.no_content()


def verify(call: OrgCall, instance: Instance, domain: Domain) -> Reply:
    domain.verify_again()
    call.audit(target=domain.id, detail={"instance": instance.id, "hostname": domain.hostname})
    # In a lane of its own: a name server that does not answer holds up nothing of the instance.
    lane, person = f"domain:{domain.id}", memberships.first_owner(call.db, call.org.id)
    call.start(
        verify_domain, instance, lane=lane, domain_id=domain.id, person=person or call.org.id
    )
    return Reply.accepted(view(domain))


def _checked(call: OrgCall, instance: Instance, text: str) -> str:
    """The name in its normal form; raises Invalid with all that is wrong."""
    hostname = rules.normal_hostname(text)
    cell = cells.fetch(call.db, instance.cell_id)
    wrong = [
        *rules.check_plan(PLANS[call.org.plan], domains.count(call.db, instance)),
        *rules.check_hostname(hostname, cell.instance_domain),
    ]
    refuse(wrong)
    return hostname
