"""Refusals of sensitive acts: written to the audit log, so that an owner sees who tries what.

Written by a thread of its own, so that whoever is refused never waits for a writer; and bounded, so
that a crowd of refused requests does not fill the log. What was left out is counted in the next
entry. Requests without credentials are not entered, but a refused sign-in to an account is.
"""

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import structlog

from control.boundary.callers import Caller
from control.boundary.rules import Rule
from control.services import Services
from specserver import Exchange, Problem
from storage.errors import StorageError
from storage.events import audit

EVERY_S: Final = 60.0
"""How often the same user's refusal at the same operation is entered."""
USER_MAX: Final = 20
"""Entries about one user in that time."""
_REMEMBERED_MAX: Final = 10_000
_WAITING_MAX: Final = 1_000
_ACCOUNT: Final = "refused_account"
_ID: Final = re.compile(r"[a-z]{2,8}_[0-9A-HJKMNP-TV-Z]{26}")
_log = structlog.get_logger(__name__)


def name_account(exchange: Exchange, user_id: str, wrong: str) -> None:
    """A handler refuses somebody who claims to be this user, and what is wrong."""
    exchange.state[_ACCOUNT] = (user_id, wrong)


@dataclass
class _Seen:
    """Of one user: when the span began, how many entries it has, and when by operation."""

    began: float
    count: int = 0
    at: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


class RefusalLog:
    """Safe to share between threads; counted in this process."""

    def __init__(self, services: Services, clock: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._clock = clock
        self._seen: OrderedDict[str, _Seen] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="refusals")

    def note(self, exchange: Exchange, rule: Rule, problem: Problem, ip: str) -> None:
        if not self._services.settings.audit_refusals:
            return
        caller: Caller | None = exchange.principal
        account, wrong = exchange.state.get(_ACCOUNT, (None, None))
        is_sensitive = caller is not None and problem.status == HTTPStatus.FORBIDDEN
        if not (account or (is_sensitive and _is_sensitive(rule))):
            return
        user_id = account or (caller.user.id if caller else "")
        left_out = self._counted(user_id, exchange.operation.id)
        if left_out is None:
            return
        detail = {"code": problem.code, **({"wrong": wrong} if wrong else {})}
        detail |= {"left_out": left_out} if left_out else {}
        entry: dict[str, Any] = {
            "org_id": exchange.path["org_id"] if rule.in_org else None,
            "action": f"{rule.audit or exchange.operation.id}.refused",
            "actor_kind": caller.actor_kind if caller else "anonymous",
            "actor_id": caller.id if caller else None,
            "target": account or _target(exchange),
            "request_id": exchange.request_id,
            "ip": ip,
            "detail": detail | (caller.granted_by if caller else {}),
        }
        self._submit(entry)

    def flush(self) -> None:
        """Wait until everything noted is written."""
        done: Future[None] = self._thread.submit(lambda: None)
        done.result()

    def _counted(self, user_id: str, operation_id: str) -> int | None:
        """How many were left out since the last entry; None where this one is, too."""
        now = self._clock()
        with self._lock:
            seen = self._seen.pop(user_id, None) or _Seen(now)
            if len(self._seen) >= _REMEMBERED_MAX:
                self._seen.popitem(last=False)
            self._seen[user_id] = seen
            if now >= seen.began + EVERY_S:
                seen.began, seen.count = now, 0
            is_known = now < seen.at.get(operation_id, -EVERY_S) + EVERY_S
            if is_known or seen.count >= USER_MAX or self._waiting >= _WAITING_MAX:
                seen.left_out[operation_id] = seen.left_out.get(operation_id, 0) + 1
                return None
            seen.count += 1
            seen.at[operation_id] = now
            self._waiting += 1
            return seen.left_out.pop(operation_id, 0)

    def _submit(self, entry: dict[str, Any]) -> None:
        self._thread.submit(self._write, entry)

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            with self._services.database.write() as db:
                audit.append(db, **entry)
        except StorageError as error:
            _log.warning("refusal not audited", action=entry["action"], reason=error.detail)
        finally:
            with self._lock:
                self._waiting -= 1


def _is_sensitive(rule: Rule) -> bool:
    return rule.sensitive or rule.owner_only or rule.permission.endswith(":write")


def _target(exchange: Exchange) -> str | None:
    """The last record that the path names, if it is an id at all: nothing has checked it yet."""
    *_, last = ("", *(value for name, value in exchange.path.items() if name != "org_id"))
    return last if _ID.fullmatch(last) else None
