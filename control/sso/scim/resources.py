"""The SCIM resources that are served, with the attributes that are kept of them, and no others.

What a provider sends beside these is ignored, as roles, passwords and entitlements are.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Annotated, Any, Final

from pydantic import Field, field_validator
from scim2_models import (
    URN,
    AuthenticationScheme,
    Bulk,
    CaseExact,
    ChangePassword,
    ComplexAttribute,
    ETag,
    ExtensibleStringEnum,
    Filter,
    Meta,
    Mutability,
    Pagination,
    Patch,
    Reference,
    Required,
    Resource,
    ScimPolicy,
    ScimProvider,
    ServiceProviderConfig,
    Sort,
    Uniqueness,
)
from scim2_models.path import AttributeBinding

from control.sso.scim.people import NAME_LENGTH, Pushed
from storage.sso.scim_groups import ScimGroup
from storage.sso.scim_users import ScimUser, folded

TEXT_LENGTH: Final = 255
VALUES_MAX: Final = 20
"""Values of one attribute of a user."""
PAGE_MAX: Final = 200
BULK_OPERATIONS_MAX: Final = 100
BULK_BYTES_MAX: Final = 1_048_576
_ADDRESS: Final = re.compile(
    r"[0-9A-Za-z_+'&-]+([.][0-9A-Za-z_+'&-]+)*@[0-9A-Za-z]+(([.]|-+)[0-9A-Za-z]+)*"
)
_ADDRESS_LENGTH: Final = 254


def _short(value: Any) -> Any:
    """Of one line, and no longer than is kept."""
    if isinstance(value, str):
        if len(value) > TEXT_LENGTH:
            raise ValueError(f"must have at most {TEXT_LENGTH} characters")
        if any(unicodedata.category(each) in ("Cc", "Cs") for each in value):
            raise ValueError("must not contain control characters")
    elif isinstance(value, list) and len(value) > VALUES_MAX:
        raise ValueError(f"must have at most {VALUES_MAX} values")
    return value


class Name(ComplexAttribute):
    formatted: str | None = None
    family_name: str | None = None
    given_name: str | None = None

    _bounded = field_validator("formatted", "family_name", "given_name")(_short)


class Email(ComplexAttribute):
    class Type(ExtensibleStringEnum):
        work = "work"
        home = "home"
        other = "other"

    value: str | None = None
    type: Type | None = Field(None, examples=["work", "home", "other"])
    primary: bool | None = None

    _bounded = field_validator("value", "type")(_short)


class GroupOfUser(ComplexAttribute):
    value: Annotated[str | None, Mutability.read_only, CaseExact.true] = None
    ref: Annotated[Reference["Group"] | None, Mutability.read_only] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )
    display: Annotated[str | None, Mutability.read_only] = None


class User(Resource[Any]):
    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    """What the provider knows them by; in no two users alike, whatever the case."""
    name: Name | None = None
    display_name: str | None = None
    active: bool | None = None
    """Whether they are a member of the organization."""
    emails: list[Email] | None = None
    """The primary, work or first one is the address of the account; after that it stays."""
    groups: Annotated[list[GroupOfUser] | None, Mutability.read_only] = None

    _bounded = field_validator("user_name", "display_name", "external_id", "emails")(_short)


class GroupMember(ComplexAttribute):
    value: Annotated[str | None, Mutability.immutable, CaseExact.true] = None
    """The id of a user. Groups in groups are not supported."""
    ref: Annotated[Reference["User"] | None, Mutability.immutable] = Field(
        None, serialization_alias="$ref", validation_alias="$ref"
    )


class Group(Resource[Any]):
    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:Group")

    display_name: Annotated[str | None, Uniqueness.server, Required.true] = None
    members: list[GroupMember] | None = None

    _bounded = field_validator("display_name", "external_id")(_short)


def _compared(binding: AttributeBinding, value: str) -> str:
    return unicodedata.normalize("NFC", value) if binding.case_exact else folded(value)


def make_provider() -> ScimProvider:
    """What is announced, and which liberties of providers are taken as they mean them.

    Entra ID removes members by their `value` without a filter, and replaces addresses that are not
    there yet; all send attributes of which nothing is kept.
    """
    provider = ScimProvider(
        models=[User, Group],
        config=ServiceProviderConfig(
            patch=Patch(supported=True),
            bulk=Bulk(
                supported=True,
                max_operations=BULK_OPERATIONS_MAX,
                max_payload_size=BULK_BYTES_MAX,
            ),
            filter=Filter(supported=True, max_results=PAGE_MAX),
            change_password=ChangePassword(supported=False),
            sort=Sort(supported=True),
            etag=ETag(supported=True),
            pagination=Pagination(
                cursor=False,
                index=True,
                default_pagination_method=Pagination.DefaultPaginationMethod.index,
                default_page_size=100,
                max_page_size=PAGE_MAX,
            ),
            authentication_schemes=[
                AuthenticationScheme(
                    type=AuthenticationScheme.Type.oauthbearertoken,
                    name="SCIM token",
                    description="A token of the organization: Authorization: Bearer mscim_…",
                    primary=True,
                )
            ],
        ),
        policy=ScimPolicy(
            unknown=ScimPolicy.Unknown.ignore,
            remove_value_as_filter=ScimPolicy.RemoveValue.apply,
            unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
            comparison_key=_compared,
        ),
    )
    _announce_active(provider)
    return provider


def _announce_active(provider: ScimProvider) -> None:
    """It is always there, and cannot be removed; who creates a user without it means true."""
    for schema in provider.schemas:
        for attribute in schema.attributes or ():
            if attribute.name == "active":
                attribute.required = Required.true


def user_of(
    record: ScimUser, *, is_active: bool, groups: Iterable[tuple[str, str]] | None = None
) -> User:
    """`groups` are ids and names; None where nobody asked for them."""
    kept = record.attributes
    return User(
        id=record.user_id,
        external_id=record.external_id,
        user_name=record.user_name,
        name=Name(**kept["name"]) if kept.get("name") else None,
        display_name=kept.get("displayName"),
        emails=[Email(**each) for each in kept.get("emails") or ()] or None,
        active=is_active,
        groups=[
            GroupOfUser(value=group_id, ref=Reference(f"Groups/{group_id}"), display=name)
            for group_id, name in groups or ()
        ]
        or None,
        meta=_meta("User", record, f"{record.version}{'a' if is_active else 'i'}"),
    )


def group_of(record: ScimGroup) -> Group:
    """Without its members, which may be thousands."""
    return Group(
        id=record.id,
        external_id=record.external_id,
        display_name=record.display_name,
        meta=_meta("Group", record, str(record.version)),
    )


def members_of(user_ids: Iterable[str]) -> list[GroupMember]:
    return [GroupMember(value=one, ref=Reference(f"Users/{one}")) for one in user_ids]


def pushed_by(user: User) -> Pushed:
    """What is kept of what a provider says of somebody."""
    kept: dict[str, Any] = {
        "name": _kept_name(user.name),
        "displayName": user.display_name,
        "emails": [_kept(each) for each in user.emails or ()],
    }
    return Pushed(
        user_name=user.user_name or "",
        external_id=user.external_id,
        active=user.active,
        email=_address(user),
        shown_name=_shown(user),
        attributes={name: value for name, value in kept.items() if value},
    )


def _kept_name(name: Name | None) -> dict[str, str]:
    parts = ("formatted", "family_name", "given_name")
    found = {part: getattr(name, part, None) for part in parts}
    return {part: value for part, value in found.items() if value}


def _kept(email: Email) -> dict[str, Any]:
    found = {"value": email.value, "type": email.type, "primary": email.primary}
    return {name: value for name, value in found.items() if value is not None}


def _address(user: User) -> str | None:
    """The primary address, one for work, the first, or the user name, if it is one."""
    ranked = sorted(
        user.emails or (), key=lambda each: (not each.primary, each.type != Email.Type.work)
    )
    for found in (*(each.value for each in ranked), user.user_name):
        if found and len(found) <= _ADDRESS_LENGTH and _ADDRESS.fullmatch(found):
            return found.lower()
    return None


def _shown(user: User) -> str:
    name = user.name or Name()
    full = " ".join(filter(None, (name.given_name, name.family_name)))
    return (user.display_name or name.formatted or full).strip()[:NAME_LENGTH]


def _meta(kind: str, record: ScimUser | ScimGroup, version: str) -> Meta:
    return Meta(
        resource_type=kind,
        created=record.created_at,
        last_modified=record.updated_at,
        version=f'W/"{version}"',
    )
