"""Files that an engine has removed and keeps open: they fill the disk, in whichever process."""

import contextlib
import time

from cell.instances.ceilings import nameless_bytes
from contract_tests.engines.conftest import Subject
from contract_tests.engines.postgres_sessions import newest_lent, session

MB = 10**6
# It keeps what it sorts in a file of its session, as it is more than may lie in memory.
SORTED = """DECLARE c CURSOR WITH HOLD FOR
SELECT repeat(n::text, 100) FROM generate_series(1, 40000) n ORDER BY 1"""
SESSIONS = 50
LOOKS = 20


@newest_lent
def test_a_file_that_a_session_of_postgresql_holds_counts_once(lent: Subject) -> None:
    process, data = lent.process, lent.site.data
    assert process is not None
    assert nameless_bytes(process, data) < MB
    with session(lent) as connection:
        connection.execute("SET work_mem = '64kB'")
        connection.execute(SORTED)
        files = [path for path in data.outside.glob("base/pgsql_tmp/**/*") if path.is_file()]
        taken = sum(path.stat().st_blocks * 512 for path in files)
        assert taken > 10 * MB
        assert nameless_bytes(process, data) < MB
        for path in files:
            path.unlink()
        assert taken <= nameless_bytes(process, data) < taken + MB
    with contextlib.ExitStack() as stack:
        for _ in range(SESSIONS):
            stack.enter_context(session(lent)).execute("SELECT FROM pg_class")
        began = time.process_time()
        for _ in range(LOOKS):
            nameless_bytes(process, data)
        look_s = (time.process_time() - began) / LOOKS
        # Every second, of each instance.
        assert look_s < 0.1
        assert len(process.tree()) > SESSIONS
