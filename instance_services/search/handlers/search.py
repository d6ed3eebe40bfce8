"""Owns the operations of the tag Search."""

from typing import Any

from instance_services.search import answering, facet_searching, federating, similar
from instance_services.search.boundary import check_index
from specserver import Exchange


def post(exchange: Exchange, index_uid: str, body: dict[str, Any]) -> dict[str, Any]:
    return answering.search(exchange.app_state, exchange.principal, index_uid, body)


def get(exchange: Exchange, index_uid: str, **given: Any) -> dict[str, Any]:
    return answering.search(
        exchange.app_state, exchange.principal, index_uid, answering.of_parameters(given)
    )


def facets(exchange: Exchange, index_uid: str, body: dict[str, Any]) -> dict[str, Any]:
    return facet_searching.answer(exchange.app_state, exchange.principal, index_uid, body)


def similar_documents(exchange: Exchange, index_uid: str, body: dict[str, Any]) -> dict[str, Any]:
    return similar.answer(exchange.app_state, exchange.principal, index_uid, body)


def multi(exchange: Exchange, body: dict[str, Any]) -> dict[str, Any]:
    for query in body["queries"]:
        check_index(exchange, query["indexUid"])
    if body.get("federation") is not None:
        return federating.answer(exchange.app_state, exchange.principal, body)
    return answering.each(exchange.app_state, exchange.principal, body["queries"])
