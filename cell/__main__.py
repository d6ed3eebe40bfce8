"""The command line of a cell that runs alone: `python -m cell --home DIR …`."""

import argparse
import base64
import sys
from pathlib import Path

from cell.layout import HomeTakenError
from cell.main import run
from cell.runtime import open_files
from cell.settings import CellSettings
from gateway import ports


def _port(word: str) -> tuple[str, int]:
    protocol, _, port = word.partition("=")
    if protocol not in ports.DEFAULT or not port.isdigit():
        raise argparse.ArgumentTypeError(f"one of {', '.join(ports.DEFAULT)}, as https=443")
    return protocol, int(port)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cell", description="Run a cell.")
    parser.add_argument("--home", type=Path, required=True, help="the folder of the cell")
    parser.add_argument("--cell-id", required=True)
    parser.add_argument(
        "--control-public-key",
        required=True,
        help="the control plane's Ed25519 public key, base64 of its 32 bytes",
    )
    parser.add_argument("--region", default="local")
    parser.add_argument("--instance-domain", default="localhost")
    parser.add_argument(
        "--port",
        action="append",
        default=[],
        type=_port,
        metavar="PROTOCOL=PORT",
        help="where the gateway listens, as https=443; may be repeated",
    )
    parser.add_argument("--engine", action="append", help="offer only this engine; may be repeated")
    parser.add_argument("--acme-directory", default="", help="empty: only the local CA")
    parser.add_argument("--acme-contact", default="", help="email address of the account")
    parser.add_argument("--acme-terms-agreed", action="store_true")
    parser.add_argument("--acme-ca-file", default="", help="trusted for the server's TLS")
    parser.add_argument("--backup-store", default="", help="URL; empty: `backups` in the home")
    parser.add_argument(
        "--backup-copy-store", default="", help="URL of a second store; empty: none"
    )
    parser.add_argument("--backup-recovery-recipient", default="", help="age1…; empty: one is made")
    parser.add_argument("--backup-bytes-per-s", type=int, default=0, help="0: no limit")
    parser.add_argument("--keep-engines", action="store_true", help="leave engines running at exit")
    parser.add_argument("--log-format", choices=("json", "text"), default="json")
    parser.add_argument("--log-level", default="info")
    return parser


def main(words: list[str] | None = None) -> int:
    given = _parser().parse_args(words)
    settings = CellSettings(
        home=given.home,
        cell_id=given.cell_id,
        control_public_key=base64.b64decode(given.control_public_key),
        region=given.region,
        instance_domain=given.instance_domain,
        ports=ports.DEFAULT | dict(given.port),
        engines=tuple(given.engine) if given.engine else None,
        acme_directory=given.acme_directory,
        acme_contact=given.acme_contact,
        acme_terms_agreed=given.acme_terms_agreed,
        acme_ca_file=given.acme_ca_file,
        backup_store_url=given.backup_store,
        backup_copy_store_url=given.backup_copy_store,
        backup_recovery_recipient=given.backup_recovery_recipient,
        backup_bytes_per_s=given.backup_bytes_per_s,
        stop_engines=not given.keep_engines,
        log_format=given.log_format,
        log_level=given.log_level,
    )
    return _run(settings)


def _run(settings: CellSettings) -> int:
    try:
        open_files.raise_limit()
        run(settings)
    except open_files.TooFewError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except HomeTakenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
