"""Metrics of an organization's instances, for Prometheus and whatever else scrapes them."""

from functools import partial
from typing import Final

from control.policy.plans import PLANS
from handlers.calls import OrgCall
from handlers.events import exposition
from handlers.events.exposition import ExpositionFormat
from handlers.events.metric_families import FAMILIES, Moment
from specserver import Reply
from storage.instances import readings

PAGE: Final = 1_000
"""Rows of instances that one step reads. A few hundred instances need one step for all families."""

Place = tuple[int, str]
"""A family, and the instance after which it goes on."""


def scrape(call: OrgCall) -> Reply:
    form = exposition.chosen(call.exchange.request.headers.get("accept"))
    return call.streamed(partial(_told, form), (0, ""), form.media_type, "metrics.txt")


def _told(form: ExpositionFormat, call: OrgCall, place: Place) -> tuple[str, Place | None]:
    """What belongs to a family is together, so each is read on its own, with what it needs."""
    at = Moment(call.now, PLANS[call.org.plan].pitr_days)
    (number, after), texts, room = place, list[str](), PAGE
    while number < len(FAMILIES) and room > 0:
        family = FAMILIES[number]
        if not after:
            texts.append(form.head(family.naming))
        of = (call.db, call.org.id, family.columns)
        found = readings.page(*of, scope=call.scope, limit=room, after=after or None)
        texts.append(exposition.lines(family.naming, family.samples(found.items, at)))
        room -= len(found.items)
        number, after = (number, found.next_after) if found.next_after else (number + 1, "")
    if number < len(FAMILIES):
        return "".join(texts), (number, after)
    return "".join([*texts, form.end]), None
