"""A headless Chromium, as the system has it: `skip` says why where there is none."""

import base64
import hashlib
import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from contract_tests.kept_port import KeptPort

DEADLINE_S = 60
AXE = Path(__file__).with_name("axe.min.js")
SENT = "Network.requestWillBeSent"
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
def chromium(profile: Path, host: str = "", port: int = 0) -> Iterator[webdriver.Chrome]:
    """Trusts what that host shows now, by its key, and no other unknown certificate."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for each in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(each)
    if host:
        options.add_argument(f"--ignore-certificate-errors-spki-list={_key_hash(host, port)}")
    # Selenium would pick a port itself, and leave it to anybody until the driver listens.
    with KeptPort() as own:
        service = Service(shutil.which("chromedriver"), port=own.number)
        driver = webdriver.Chrome(options=options, service=service)
        driver.set_page_load_timeout(DEADLINE_S)
        try:
            yield driver
        finally:
            driver.quit()


def requests_of(driver: webdriver.Chrome) -> list[dict[str, Any]]:
    """What pages have asked for since this was last called: DevTools' `Network.Request`."""
    told = [json.loads(one["message"])["message"] for one in _log(driver, "performance")]
    sent = [one["params"]["request"] for one in told if one["method"] == SENT]
    # The browser's own first page is made of many parts.
    return [one for one in sent if one["url"].startswith(("http", "ws"))]


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Errors and warnings on the console, a breach of the Content-Security-Policy among them.

    A status is none of them: tests ask for the page that an error is.
    """
    told = [one["message"] for one in _log(driver, "browser") if one["level"] != "INFO"]
    return [one for one in told if "responded with a status of" not in one]


def _log(driver: webdriver.Chrome, kind: str) -> list[dict[str, Any]]:
    return list(driver.get_log(kind))  # type: ignore[no-untyped-call]  # selenium types the rest


def prefer(driver: webdriver.Chrome, scheme: str) -> None:
    """`light` or `dark`, as somebody has set it for their machine."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def is_dark(driver: webdriver.Chrome) -> bool:
    """Whether the page is shown so: what is written on it is lighter than what it is written on."""
    script = """const shown = getComputedStyle(document.body);
        return [shown.color, shown.backgroundColor].map(
            each => each.match(/[0-9.]+/g).slice(0, 3).map(Number))"""
    written, ground = driver.execute_script(script)
    return bool(sum(written) > sum(ground))


def violations(driver: webdriver.Chrome, *left_out: str, minor: bool = False) -> list[str]:
    """What axe finds that is serious or critical, or also `minor`; `left_out` are selectors."""
    driver.execute_script(AXE.read_text())
    run = "axe.run({exclude: arguments[0]}).then(arguments[arguments.length - 1])"
    found = driver.execute_async_script(run, [[one] for one in left_out])
    return [
        f"{each['id']}: {node['html']} {node['failureSummary']}"
        for each in found["violations"]
        if minor or each["impact"] in {"serious", "critical"}
        for node in each["nodes"]
    ]


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
