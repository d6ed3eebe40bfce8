"""A custom domain from its order to clients that trust the ACME server's root and nothing else."""

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from contract_tests.cell.certificates.pebble import Pebble, needed
from contract_tests.cell.rig import until
from contract_tests.end_to_end.installation import Installation, order, reveal
from contract_tests.kept_port import KeptPort
from contract_tests.name_server import NameServer


@pytest.fixture
def names() -> Iterator[NameServer]:
    made = NameServer()
    made.start()
    yield made
    made.close()


@pytest.fixture
def pebble(tmp_path: Path, names: NameServer) -> Iterator[Pebble]:
    needed()
    made = Pebble(tmp_path, names=names.address)
    yield made
    made.close()


def verified(installation: Installation, instance_id: str, hostname: str) -> str:
    """The path of the instance's domains, of which this one is to be verified."""
    path = f"/v1/orgs/{installation.endpoints['org_id']}/instances/{instance_id}/domains"
    with installation.api() as api:
        made = api.post(path, json={"hostname": hostname})
        assert made.status_code == 201, made.text
        asked = api.post(f"{path}/{made.json()['id']}/actions/verify")
        assert asked.status_code == 202, asked.text
    return path


def certified(installation: Installation, path: str) -> dict[str, Any]:
    """The one domain, once it shows that the ACME server's certificate is in force."""

    def there() -> dict[str, Any] | None:
        with installation.api() as api:
            (domain,) = api.get(path).json()["items"]
        certificate = domain["certificate"]
        return domain if certificate and certificate["issued_by"] == "acme" else None

    found: dict[str, Any] = until(there, "it has a certificate of the ACME server", 90)
    return found


@pytest.fixture
def port() -> Iterator[int]:
    """The gateway's, which the ACME server must know before that starts."""
    with KeptPort() as kept:
        yield kept.number


@pytest.mark.nightly
def test_clients_need_only_the_public_root(
    fresh: Callable[..., Installation],
    names: NameServer,
    pebble: Pebble,
    port: int,
    tmp_path: Path,
) -> None:
    installation = fresh(
        MENAGERIE_DNS_SERVERS=json.dumps([names.address]),
        MENAGERIE_ACME_DIRECTORY=pebble.directory_url,
        MENAGERIE_ACME_CA_FILE=str(pebble.ca_file),
        MENAGERIE_ACME_CONTACT="ops@example.com",
        MENAGERIE_ACME_TERMS_AGREED="true",
    )
    pebble.start(tls_port=port)
    # The other protocols keep any free port: another run may have the usual ones.
    installation.start("--gateway-https-port", str(port))
    roots = tmp_path / "acme-root.pem"
    roots.write_text(pebble.root_pem)

    duckdb = order(installation)
    names.records["data.example.com"] = duckdb["host"]
    names.addresses[duckdb["host"]] = "127.0.0.1"
    path = verified(installation, duckdb["id"], "data.example.com")
    shown = certified(installation, path)
    assert (shown["status"], shown["certificate"]["status"]) == ("verified", "issued")
    assert ask_duckdb(reveal(installation, duckdb["id"]), "data.example.com", port, roots) == [[42]]

    postgres = order(installation, engine="postgres")
    names.records["pg.example.com"] = postgres["host"]
    names.addresses[postgres["host"]] = "127.0.0.1"
    certified(installation, verified(installation, postgres["id"], "pg.example.com"))
    credential = reveal(installation, postgres["id"])
    assert ask_postgres(credential, "pg.example.com", roots) == [(42,)]


def ask_duckdb(credential: dict[str, Any], host: str, port: int, roots: Path) -> Any:
    def answered() -> Any:
        context = ssl.create_default_context(cadata=roots.read_text())
        try:
            with httpx.Client(verify=context, timeout=60) as http:
                return http.post(
                    f"https://127.0.0.1:{port}/query",
                    json={"sql": "SELECT 42 AS n"},
                    auth=(credential["username"], credential["password"]),
                    headers={"host": host},
                    extensions={"sni_hostname": host},
                ).json()["rows"]
        except httpx.ConnectError:  # the gateway takes it within a fraction of a second
            return None

    return until(answered, "the gateway serves the certificate")


def ask_postgres(credential: dict[str, Any], host: str, roots: Path) -> Any:
    def answered() -> Any:
        try:
            with psycopg.connect(
                host=host,
                hostaddr="127.0.0.1",
                port=credential["port"],
                dbname="app",
                user=credential["username"],
                password=credential["password"],
                sslmode="verify-full",
                sslrootcert=str(roots),
            ) as connection:
                return connection.execute("SELECT 42").fetchall()
        except psycopg.OperationalError as error:
            if "certificate" not in str(error):
                raise
            return None

    return until(answered, "the gateway serves the certificate")
