"""What signing in by SAML has that is secret: sent, and searched for afterwards."""

from contract_tests.api.harness import House, Person, Tenant
from contract_tests.api.letters import new_email
from contract_tests.api.rows import is_problem
from contract_tests.api.sso import with_saml as saml


def come_by_saml(house: House, person: Person) -> list[str]:
    """With a response that is refused, and one that is not."""
    connection, told = saml.connect(house, house.tenant(owner=person)), []
    begun = saml.begin(house, connection)
    wrong = saml.answered(house, begun, new_email(), audience="https://other.example.com")
    is_problem(saml.send(house, begun, wrong), 401, "saml_refused")
    right = saml.answered(house, begun, new_email())
    assert saml.send(house, begun, right).status_code == 201
    told += [wrong, right, begun.state, begun.browser]
    return told


def coming_by_saml(house: House, tenant: Tenant) -> dict[str, str]:
    """The body of a request that completes a sign-in."""
    begun = saml.begin(house, saml.connect(house, tenant))
    return {**begun.body, "saml_response": saml.answered(house, begun, new_email())}
