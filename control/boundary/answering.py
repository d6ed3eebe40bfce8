"""What each boundary does around serving: failures become problems, every answer tells rates."""

from collections.abc import Callable

from control.boundary import failures
from control.boundary.rates import VERDICT, Verdict
from specserver import Exchange, Problem, Reply


def answer(exchange: Exchange, serve: Callable[[Exchange], Reply]) -> Reply:
    """What `serve` answers, or the Problem that it raises or that comes of what it raises."""
    try:
        reply = serve(exchange)
    except failures.EXPECTED as error:
        problem = failures.as_problem(error)
        _tell_rates(exchange, problem)
        raise problem from error
    except Problem as problem:
        _tell_rates(exchange, problem)
        raise
    _tell_rates(exchange, reply)
    return reply


def _tell_rates(exchange: Exchange, answer: Reply | Problem) -> None:
    verdict: Verdict | None = exchange.state.get(VERDICT)
    if verdict is not None:
        answer.headers.update(verdict.headers)
