"""The lock files: every package pinned with hashes, one truth in all, no index named."""

import re
import subprocess
import sys
import tomllib

from contract_tests.habits.test_sizes import ROOT


def pinned(name: str) -> dict[str, str]:
    """Package to version; where a marker picks between versions, each is kept."""
    rows = re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {f"{package}=={version}": version for package, version in rows}


def wanted() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [re.split(r"[\[<>=]", one)[0] for one in project["dependencies"]]


def test_every_dependency_is_pinned() -> None:
    packages = {one.split("==")[0] for one in pinned("requirements.lock")}
    assert set(wanted()) <= packages


def test_the_development_lock_agrees_with_the_runtime_lock() -> None:
    assert pinned("requirements.lock").keys() <= pinned("requirements-dev.lock").keys()


def test_the_site_generator_is_pinned_and_agrees_with_the_rest() -> None:
    """It is installed beside the others: what they have in common is of one version."""
    docs, dev = pinned("requirements-docs.lock"), pinned("requirements-dev.lock")
    ours = {one.split("==")[0] for one in dev}
    assert any(one.startswith("zensical==") for one in docs)
    assert not [one for one in docs if one.split("==")[0] in ours and one not in dev]


def test_every_pin_has_a_hash_and_no_index_is_named() -> None:
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-docs.lock"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        entries = re.split(r"^(?=[a-z0-9-]+==)", text, flags=re.MULTILINE)[1:]
        assert entries
        assert not [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry]


def test_what_is_installed_fits_together() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
