"""What the guide tells scanners of our API keys is so."""

import re
from pathlib import Path
from typing import Any

from control.boundary import identity

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "access.md").read_text()
PATTERN = re.search(r"^    (mk_live_\S+)$", GUIDE, re.MULTILINE)
CODE = re.search(r"```python\n(.+?)```", GUIDE, re.DOTALL)


def test_the_pattern_matches_each_new_key_and_no_other_token() -> None:
    assert PATTERN is not None
    pattern = PATTERN.group(1)
    for _ in range(200):
        assert re.fullmatch(pattern, identity.new_api_key().secret)
    for other in (identity.new_session_token(), identity.new_invite_token()):
        assert not re.search(pattern, other.secret)
    prefix = identity.API_KEY_PREFIX
    assert identity.token_kind(prefix + "0" * 49) is None, "or a checksum would tell nothing"


def test_the_checksum_can_be_verified_as_the_guide_does() -> None:
    assert CODE is not None
    named: dict[str, Any] = {}
    exec(CODE.group(1), named)
    is_key = named["is_key"]
    for _ in range(200):
        secret = identity.new_api_key().secret
        assert is_key(secret)
        for at in (8, 30, len(secret) - 1):
            other = "a" if secret[at] != "a" else "b"
            spoiled = secret[:at] + other + secret[at + 1 :]
            assert not is_key(spoiled)
            assert identity.token_kind(spoiled) is None
