"""A request's pipeline: who is calling, may they, replay, rate limit, audit, the transaction."""

from control.boundary.audited_changes import AuditedChanges
from control.boundary.authorization import mfa_required
from control.boundary.call import Call
from control.boundary.callers import Caller
from control.boundary.pipeline import make_boundary
from control.boundary.rules import DocumentRefused, check_document

__all__ = [
    "AuditedChanges",
    "Call",
    "Caller",
    "DocumentRefused",
    "check_document",
    "make_boundary",
    "mfa_required",
]
