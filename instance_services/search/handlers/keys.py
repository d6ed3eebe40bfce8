"""Owns the operations of the tag Keys."""

from typing import Any

from instance_services.search.boundary import SearchService
from instance_services.search.errors import ApiError, snake
from specserver import Exchange, Reply


def list_(exchange: Exchange, offset: int = 0, limit: int = 20) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    return service.keys.page(limit, offset)


def create(exchange: Exchange, body: dict[str, Any]) -> Reply:
    service: SearchService = exchange.app_state
    return Reply(201, service.keys.create(body))


def get(exchange: Exchange, key: str) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    return service.keys.get(key)


def update(exchange: Exchange, key: str, body: dict[str, Any]) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    for member in ("uid", "actions", "indexes", "expiresAt"):
        if member in body:
            raise ApiError(
                f"immutable_api_key_{snake(member)}",
                f"`{member}` of a key does not change; make another key",
            )
    return service.keys.update(key, body)


def delete(exchange: Exchange, key: str) -> Reply:
    service: SearchService = exchange.app_state
    service.keys.delete(key)
    return Reply.no_content()
