"""A Stripe account on the loopback, by the public description of Stripe's API.

It takes what that has, and nothing else: form bodies of known members, a key under which something
is done once, and an invoice's states (draft, open, paid, void). All that was asked is kept.
"""

import functools
import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from control.policy.payments import StripeAccount

API_KEY = "sk_test_51Nxyz0Kd2eZvKYlo2C0AbcdefghijKlmnop"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
Form = dict[str, str]
_KEPT: list[AbstractContextManager["LoopbackStripe"]] = []
KNOWN = {
    "customers": {"name", "email", "metadata[org_id]"},
    "invoices": {
        *("customer", "currency", "collection_method", "description", "due_date"),
        *("metadata[invoice_id]", "metadata[number]"),
        *("pending_invoice_items_behavior", "auto_advance"),
    },
    "invoiceitems": {"customer", "invoice", "amount", "currency", "description"},
    "finalize": {"auto_advance"},
    "credit_notes": {"invoice", "amount", "refund_amount"},
    "void": set[str](),
    "pay": {"paid_out_of_band"},
}


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    form: Form
    key: str | None


class Refused(Exception):  # noqa: N818 -- an answer
    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.told = status, {"error": {"type": kind, "message": message}}


def invalid(message: str) -> Refused:
    return Refused(400, "invalid_request_error", message)


@dataclass
class LoopbackStripe:
    """`broken` is how many of the next requests are done, but not answered.

    It is `down` once it has done something at the path `down_after`.
    """

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    invoices: dict[str, dict[str, Any]] = field(default_factory=dict)
    customers: dict[str, Form] = field(default_factory=dict)
    credit_notes: list[Form] = field(default_factory=list)
    broken: int = 0
    down: bool = False
    down_after: str = ""
    _done: dict[str, tuple[Asked, dict[str, Any]]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def account(self) -> StripeAccount:
        return StripeAccount(API_KEY, SECRET, api=self.url)

    def posts(self) -> list[str]:
        return [one.path for one in self.asked if one.method == "POST"]

    @property
    def one(self) -> dict[str, Any]:
        (found,) = self.invoices.values()
        return found

    def forget(self) -> None:
        """The keys, as after a day."""
        self._done.clear()

    def answer(self, asked: Asked, bearer: str | None) -> dict[str, Any]:
        with self._lock:
            self.asked.append(asked)
            if bearer != f"Bearer {API_KEY}":
                raise Refused(401, "authentication_error", "Invalid API Key provided")
            if self.down:
                raise Refused(503, "api_error", "unavailable")
            if asked.method == "GET":
                return self._invoice(asked.path.removeprefix("/v1/invoices/"))
            if not asked.key or len(asked.key) > 255:
                raise invalid("the tests want a key for whatever is changed")
            if asked.key in self._done:
                before, told = self._done[asked.key]
                if (before.path, before.form) != (asked.path, asked.form):
                    raise Refused(400, "idempotency_error", "Keys for idempotent requests differ")
                return told
            told = self._do(asked)
            self._done[asked.key] = asked, dict(told)
            self.down = asked.path == self.down_after
            return told

    def _do(self, asked: Asked) -> dict[str, Any]:
        path = asked.path.removeprefix("/v1/")
        acts: list[tuple[str, str, Callable[..., dict[str, Any]]]] = [
            ("customers", "customers", self._customer),
            ("invoices", "invoices", self._draft),
            ("invoiceitems", "invoiceitems", self._item),
            ("credit_notes", "credit_notes", self._credit),
            (r"invoices/(\w+)/finalize", "finalize", self._finalize),
            (r"invoices/(\w+)/void", "void", self._void),
            (r"invoices/(\w+)/pay", "pay", self._pay),
        ]
        for pattern, name, act in acts:
            if (found := re.fullmatch(pattern, path)) is not None:
                if unknown := asked.form.keys() - KNOWN[name]:
                    raise invalid(f"Received unknown parameters: {sorted(unknown)}")
                return act(asked.form, *found.groups())
        raise Refused(404, "invalid_request_error", f"Unrecognized request URL (POST: {path})")

    def _customer(self, form: Form) -> dict[str, Any]:
        made = f"cus_{len(self.customers) + 1:06}"
        self.customers[made] = form
        return {"id": made, "object": "customer"}

    def _draft(self, form: Form) -> dict[str, Any]:
        if form["customer"] not in self.customers:
            raise invalid(f"No such customer: {form['customer']!r}")
        if form["collection_method"] == "send_invoice":
            if not self.customers[form["customer"]].get("email"):
                raise invalid("Missing email: invoices that are sent need one")
            if int(form["due_date"]) <= int(form.get("now", "0")):
                raise invalid("due_date must be in the future")
        made = f"in_{len(self.invoices) + 1:06}"
        told = {"id": made, "object": "invoice", "status": "draft", "total": 0, "amount_paid": 0}
        told |= {"currency": form["currency"], "metadata": {}, "hosted_invoice_url": None}
        told["metadata"] = {"invoice_id": form["metadata[invoice_id]"]}
        told["asked_for"] = form
        self.invoices[made] = told
        return told

    def _item(self, form: Form) -> dict[str, Any]:
        of = self._invoice(form["invoice"])
        if of["status"] != "draft" or of["currency"] != form["currency"]:
            raise invalid("The invoice is not a draft of that currency")
        of["total"] += int(form["amount"])
        return {"id": "ii_000001", "object": "invoiceitem"}

    def _finalize(self, form: Form, invoice_id: str) -> dict[str, Any]:
        of = self._in(invoice_id, "draft")
        if form != {"auto_advance": "true"}:
            raise invalid("the tests want it to advance by itself")
        of |= {"status": "open", "amount_due": of["total"]}
        of["hosted_invoice_url"] = f"https://invoice.stripe.com/i/{invoice_id}"
        return of

    def _credit(self, form: Form) -> dict[str, Any]:
        of, amount = self._invoice(form["invoice"]), int(form["amount"])
        if of["status"] == "open" and amount <= of["amount_due"] and "refund_amount" not in form:
            of["amount_due"] -= amount
        elif of["status"] != "paid" or form.get("refund_amount") != form["amount"]:
            raise invalid("The credit note does not fit the invoice")
        self.credit_notes.append(form)
        return {"id": "cn_000001", "object": "credit_note"}

    def _void(self, _form: Form, invoice_id: str) -> dict[str, Any]:
        of = self._in(invoice_id, "open")
        of["status"] = "void"
        return of

    def _pay(self, form: Form, invoice_id: str) -> dict[str, Any]:
        of = self._in(invoice_id, "open")
        if form != {"paid_out_of_band": "true"}:
            raise invalid("nobody has a card here")
        of["status"] = "paid"
        return of

    def _invoice(self, invoice_id: str) -> dict[str, Any]:
        if invoice_id not in self.invoices:
            raise Refused(404, "invalid_request_error", f"No such invoice: {invoice_id!r}")
        return self.invoices[invoice_id]

    def _in(self, invoice_id: str, status: str) -> dict[str, Any]:
        of = self._invoice(invoice_id)
        if of["status"] != status:
            raise invalid(f"The invoice is {of['status']}")
        return of

    def event(self, kind: str, event_id: str = "evt_1", **changed: Any) -> dict[str, Any]:
        """As Stripe sends one about the one invoice that there is."""
        of = dict(self.one)
        if kind == "invoice.paid":
            of |= {"status": "paid", "amount_paid": of["amount_due"]}
            self.one["status"] = "paid"
        shown = {name: value for name, value in of.items() if name != "asked_for"}
        about = {"object": {**shown, "lines": {"data": [{"amount": 1}]}, **changed}}
        head = {"id": event_id, "object": "event", "api_version": "2026-10-28.endive"}
        return {**head, "type": kind, "created": 1, "livemode": False, "data": about}


def signature(body: bytes, *, secret: str = SECRET, at: float | None = None) -> str:
    moment = int(time.time() if at is None else at)
    signed = hmac.digest(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
    return f"t={moment},v1={signed.hex()}"


@functools.cache
def for_ever() -> LoopbackStripe:
    """One that is there until the tests end; what is asked under other keys is apart."""
    made = stripe_account()
    _KEPT.append(made)
    return made.__enter__()


@contextmanager
def stripe_account() -> Iterator[LoopbackStripe]:
    account = LoopbackStripe()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            form = dict(parse_qsl(self.rfile.read(length).decode(), keep_blank_values=True))
            key = self.headers.get("Idempotency-Key")
            asked = Asked(self.command, self.path, form, key)
            bearer = self.headers.get("Authorization")
            try:
                status, told = 200, account.answer(asked, bearer)
            except Refused as refused:
                status, told = refused.status, refused.told
            if account.broken:
                account.broken -= 1
                self.close_connection = True
                return
            sent = json.dumps({k: v for k, v in told.items() if k != "asked_for"}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.send_header("Request-Id", "req_1")
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_of: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    account.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield account
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
