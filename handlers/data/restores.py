"""Handlers of the tag Restores: what became of backups that were restored."""

from typing import Any

from handlers import paging
from handlers.calls import OrgCall
from handlers.data import progress
from handlers.data.restore_views import restore as view
from storage.data import restores
from storage.data.restores import Restore
from storage.instances.instances import Instance

Body = dict[str, Any]


def list_(call: OrgCall, instance: Instance, limit: int, cursor: str | None = None) -> Body:
    found = restores.page(call.db, instance, limit=limit, after=paging.after(call, cursor))
    return paging.page(call, found, view)


def get(call: OrgCall, instance: Instance, restore: Restore) -> Body:
    return {**view(restore), "progress": progress.of_restore(call, instance, restore)}
