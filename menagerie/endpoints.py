"""Where an installation is and how to get in: its endpoints.json and its root certificate.

Apart from the first start, which needs the whole control plane: `serve` reads these before that.
"""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from cell.certificates import pki
from menagerie import keys
from menagerie.errors import SettingsError
from menagerie.settings import Settings

_MADE = ("org_id", "project_id", "api_key", "session_token")


@dataclass(frozen=True)
class Endpoints:
    """What DIR/endpoints.json holds (mode 0600): where the service is and how to get in."""

    base_url: str
    ca_file: str
    org_id: str
    project_id: str
    api_key: str
    session_token: str
    gateway_ports: dict[str, int]


@dataclass(frozen=True)
class Owner:
    """The owner made at the first start. The password is shown once and kept nowhere."""

    email: str
    password: str


def endpoints_file(root: Path) -> Path:
    return root / "endpoints.json"


def read_endpoints(root: Path) -> Endpoints | None:
    """None before the first start. Raises SettingsError for a file that lets nobody in.

    The members of another version are left out, and what is an address made anew at a start.
    """
    path = endpoints_file(root)
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        made = {name: str(found[name]) for name in _MADE}
        addresses = {"base_url": str(found.get("base_url")), "ca_file": str(found.get("ca_file"))}
        ports = {str(name): int(port) for name, port in found.get("gateway_ports", {}).items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise SettingsError(
            f"{path} cannot be used ({type(error).__name__}: {error}); restore it, or"
            " move it away: the next start then gives the owner a new password, key and session"
        ) from error
    return Endpoints(**addresses, **made, gateway_ports=ports)


def write_endpoints(root: Path, endpoints: Endpoints) -> None:
    content = json.dumps(asdict(endpoints), indent=2) + "\n"
    keys.write_private(endpoints_file(root), content.encode())


def make_certificates(settings: Settings) -> None:
    """Make the region's certificates, and put the root where clients find it: HOME/ca.pem."""
    settings.cell_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = pki.ensure(
        settings.cell_home, settings.region, settings.instance_domain, datetime.now(UTC)
    )
    keys.write_public(settings.root / "ca.pem", made.root_pem.read_bytes())
