"""openapi-core's validators, which here derive what they need of the document once.

As they come they make a checker of formats, a caster and a validator anew for each header of each
exchange, which was a third of what the tests of the API took.
"""

import sys
import typing
from functools import cache, lru_cache
from typing import Any, Final

from jsonschema_path import SchemaPath
from openapi_core import V31RequestValidator, V31ResponseValidator
from openapi_core.casting.schemas import oas31_types_caster
from openapi_core.casting.schemas.casters import SchemaCaster
from openapi_core.casting.schemas.factories import SchemaCastersFactory
from openapi_core.templating.paths.finders import APICallPathFinder
from openapi_core.validation.schemas import oas31_schema_validators_factory
from openapi_core.validation.schemas.factories import DialectSchemaValidatorsFactory
from openapi_core.validation.schemas.validators import SchemaValidator

# More than the document has places.
_PLACES: Final = 1_000_000

if sys.version_info < (3, 12):
    # For each isinstance of a protocol, of which there are hundreds in an exchange.
    typing._get_protocol_attrs = cache(typing._get_protocol_attrs)  # type: ignore[attr-defined]


class _Validators(DialectSchemaValidatorsFactory):
    """The options are the same for all of them."""

    def __init__(self) -> None:
        made = oas31_schema_validators_factory
        super().__init__(
            made.schema_validator_cls, made.default_jsonschema_dialect_id, made.format_checker
        )
        self._made: dict[tuple[Any, ...], SchemaValidator] = {}

    def create(
        self, spec: SchemaPath, schema: SchemaPath, *given: Any, **options: Any
    ) -> SchemaValidator:
        if schema.parts not in self._made:
            self._made[schema.parts] = super().create(spec, schema, *given, **options)
        return self._made[schema.parts]


class _Casters(SchemaCastersFactory):
    def __init__(self, validators: _Validators) -> None:
        super().__init__(validators, oas31_types_caster)
        self._made: dict[tuple[Any, ...], SchemaCaster] = {}

    def create(
        self, spec: SchemaPath, schema: SchemaPath, *given: Any, **options: Any
    ) -> SchemaCaster:
        if schema.parts not in self._made:
            self._made[schema.parts] = super().create(spec, schema, *given, **options)
        return self._made[schema.parts]


class _Finder(APICallPathFinder):
    """Asked for the same operation by the request and its response."""

    @lru_cache(maxsize=64)  # noqa: B019 -- there are two, which stay
    def find(self, method: str, name: str) -> Any:
        return super().find(method, name)


def validators(
    document: dict[str, Any], media_types: dict[str, Any]
) -> tuple[V31RequestValidator, V31ResponseValidator]:
    """Of requests, and of responses; `media_types` reads what is neither JSON nor text."""
    spec = SchemaPath.from_dict(document, resolved_cache_maxsize=_PLACES)
    schemas = _Validators()
    finder = _Finder(spec)
    shared: dict[str, Any] = {
        "schema_validators_factory": schemas,
        "schema_casters_factory": _Casters(schemas),
        "path_finder_cls": lambda _spec, **_options: finder,
    }
    responses = V31ResponseValidator(spec, extra_media_type_deserializers=media_types, **shared)
    return V31RequestValidator(spec, **shared), responses
