"""Signing in by SAML in a browser, with an identity provider that is not ours, on loopback."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from contract_tests.api.harness import House
from contract_tests.api.letters import new_email
from contract_tests.api.sso import with_saml as saml
from contract_tests.pages import test_in_chromium
from contract_tests.pages.visiting import DEADLINE_S, Visitor
from contract_tests.saml import identity_provider
from contract_tests.saml.identity_provider import IdentityProvider

pytestmark = pytest.mark.nightly
visitor = test_in_chromium.visitor


class Site:
    """The provider's, at a name that is of another site than ours."""

    def __init__(self) -> None:
        self.email, self.provider = "", None
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = site.page(self.path).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_given: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A browser keeps connections open that it has not asked anything by: nothing waits for
        # their threads at the end.
        self._server.daemon_threads = True
        # Another host than that of our pages: a browser takes the two for different sites.
        self.base = f"http://localhost:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    provider: IdentityProvider | None

    def page(self, path: str) -> str:
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        if self.provider is None or "SAMLRequest" not in query:
            return "nothing"
        asked = self.provider.asked(query)
        return self.provider.form(query, self.email, asked.assertion_consumer_service_url)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    identity_provider.skip_without()
    made = Site()
    yield made
    made.close()


def test_somebody_signs_in_at_the_provider(visitor: Visitor, site: Site, tmp_path: Path) -> None:
    house: House = visitor.house
    tenant = house.tenant("Chromium", plan="team")
    signer = saml.signer(house)
    made = saml.put(house, tenant, signs_requests=True).json()["saml"]
    connection = str(made["connection_id"])
    ours = house.get(f"/v1/sso/saml/{connection}/metadata").content
    site.provider = IdentityProvider(site.base, tmp_path, signer, ours, wants_signed=True)
    told = saml.put(house, tenant, metadata_xml=site.provider.metadata.decode())
    assert told.status_code == 200, told.text
    site.email = new_email("ada")
    visitor.open(f"/account/sso/{connection}")
    # Whoever comes by a link of elsewhere is asked first.
    visitor.follow("Continue to your identity provider")
    WebDriverWait(visitor.driver, DEADLINE_S).until(
        lambda driver: driver.current_url == f"{visitor.base}/account/"
    )
    assert site.email in visitor.driver.page_source
    shown = house.get(f"{tenant.path}/enterprise/sso", tenant.key).json()
    assert shown["sso"]["status"] == "active"
