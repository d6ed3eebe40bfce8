"""How to connect to a source: read from what was sent, and refused where it says too much."""

import ssl
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from specserver import Invalid

Tls = Literal["verify", "require", "off"]
PROTOCOLS = {
    "postgres": (("postgres", "postgresql"), 5432),
    "mysql": (("mysql", "mariadb"), 3306),
    "resp": (("redis", "rediss", "valkey", "valkeys"), 6379),
}
"""What the target speaks: how a URI of such a source begins, and its port unless it says."""
NAME_CHARACTERS_MAX = 255
# What changes nothing that matters here; whatever else is in a URI is refused and not passed over.
WITHOUT_EFFECT = {
    *("sslmode", "sslrootcert", "channel_binding", "connect_timeout", "application_name"),
    *("gssencmode", "target_session_attrs", "options", "pgbouncer", "pool_timeout"),
    # As hosters and drivers of MySQL and MariaDB write them.
    *("ssl-mode", "ssl_mode", "sslMode", "ssl", "ssl-ca", "ssl_ca", "useSSL", "requireSSL", "tls"),
    *("charset", "characterEncoding", "useUnicode", "serverTimezone", "timezone", "parseTime"),
    *("allowPublicKeyRetrieval", "connectTimeout", "socketTimeout", "reconnect", "autoReconnect"),
}


@dataclass(frozen=True)
class SourceUri:
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    tls: Tls
    ca_pem: str | None = None
    protocol: str = "postgres"

    @classmethod
    def parse(cls, body: dict[str, Any], protocol: str) -> Self:
        """Raises Invalid, which never has the URI in its text."""
        schemes, usual_port = PROTOCOLS[protocol]
        example = f"{schemes[-1]}://user:password@host"
        try:
            parts = urlsplit(body["uri"])
            host, port = parts.hostname or "", parts.port or usual_port
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
            database = unquote(parts.path.removeprefix("/")) or (
                "" if protocol == "mysql" else user
            )
        except ValueError as error:
            raise Invalid("uri: the host or the port is not valid") from error
        if parts.scheme not in schemes:
            told = "the engine of the source must be that of the instance"
            raise Invalid(f"uri: {told}: {' or '.join(schemes)}")
        if not host or "," in parts.netloc:
            raise Invalid(f"uri: must have one host, such as {example}")
        if not user and protocol != "resp":
            raise Invalid("uri: must name the user to log in as")
        for name, text in (("host", host), ("user", user), ("database", database)):
            if len(text) > NAME_CHARACTERS_MAX or not text.isprintable():
                raise Invalid(f"uri: the {name} is not valid")
        if not password.isprintable():
            raise Invalid("uri: the password is not valid")
        for name, _ in parse_qsl(parts.query, keep_blank_values=True):
            if name not in WITHOUT_EFFECT:
                raise Invalid(f"uri: the parameter {name[:40]} is not supported; leave it out")
        tls, ca_pem = body.get("tls", "verify"), body.get("ca_pem")
        _check_authorities(ca_pem)
        return cls(host, port, user, password, database, tls, ca_pem, protocol)

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def context(self) -> ssl.SSLContext | None:
        """None where TLS is off."""
        if self.tls == "off":
            return None
        context = ssl.create_default_context(cadata=self.ca_pem)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.tls == "require":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _check_authorities(pem: str | None) -> None:
    if pem is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, TypeError, ValueError) as error:
        raise Invalid("ca_pem: must contain PEM certificates") from error
