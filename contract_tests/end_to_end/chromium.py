"""A headless Chromium, as the system has it: `skip` says why where there is none."""

import base64
import hashlib
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from contract_tests.kept_port import KeptPort

DEADLINE_S = 60
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--window-size=1200,900"),
    "--host-resolver-rules=MAP * 127.0.0.1",
)


def skip_without() -> None:
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; tools/system-packages installs it as root")


@contextmanager
def chromium(profile: Path, host: str, port: int, *more: str) -> Iterator[webdriver.Chrome]:
    """Trusts what that host shows now, by its key, and no other unknown certificate."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    trusted = f"--ignore-certificate-errors-spki-list={_key_hash(host, port)}"
    for each in (*OPTIONS, trusted, f"--user-data-dir={profile}", *more):
        options.add_argument(each)
    # Selenium would pick a port itself, and leave it to anybody until the driver listens.
    with KeptPort() as own:
        service = Service(shutil.which("chromedriver"), port=own.number)
        driver = webdriver.Chrome(options=options, service=service)
        driver.set_page_load_timeout(DEADLINE_S)
        try:
            yield driver
        finally:
            driver.quit()


def _key_hash(host: str, port: int) -> str:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        certificate = connection.getpeercert(binary_form=True)
    assert certificate is not None
    key = x509.load_der_x509_certificate(certificate).public_key()
    described = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(described).digest()).decode()
