"""What leads to each kind of event about single sign-on."""

from contract_tests.api.harness import House, Tenant
from contract_tests.api.sso.provider import Provider


def pushed_a_person(house: House, tenant: Tenant, _instance_id: str) -> None:
    Provider(house, tenant).user("ada")


ACTS = {"org.member.added.v1": [pushed_a_person]}
