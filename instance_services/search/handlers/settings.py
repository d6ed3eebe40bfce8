"""Owns the operations of the tag Settings."""

from typing import Any

import orjson

from instance_services.search import configuration, setting_checks
from instance_services.search.boundary import SearchService
from instance_services.search.errors import ApiError
from specserver import Exchange, Reply


def get(exchange: Exchange, index_uid: str) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    with service.snapshots.index(index_uid) as state:
        return state.settings


def update(exchange: Exchange, index_uid: str, body: dict[str, Any]) -> Reply:
    return _change(exchange, index_uid, body)


def reset(exchange: Exchange, index_uid: str) -> Reply:
    return _change(exchange, index_uid, dict.fromkeys(configuration.names()))


def get_one(exchange: Exchange, index_uid: str, setting: str) -> Any:
    name = _name(setting)
    service: SearchService = exchange.app_state
    with service.snapshots.index(index_uid) as state:
        # As bytes, because an answer that is null would have no body.
        return Reply(200, orjson.dumps(state.settings[name]))


def put_one(exchange: Exchange, index_uid: str, setting: str, body: Any) -> Reply:
    return _change(exchange, index_uid, {_name(setting): body})


def patch_one(exchange: Exchange, index_uid: str, setting: str, body: Any) -> Reply:
    return _change(exchange, index_uid, {_name(setting): body})


def reset_one(exchange: Exchange, index_uid: str, setting: str) -> Reply:
    return _change(exchange, index_uid, {_name(setting): None})


def _name(setting: str) -> str:
    """`ranking-rules` is `rankingRules`."""
    first, *others = setting.split("-")
    name = first + "".join(map(str.capitalize, others))
    if name not in configuration.names():
        raise ApiError(
            "feature_not_enabled",
            f"`{setting}` is not enabled: this search engine does not have it",
        )
    return name


def _change(exchange: Exchange, index_uid: str, changes: dict[str, Any]) -> Reply:
    service: SearchService = exchange.app_state
    setting_checks.check(changes)
    return service.accept("settingsUpdate", index_uid, changes, orjson.dumps(changes))
