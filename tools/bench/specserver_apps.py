"""Owns the same small API in four frameworks, for the benchmark of specserver."""

import sys
import types
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, FastAPI, HTTPException, Query
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.templating import Jinja2Templates

from specserver import App

with warnings.catch_warnings():
    # Connexion imports Starlette's test client, which warns about a package nobody here uses.
    warnings.simplefilter("ignore")
    import connexion
    from connexion.middleware import swagger_ui
    from connexion.resolver import Resolver

TOKEN = "mk_live_0123456789abcdefghijklmnopqrstuvwxyz"  # noqa: S105 - made up for the benchmark
BODY = {
    "name": "orders-production",
    "engine": "postgres",
    "size": "f2",
    "storage_bytes": 10_737_418_240,
    "labels": ["team-a", "eu"],
    "notes": "made by the benchmark",
}
SCHEMA = {
    "type": "object",
    "required": ["name", "engine", "size"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 63, "pattern": "^[a-z][a-z0-9-]*$"},
        "engine": {"type": "string", "enum": ["duckdb", "postgres", "redis"]},
        "size": {"type": "string", "enum": ["f0", "f1", "f2", "f4"]},
        "storage_bytes": {"type": "integer", "minimum": 1_073_741_824},
        "labels": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 40}},
        "notes": {"type": "string", "maxLength": 1000},
    },
}


def path_of(number: int, org: str = "{org_id}") -> str:
    return f"/v1/orgs/{org}/kind-{number}/actions/order"


def answer(org_id: str, limit: int, body: Any) -> dict[str, Any]:
    return {"org_id": org_id, "limit": limit, "name": body["name"], "size": body["size"]}


def document(version: str, operations: int) -> dict[str, Any]:
    return {
        "openapi": version,
        "info": {"title": "Benchmark", "version": "1"},
        "security": [{"key": []}],
        "paths": {path_of(number): {"post": _operation(number)} for number in range(operations)},
        "components": {
            "schemas": {"Order": SCHEMA},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "x-bearerInfoFunc": f"{__name__}.token_info",
                }
            },
        },
    }


def _operation(number: int) -> dict[str, Any]:
    json = {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}
    answered = {"application/json": {"schema": {"type": "object"}}}
    limit = {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}
    return {
        "operationId": f"orders.order_{number}",
        "parameters": [
            {"name": "org_id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "limit", "in": "query", "schema": limit},
        ],
        "requestBody": {"required": True, "content": json},
        "responses": {"200": {"description": "Ordered.", "content": answered}},
    }


def token_info(token: str) -> dict[str, str] | None:
    """Connexion's way of asking who holds a token."""
    return {"sub": "benchmark"} if token == TOKEN else None


def raw(operations: int, *, threaded: bool = False) -> Any:
    """Starlette and orjson: bearer check and JSON parse, and no validation at all."""

    async def order(request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Response(status_code=401)
        body = orjson.loads(await request.body())
        limit = int(request.query_params.get("limit", "20"))
        made = answer(request.path_params["org_id"], limit, body)
        return Response(orjson.dumps(made), media_type="application/json")

    if threaded:
        raise ValueError("Starlette reads a body on the event loop only")
    return Starlette(routes=[Route(path_of(n), order, methods=["POST"]) for n in range(operations)])


def specserver(operations: int, *, threaded: bool = False) -> Any:
    def order(org_id: str, limit: int, body: dict[str, Any]) -> dict[str, Any]:
        return answer(org_id, limit, body)

    async def order_on_loop(org_id: str, limit: int, body: dict[str, Any]) -> dict[str, Any]:
        return answer(org_id, limit, body)

    package = types.ModuleType("specserver_bench")
    module = types.ModuleType("specserver_bench.orders")
    package.__path__ = []
    for number in range(operations):
        setattr(module, f"order_{number}", order if threaded else order_on_loop)
    sys.modules["specserver_bench"], sys.modules["specserver_bench.orders"] = package, module
    return App(
        document("3.1.0", operations), handlers="specserver_bench", security={"key": token_info}
    )


def stock_connexion(operations: int, *, threaded: bool = False) -> Any:
    async def order_on_loop(org_id: str, limit: int, body: dict[str, Any]) -> dict[str, Any]:
        return answer(org_id, limit, body)

    def order(org_id: str, limit: int, body: dict[str, Any]) -> dict[str, Any]:
        return answer(org_id, limit, body)

    # Ours leaves it out at its import, and stock Connexion is to be whole.
    swagger_ui.Jinja2Templates = Jinja2Templates
    app = connexion.AsyncApp("benchmark")
    chosen: Callable[..., Any] = order if threaded else order_on_loop
    app.add_api(document("3.0.3", operations), resolver=Resolver(lambda _: chosen))
    return app


class Order(BaseModel):
    """`SCHEMA`, as FastAPI wants it."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=3, max_length=63, pattern="^[a-z][a-z0-9-]*$")]
    engine: Literal["duckdb", "postgres", "redis"]
    size: Literal["f0", "f1", "f2", "f4"]
    storage_bytes: Annotated[int, Field(ge=1_073_741_824)] = 1_073_741_824
    labels: Annotated[
        list[Annotated[str, Field(max_length=40)]], Field(max_length=10, default_factory=list)
    ]
    notes: Annotated[str, Field(max_length=1000)] = ""


_bearer = HTTPBearer()


async def bearer(credential: Annotated[HTTPAuthorizationCredentials, Depends(_bearer)]) -> None:
    if credential.credentials != TOKEN:
        raise HTTPException(401)


Limit = Annotated[int, Query(ge=1, le=100)]


def fastapi(operations: int, *, threaded: bool = False) -> Any:
    async def order_on_loop(org_id: str, body: Order, limit: Limit = 20) -> dict[str, Any]:
        return answer(org_id, limit, body.model_dump())

    def order(org_id: str, body: Order, limit: Limit = 20) -> dict[str, Any]:
        return answer(org_id, limit, body.model_dump())

    app = FastAPI(dependencies=[Depends(bearer)])
    for number in range(operations):
        app.post(path_of(number))(order if threaded else order_on_loop)
    return app
