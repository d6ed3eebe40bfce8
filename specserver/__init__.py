"""Owns the public names of specserver, an OpenAPI 3.1 server runtime on Connexion."""

from specserver.app import App
from specserver.calls import HandlerMismatchError
from specserver.document import Document, DocumentInvalid
from specserver.exchange import Exchange
from specserver.operations import HandlerResolver, Operation
from specserver.plan import Boundary
from specserver.problems import (
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    PaymentRequired,
    PollAgain,
    Problem,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
    render_problem,
)
from specserver.replies import Reply
from specserver.requests import Headers, Request

__all__ = [
    "App",
    "BadRequest",
    "Boundary",
    "Conflict",
    "Document",
    "DocumentInvalid",
    "Exchange",
    "Forbidden",
    "Gone",
    "HandlerMismatchError",
    "HandlerResolver",
    "Headers",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "Operation",
    "PaymentRequired",
    "PollAgain",
    "Problem",
    "Reply",
    "Request",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "UnsupportedMediaType",
    "render_problem",
]
