"""Owns the ASGI app: the document, its handlers, who may call them, and the form of errors."""

from pathlib import Path

from instance_services.duckdb.engine import SerialExecutor
from instance_services.duckdb.users import Users
from specserver import App, Problem, Reply

DOCUMENT = Path(__file__).with_name("openapi.yaml")
BODY_BYTES_MAX = 1_048_576

_INVALID = 422


def make_app(engine: SerialExecutor, users: Users) -> App:
    """The service; its lifespan starts and stops the engine."""
    return App(
        DOCUMENT,
        handlers="instance_services.duckdb.handlers",
        security={"basic": users.verify},
        state=engine,
        problems=render_error,
        max_body_bytes=BODY_BYTES_MAX,
        on_startup=[engine.start],
        on_shutdown=[engine.stop],
        serve_docs=False,
        checked=True,
    )


def render_error(problem: Problem, _request_id: str) -> Reply:
    """`{"error": …}`; a request that breaks the document is 400 here, as an SQL error is."""
    reasons = [
        f"{error.get('parameter') or error.get('pointer') or 'body'} {error['message']}"
        for error in problem.errors
    ]
    status = 400 if problem.status == _INVALID else problem.status
    return Reply(status, {"error": "; ".join(reasons) or problem.detail}, problem.headers)
