"""Owns the imports from Connexion: the few of its parts that specserver stands on."""

import warnings

from specserver.unused_imports import without

# Its HTTP clients, one of them for tests, templates of pages, and what serves another framework: a
# fifth of the time in which a small service starts.
_CLIENTS = ("httpx", "requests", "starlette.testclient")
_PAGES = ("jinja2", "starlette.templating")

with warnings.catch_warnings(), without((*_CLIENTS, *_PAGES), absent=("flask",)):
    warnings.simplefilter("ignore")
    from connexion.exceptions import InvalidSpecification, ResolverError
    from connexion.middleware import ConnexionMiddleware
    from connexion.middleware.abstract import SpecMiddleware
    from connexion.middleware.lifespan import LifespanMiddleware
    from connexion.middleware.main import API
    from connexion.resolver import RelativeResolver
    from connexion.security import (
        ApiKeySecurityHandler,
        BasicSecurityHandler,
        BearerSecurityHandler,
        SecurityHandlerFactory,
    )
    from connexion.spec import OpenAPISpecification

__all__ = [
    "API",
    "ApiKeySecurityHandler",
    "BasicSecurityHandler",
    "BearerSecurityHandler",
    "ConnexionMiddleware",
    "InvalidSpecification",
    "LifespanMiddleware",
    "OpenAPISpecification",
    "RelativeResolver",
    "ResolverError",
    "SecurityHandlerFactory",
    "SpecMiddleware",
]
