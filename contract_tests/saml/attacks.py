"""Responses that nobody may be let in by, each with the reasons that may be given for it.

All begin with what the provider signed for Ada, and want Eve to come in.
"""

from contract_tests.saml import document_attacks, meant_otherwise, signature_attacks, wrapping
from contract_tests.saml.attack_parts import MAKERS, Attack

MADE_IN = (document_attacks, meant_otherwise, signature_attacks, wrapping)


def all_of_them() -> list[Attack]:
    return [
        Attack(name, content, frozenset(reasons.split()))
        for maker in MAKERS
        for name, content, reasons in maker()
    ]
