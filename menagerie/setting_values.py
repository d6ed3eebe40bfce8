"""Which values settings may have, where the type alone does not say; and words for those refused.

Slow imports stand in the functions: every part reads the settings, and few set these.
"""

import ipaddress
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from clients import wording

# What a pattern lets in, in words: a pattern itself tells few people that.
ALLOWED: Final = {
    "acme_directory": "a URL that begins with https://, or empty",
    "backup_copy_store_url": "a URL that begins with file:///, s3://, gs:// or az://, or empty",
    "backup_store_url": "a URL that begins with file:///, s3://, gs:// or az://, or empty",
    "gateway_mysql_version": "a version that begins with a digit, of at most 61 characters",
    "region": "a lowercase letter and up to 30 letters, digits and hyphens",
}


def refusals(error: ValidationError) -> str:
    """What is wrong with which setting, in one line."""
    return "; ".join(_refusal(dict(found)) for found in error.errors())


def _refusal(found: dict[str, Any]) -> str:
    name = str(found["loc"][0]) if found["loc"] else ""
    if found["type"] == "string_pattern_mismatch" and name in ALLOWED:
        return f"{name}: must be {ALLOWED[name]}"
    return f"{name}: {wording.refusal(found)}" if name else wording.refusal(found)


def as_list(given: Any, example: str) -> Any:
    """A list as it is, or as JSON, which the environment has it in."""
    if isinstance(given, str):
        try:
            given = json.loads(given or "[]")
        except ValueError:
            given = None
    if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
        raise ValueError(f'must be a list such as ["{example}"]')
    return given


def check_network(text: str) -> None:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not an address or a network such as 10.0.0.0/8") from None


def check_name_server(text: str) -> None:
    from control.workflows.network.dns import DnsResolver  # noqa: PLC0415 -- see above

    try:
        DnsResolver([text])
    except ValueError:
        raise ValueError(f"{text!r} is not an address such as 9.9.9.9 or [::1]:5353") from None


def check_base_url(url: str) -> None:
    if url:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be a URL that begins with https:// or http:// and has a host")


def check_issuer(url: str) -> None:
    """As it stands in tokens, to the letter; without TLS only on this machine, for development."""
    try:
        parts = urlsplit(url)
        local = parts.hostname is not None and _is_loopback(parts.hostname)
        usable = parts.hostname and parts.port != 0 and "@" not in parts.netloc
        beyond = parts.query or parts.fragment or url.endswith("/") or not url.isprintable()
    except ValueError:
        local, usable, beyond = False, None, ""
    schemes = {"https", "http"} if local else {"https"}
    if not usable or beyond or " " in url or parts.scheme not in schemes:
        raise ValueError(
            f"{url!r} is not the URL of an issuer such as https://gitlab.example.com, without a"
            " slash at its end (http:// only for this machine)"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_mail_url(url: str) -> None:
    """The URL is not repeated: it may hold a password."""
    if not url:
        return
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"smtp", "smtps"} and parts.hostname and parts.port != 0
        beyond = parts.path.strip("/") or parts.query or parts.fragment
    except ValueError:
        usable, beyond = None, ""
    if not usable or beyond or not url.isprintable() or " " in url:
        raise ValueError(
            "must be a URL such as smtps://user:password@mail.example.com; in user and password,"
            " / ? # @ and spaces are written %2F %3F %23 %40 %20"
        )


def check_mail_sender(sender: str) -> None:
    from email.utils import getaddresses  # noqa: PLC0415 -- see above

    found = getaddresses([sender])
    one = len(found) == 1 and re.fullmatch(r"[^@\s<>]+@[^@\s<>]+", found[0][1])
    if not one or not sender.isprintable() or "=?" in sender:
        raise ValueError("must be one address such as Databases <databases@example.com>")


def check_agreement(path: Path) -> None:
    from control.policy.agreements import Agreement  # noqa: PLC0415 -- see above

    _check_file(path, Agreement.of)


def check_public_keys(path: Path) -> None:
    from control.policy.leak_reports import read_keys  # noqa: PLC0415 -- see above

    _check_file(path, read_keys)


def check_price_list(path: Path) -> None:
    from control.policy import price_lists  # noqa: PLC0415 -- see above

    _check_file(path, price_lists.read)


def check_invoice_issuer(path: Path) -> None:
    from control.policy import issuers  # noqa: PLC0415 -- see above

    _check_file(path, issuers.read)


def check_stripe_key(path: Path) -> None:
    _check_secret(path, ("sk_", "rk_"), "a secret or restricted API key of Stripe")


def check_stripe_webhook_secret(path: Path) -> None:
    _check_secret(path, ("whsec_",), "the signing secret of a webhook at Stripe")


def _check_secret(path: Path, begins: tuple[str, ...], name: str) -> None:
    def read(text: str) -> None:
        """What is in the file is not repeated."""
        if not text.strip().startswith(begins) or len(text.split()) != 1:
            raise ValueError(f"must hold {name}, which begins with {' or '.join(begins)}")

    _check_file(path, read)


def checked_file(path: str, check: Callable[[Path], None]) -> str:
    """The whole path of a file that is as it should be; empty where none is named."""
    if not path:
        return ""
    place = Path(path).expanduser()
    check(place)
    return str(place.resolve())


def _check_file(path: Path, read: Callable[[str], object]) -> None:
    """Said at the start, with the name of the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text in UTF-8") from None
    try:
        read(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_database_url(url: str) -> None:
    """The URL is not repeated: it may hold a password."""
    if url:
        from sqlalchemy.engine.url import make_url  # noqa: PLC0415 -- see above
        from sqlalchemy.exc import ArgumentError  # noqa: PLC0415 -- see above

        try:
            backend = make_url(url).get_backend_name()
        except (ArgumentError, ValueError):
            backend = ""
        if backend not in {"postgresql", "sqlite"}:
            raise ValueError(
                "must be a URL such as postgresql://user:password@host:5432/name or "
                "sqlite:////folder/menagerie.db"
            )


def check_rate_storage(where: str) -> None:
    if where in {"memory", "database"}:
        return
    from limits.errors import ConfigurationError  # noqa: PLC0415 -- see above

    from control.boundary.rates import check_storage  # noqa: PLC0415 -- see above

    try:
        check_storage(where)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def check_copy_store(second: str, first: str) -> None:
    """Neither is within the other: who removes from the one would remove from both."""
    one, other = (f"{url.rstrip('/')}/" for url in (second, first))
    if second and (one.startswith(other) or other.startswith(one)):
        raise ValueError(
            "backup_copy_store_url: must be another store than backup_store_url, and neither within"
            " the other"
        )


def check_recipient(recipient: str) -> None:
    """Said at the start, and not by the first backup."""
    if not recipient:
        return
    import pyrage  # noqa: PLC0415 -- every part reads the settings

    try:
        pyrage.x25519.Recipient.from_str(recipient)
    except pyrage.RecipientError as error:
        raise ValueError(f"{recipient} is no recipient as age-keygen prints it (age1…)") from error
