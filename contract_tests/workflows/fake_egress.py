"""What connections to the instances of a fake cell have sent out."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

Answer = dict[str, Any]


class FakeEgress:
    """`metered` are the instances whose connections are reported, as they were asked for last."""

    def __init__(self) -> None:
        self.before: Callable[[str, str], None] = lambda _action, _instance_id: None
        self.egress: dict[str, Answer] = {}
        self.metered: set[str] = set()
        self.sent_bytes: defaultdict[datetime, dict[str, int]] = defaultdict(dict)

    def sent_in(self, hour: datetime) -> list[Answer]:
        self.before("sent_in", "")
        found = sorted(self.sent_bytes[hour].items())
        return [{"instance_id": one, "bytes_out": sent} for one, sent in found]

    def collect_egress(self, instance_ids: Collection[str], taken: Collection[str]) -> list[Answer]:
        self.before("collect_egress", "")
        self.metered = set(instance_ids)
        self.egress = {name: each for name, each in self.egress.items() if name not in taken}
        return list(self.egress.values())

    def sends_out(self, name: str, *reports: Mapping[str, Any]) -> None:
        """What its gateway has written at once."""
        span = {"since": "2026-11-21T09:00:00.000Z", "until": "2026-11-21T09:00:10.000Z"}
        self.egress[name] = {"name": name, **span, "reports": [dict(each) for each in reports]}
