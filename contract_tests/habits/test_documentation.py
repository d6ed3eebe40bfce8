"""Documentation is tested: settings, commands and benchmarks that are not written down fail."""

import re

from contract_tests.habits.test_sizes import ROOT
from menagerie.commands import COMMANDS
from menagerie.settings import Settings


def test_every_setting_is_documented_with_its_meaning() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.+) \|$", page, re.MULTILINE))
    wanted = {name: field.description for name, field in Settings.model_fields.items()}
    assert rows == wanted


def test_every_server_command_is_in_the_readme() -> None:
    page = (ROOT / "README.md").read_text()
    commands = [one.__name__.replace("_", "-") for one in COMMANDS]
    assert not [name for name in commands if f"menagerie {name}" not in page]


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    explained = set(re.findall(r"^([a-z][a-z-]*):.*## ", makefile, re.MULTILINE))
    assert targets == explained


def test_every_test_that_a_guide_names_exists() -> None:
    """A path with its folders is one from `contract_tests`, or from the root."""
    tests = ROOT / "contract_tests"
    files = {path.name for path in tests.rglob("test_*.py")}
    missing = set()
    for page in (ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for name in re.findall(r"[\w/]*\btest_\w+\.py\b", page.read_text()):
            there = name in files or any((root / name).exists() for root in (tests, ROOT))
            missing |= set() if there else {f"{page.name}: {name}"}
    assert missing == set()


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name.partition("-")[0] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert sorted(numbers) == sorted(set(numbers))
