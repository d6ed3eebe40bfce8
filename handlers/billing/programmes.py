"""Credit programs: what organizations apply for, and the operator decides."""

from typing import Any

from control.policy import programmes as policy
from handlers import paging
from handlers.billing import credit_views as views
from handlers.billing import switch
from handlers.calls import OrgCall
from specserver import Conflict, Reply
from storage.billing import programmes

Body = dict[str, Any]


def list_applications(call: OrgCall, limit: int, cursor: str | None = None) -> Body:
    switch.prices(call)
    after = paging.after(call, cursor)
    found = programmes.page(call.db, call.org.id, limit=limit, after=after)
    return paging.page(call, found, views.application)


def apply(call: OrgCall, body: Body) -> Reply:
    switch.prices(call)
    _check(call, body["programme"])
    made = programmes.create(
        call.db,
        call.org.id,
        programme=body["programme"],
        applicant_id=call.caller.user.id,
        website=body.get("website"),
        statement=body["statement"],
    )
    call.audit(target=made.id, detail={"programme": made.programme})
    return Reply.created(views.application(made))


def _check(call: OrgCall, programme: str) -> None:
    last = programmes.latest(call.db, call.org.id, programme)
    status, decided_at = (None, None) if last is None else (last.status, last.decided_at)
    refused = policy.refusal(programme, status, decided_at, call.now)
    if refused is not None:
        code, detail = refused
        raise Conflict(detail, code=code)
