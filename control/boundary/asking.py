"""What an operation asks others before its transaction (`x-asks`): no writer waits for them.

What came of it, an answer or a problem, goes into the request's state. A handler takes it; a
repeated request gets the stored response instead.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from control.boundary.callers import Admission
from control.boundary.rules import Rule
from control.services import Services
from control.sso import questions
from control.sso.questions import Question
from specserver import Exchange, Problem

_STATE: Final = "asked"
_ASKED: Final[Mapping[str, Callable[[Services, Question], Any]]] = {
    "sso_provider": questions.discover,
    "sso_sign_in": questions.complete,
}


def ask(exchange: Exchange, rule: Rule, admission: Admission, services: Services) -> None:
    """To be called outside of any transaction, for a request that was let in and validated."""
    if rule.asks is None:
        return
    org_id = admission.org.id if admission.org else None
    question = Question(exchange.arguments, org_id, admission.at)
    try:
        exchange.state[_STATE] = _ASKED[rule.asks](services, question)
    except Problem as problem:
        exchange.state[_STATE] = problem


def answer_of(exchange: Exchange) -> Any:
    """Raises the problem that came of it."""
    found = exchange.state[_STATE]
    if isinstance(found, Problem):
        raise found
    return found
