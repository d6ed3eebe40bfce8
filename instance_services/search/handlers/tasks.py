"""Owns the operations of the tag Tasks."""

from typing import Any

import orjson

from instance_services.search import task_filters
from instance_services.search.boundary import SearchService
from instance_services.search.callers import KeyBearer
from instance_services.search.errors import ApiError
from specserver import Exchange, Reply


def list_(exchange: Exchange, **given: Any) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    wanted = task_filters.of(given, exchange.principal)
    return service.queue.page(wanted, **task_filters.page_of(given))


def get(exchange: Exchange, task_uid: int) -> dict[str, Any]:
    service: SearchService = exchange.app_state
    caller: KeyBearer = exchange.principal
    found = service.queue.get(task_uid)
    if found is None or not _is_for(caller, found["indexUid"]):
        raise ApiError("task_not_found", f"there is no task `{task_uid}`")
    return found


def cancel(exchange: Exchange, **given: Any) -> Reply:
    reply = _change(exchange, "taskCancelation", "canceledTasks", given)
    return Reply(200, reply.body)


def delete(exchange: Exchange, **given: Any) -> Reply:
    reply = _change(exchange, "taskDeletion", "deletedTasks", given)
    return Reply(200, reply.body)


def _change(exchange: Exchange, kind: str, member: str, given: dict[str, Any]) -> Reply:
    service: SearchService = exchange.app_state
    if not any(value is not None for value in given.values()):
        raise ApiError(
            "missing_task_filters", "say which tasks: uids, statuses, types, indexUids or times"
        )
    uids = service.queue.uids(task_filters.of(given, exchange.principal))
    details = {
        "matchedTasks": len(uids),
        member: None,
        "originalFilter": "?" + exchange.request.query_string,
    }
    return service.accept(kind, None, details, orjson.dumps({"uids": uids}))


def _is_for(caller: KeyBearer, index_uid: str | None) -> bool:
    return not caller.is_limited if index_uid is None else caller.may_use(index_uid)
