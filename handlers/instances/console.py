"""Console: a one-time URL to the page that runs SQL on an instance."""

from control.policy.catalogue import ENGINES
from handlers.calls import OrgCall
from handlers.instances import one_time
from specserver import Reply
from storage.errors import StateConflict
from storage.instances.instances import Instance


def open_(call: OrgCall, instance: Instance) -> Reply:
    engine = ENGINES[instance.engine]
    if "console" not in engine.features:
        raise StateConflict(f"{engine.name} has no SQL console")
    instance.check_running("open the console of")
    one_time.check_reach(call, instance, "the console")
    call.audit(target=instance.id, detail={"name": instance.name})
    return Reply.created(one_time.url(call, instance, "console", "GET", name=instance.name))
