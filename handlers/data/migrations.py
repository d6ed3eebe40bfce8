"""Handlers of the tag Migrations: data from elsewhere, on its way into instances."""

from typing import Any

from control.policy import migrations as rules
from control.policy.violations import refuse
from control.work import Workflow
from control.workflows.data import migrations as acts
from handlers import paging
from handlers.calls import OrgCall
from handlers.data import migration_views as views
from handlers.instances import one_time
from specserver import Conflict, Reply
from storage.data import migrations
from storage.data.migrations import Migration
from storage.instances.instances import Instance

Body = dict[str, Any]
# What is in a source is run as the owner of the database, and may make a login that stays.
AS_THE_OWNER = "credentials:reveal"


def list_(call: OrgCall, limit: int, cursor: str | None = None, status: str | None = None) -> Body:
    after = paging.after(call, cursor)
    found = migrations.page_of_org(
        call.db, call.org.id, scope=call.scope, limit=limit, after=after, status=status
    )
    return paging.page(call, found, views.listed)


def list_in_instance(
    call: OrgCall, instance: Instance, limit: int, cursor: str | None = None
) -> Body:
    found = migrations.page(call.db, instance, limit=limit, after=paging.after(call, cursor))
    return paging.page(call, found, views.listed)


def create(call: OrgCall, instance: Instance, body: Body) -> Reply:
    call.require(AS_THE_OWNER, instance.place)
    instance.check_running("migrate into")
    if instance.engine not in rules.TARGETS:
        raise Conflict(f"nothing can be migrated into a {instance.engine} instance")
    refuse(rules.check_request(instance.engine, body), "the migration is invalid in {} places")
    migrations.check_free(call.db, instance, "start another migration into")
    chosen = {"mode": body.get("mode", "copy"), "dry_run": body.get("dry_run", False)}
    by = call.caller.id
    made = migrations.request(call.db, instance, source=body["source"], requested_by=by, **chosen)
    call.audit(target=made.id, detail={"instance": instance.id, **body})
    _start(call, acts.begin, instance, made)
    sent_to = _source_url(call, instance, made)
    source = {"source_url": sent_to["url"], "source_url_expires_at": sent_to["expires_at"]}
    base = f"/v1/orgs/{call.org.id}/instances/{instance.id}/migrations"
    return Reply.created({**views.whole(made), **source}, f"{base}/{made.id}")


def get(call: OrgCall, instance: Instance, migration: Migration) -> Body:  # noqa: ARG001 - of its path
    return views.whole(migration)


def source_url(call: OrgCall, instance: Instance, migration: Migration) -> Body:
    call.require(AS_THE_OWNER, instance.place)
    migration.check_awaits_source()
    call.audit(target=migration.id, detail={"instance": instance.id})
    return _source_url(call, instance, migration)


def cancel(call: OrgCall, instance: Instance, migration: Migration) -> Reply:
    migration.cancel()
    call.audit(target=migration.id, detail={"instance": instance.id})
    _start(call, acts.cancel, instance, migration)
    return Reply.accepted(views.whole(migration))


def cutover(
    call: OrgCall, instance: Instance, migration: Migration, body: Body | None = None
) -> Reply:
    asked = body or {}
    refuse(rules.check_cutover(instance.engine, asked))
    migration.cut_over(asked.get("keep_way_back_s", 0), call.now)
    call.audit(target=migration.id, detail={"instance": instance.id, **asked})
    _start(call, acts.cutover, instance, migration)
    return Reply.accepted(views.whole(migration))


def _start(call: OrgCall, started: Workflow, instance: Instance, migration: Migration) -> None:
    lane = acts.lane(instance.id)
    call.start(started, instance, lane=lane, migration_id=migration.id)


def _source_url(call: OrgCall, instance: Instance, migration: Migration) -> Body:
    ttl_s, claims = rules.SOURCE_URL_TTL_S, {"migration_id": migration.id}
    return one_time.url(call, instance, "migration_source", "PUT", ttl_s=ttl_s, **claims)
