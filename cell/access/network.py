"""What a spec says about who may come in, checked before it is kept: the gateway trusts it.

And held against who comes to the cell itself, which the gateway cannot do.
"""

import ipaddress
import ssl

from cell.specification import Spec
from gateway import addresses
from specserver import Conflict, Forbidden, Invalid


def check(spec: Spec, zone: str) -> None:
    """Raises Invalid, and says which part is wrong. `zone` is that of the cell's own hosts."""
    for cidr in spec.allow_cidrs or ():
        try:
            ipaddress.ip_network(cidr, strict=False)
        except ValueError as error:
            raise Invalid(f"allow_cidrs: {cidr} is not a valid network") from error
    for domain in spec.domains:
        if domain == zone or domain.endswith(f".{zone}"):
            raise Invalid(f"domains: {domain} is among the hosts of the region")
    if spec.client_ca_pem is not None:
        _check_authorities(spec.client_ca_pem)


def _check_authorities(pem: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError) as error:  # TypeError: it is not ASCII
        raise Invalid("client_ca_pem: must contain PEM certificates") from error
    if not context.cert_store_stats()["x509"]:
        raise Invalid("client_ca_pem: does not contain a certificate")


def check_reach(spec: Spec, address: str, feature: str = "a one-time URL") -> None:
    """Raises Forbidden for an address that may not connect: an empty one is on no list.

    And Conflict where clients must show certificates, which nobody does here.
    """
    if spec.client_ca_pem is not None:
        raise Conflict(f"the instance requires client certificates, which {feature} cannot present")
    if not addresses.admits(addresses.parse_networks(spec.allow_cidrs), address):
        text = (
            f"your address, {address or 'which is not known'}, is not on the instance's allow-list:"
            " use one that is, or have yours added to the instance's network, and try again"
        )
        raise Forbidden(text, code="address_not_allowed")
