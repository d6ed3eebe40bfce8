"""Settings of any length that a former holder left for roles: no rotation reads them for long."""

import pytest

from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import ask, newest_lent, session, value

KEPT = "SELECT count(*) FROM pg_db_role_setting WHERE setrole::regrole::text ~ '^long_'"
# Of a name that clients are not told of: what they cannot read goes for another reason.
LEAVE = """DO $$ BEGIN
    PERFORM set_config('local_preload_libraries', repeat('a', {length}), true);
    FOR number IN 1..{count} LOOP
        EXECUTE 'CREATE ROLE long_' || number;
        EXECUTE 'ALTER ROLE long_' || number || ' SET local_preload_libraries FROM CURRENT';
    END LOOP;
END $$"""


# Slow for what it adds by day.
@pytest.mark.nightly
@newest_lent
@pytest.mark.parametrize(
    ("count", "length", "kept"),
    [
        pytest.param(
            *(8, 20_000_000, 0),
            id="a few are gone that are very long",
            marks=pytest.mark.nightly,
        ),
        pytest.param(300, 100_000, 100, id="a hundred stay of those that compress well"),
    ],
)
def test_long_settings_are_not_looked_through_and_short_ones_stay(
    lent: Subject, count: int, length: int, kept: int
) -> None:
    with session(lent) as former:
        former.execute("CREATE ROLE plain")
        former.execute("ALTER ROLE plain SET search_path = mine, public")
        former.execute(LEAVE.format(count=count, length=length).encode())
    assert value(lent, KEPT) == count
    new = lent.new_login()
    lent.accept(new)
    assert value(lent, KEPT, new) == kept
    plain = "SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'plain'::regrole"
    assert ask(lent, plain, new) == [(["search_path=mine, public"],)]
