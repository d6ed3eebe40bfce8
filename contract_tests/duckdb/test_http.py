"""Holds the HTTP surface: credentials, bodies, the form of answers and of errors."""

import json

import duckdb
import pytest

from contract_tests.duckdb.process import PASSWORD, Service, digest


def test_a_query_is_answered_with_columns_rows_and_counts(service: Service) -> None:
    answer = service.query("SELECT i, i * 2 AS double FROM range(3) t(i) WHERE i > ?", [0])
    assert answer.pop("elapsed_ms") >= 0
    assert answer == {
        "columns": ["i", "double"],
        "column_types": ["BIGINT", "BIGINT"],
        "rows": [[1, 2], [2, 4]],
        "row_count": 2,
        "truncated": False,
    }


@pytest.mark.parametrize("sql", ["SELECT ?, ?", "SELECT $1, $2"])
def test_params_bind_to_question_marks_and_numbers(service: Service, sql: str) -> None:
    assert service.rows(sql, ["a", 2]) == [["a", 2]]


def test_numbered_params_may_come_in_any_order(service: Service) -> None:
    assert service.rows("SELECT $2, $1, $2", ["a", 2]) == [[2, "a", 2]]


def test_a_statement_without_a_result_counts_changed_rows(service: Service) -> None:
    for sql, changed in (
        ("CREATE TABLE counted (i INTEGER)", 0),
        ("INSERT INTO counted VALUES (1), (2), (3)", 3),
        ("UPDATE counted SET i = i + 1 WHERE i > 1", 2),
        ("DELETE FROM counted WHERE i = 1", 1),
        ("CREATE OR REPLACE TABLE counted AS SELECT * FROM range(5)", 5),
        ("TRUNCATE counted", 5),
        ("CHECKPOINT", 0),
        ("SET VARIABLE x = 1", 0),
        ("BEGIN; COMMIT", 0),
        ("CREATE SECRET told (TYPE http)", 0),
        ("DROP TABLE counted", 0),
    ):
        answer = service.query(sql)
        found = (answer["columns"], answer["rows"], answer["row_count"])
        assert found == ([], [], changed), sql


def test_returning_answers_rows(service: Service) -> None:
    service.query("CREATE TABLE returned (i INTEGER, v INTERVAL)")
    answer = service.query("INSERT INTO returned VALUES (?, '1 month') RETURNING *", [7])
    assert (answer["columns"], answer["rows"]) == (["i", "v"], [[7, "1 month"]])
    assert service.rows("SELECT count(*) FROM returned") == [[1]]


def test_10000_rows_are_whole_and_one_more_is_truncated(service: Service) -> None:
    whole = service.query("SELECT * FROM range(10000)")
    assert (whole["row_count"], whole["truncated"]) == (10_000, False)
    cut = service.query("SELECT * FROM range(10001)")
    assert (cut["row_count"], len(cut["rows"]), cut["truncated"]) == (10_000, 10_000, True)
    assert cut["rows"][-1] == [9999]


def test_a_result_without_an_end_is_not_fetched(service: Service) -> None:
    # A million million rows would take hours and all memory.
    assert service.query("SELECT i, i::VARCHAR FROM range(1000000000000) t(i)")["truncated"]


def test_of_several_statements_the_last_is_answered(service: Service) -> None:
    assert service.rows("CREATE TABLE s (i DATE); INSERT INTO s VALUES ('2020-01-01'); FROM s") == [
        ["2020-01-01"]
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"", "body is required"),
        (b"[]", "object"),
        (b"{}", "sql"),
        (b'{"sql": 1}', "/sql"),
        (b'{"sql": ""}', "/sql"),
        (b'{"sql": "SELECT 1", "params": {}}', "/params"),
        (b'{"sql": "SELECT 1", "other": 1}', "other"),
        (b'{"sql": "-- nothing"}', "no statement"),
        (b'{"sql": "SELECT 1 \\u0000; garbage"}', "NUL"),
    ],
)
def test_a_request_that_cannot_be_read_is_400(
    service: Service, content: bytes, message: str
) -> None:
    with service.client() as client:
        headers = {"Content-Type": "application/json"}
        response = client.post("/query", content=content, headers=headers)
    assert (response.status_code, list(response.json())) == (400, ["error"])
    assert message in response.json()["error"]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC 1", "Parser Error"),
        ("SELECT * FROM nowhere", "nowhere does not exist"),
        ("SELECT 'a'::INTEGER", "Conversion Error"),
        ("SELECT ?", "Values were not provided"),
        ("SELECT 1; SELECT nothing", "nothing"),
        ("SELECT 'x'::DATE, 1", "LINE 1"),
    ],
)
def test_an_sql_error_is_400_in_the_engines_words(service: Service, sql: str, message: str) -> None:
    assert message in service.error(sql)


def test_an_unbindable_parameter_is_400(service: Service) -> None:
    assert service.post("SELECT ?", [1, 2]).status_code == 400
    assert service.post("SELECT ?::HUGEINT", ["1e99"]).status_code == 400


def test_a_body_of_1_mib_is_read_and_one_byte_more_is_413(service: Service) -> None:
    head, tail = b'{"sql": "SELECT length(\'', b"')\"}"
    filler = 1_048_576 - len(head) - len(tail)
    with service.client() as client:
        headers = {"Content-Type": "application/json"}
        fits = client.post("/query", content=head + b"x" * filler + tail, headers=headers)
        assert fits.json()["rows"] == [[filler]]
        over = client.post("/query", content=head + b"x" * (filler + 1) + tail, headers=headers)
    assert (over.status_code, list(over.json())) == (413, ["error"])


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/query"), ("GET", "/version"), ("GET", "/statistics")]
)
@pytest.mark.parametrize(
    "credential",
    [None, ("app", "wrong"), ("app", ""), ("root", PASSWORD), ("app", digest(PASSWORD)), ("", "")],
)
def test_without_the_credential_everything_but_health_is_401(
    service: Service, method: str, path: str, credential: tuple[str, str] | None
) -> None:
    with service.client(None) as client:
        # The body is as wrong as can be: nobody is told before they are known.
        response = client.request(method, path, auth=credential, content=b"{")
        assert client.get("/health").json() == {"status": "ok"}
    assert (response.status_code, list(response.json())) == (401, ["error"])
    assert response.headers["WWW-Authenticate"].startswith("Basic ")


@pytest.mark.parametrize("value", ["Basic", "Basic !", "Basic YXBw", "Bearer x", "Basic \xff"])
def test_a_garbled_credential_is_401(service: Service, value: str) -> None:
    with service.client(None) as client:
        headers = {b"Authorization": value.encode("latin-1")}
        assert client.get("/version", headers=headers).status_code == 401


def test_version_is_the_engines(service: Service) -> None:
    with service.client() as client:
        answer = client.get("/version").json()
    assert answer == {"engine": "duckdb", "version": duckdb.__version__}
    assert service.rows("SELECT version()") == [["v" + answer["version"]]]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/nowhere", 404),
        ("GET", "/query", 405),
        ("DELETE", "/health", 405),
        ("POST", "/version", 405),
    ],
)
def test_unknown_paths_and_methods_are_errors_of_the_same_form(
    service: Service, method: str, path: str, status: int
) -> None:
    with service.client() as client:
        response = client.request(method, path)
    assert (response.status_code, list(response.json())) == (status, ["error"])
    assert ("Allow" in response.headers) == (status == 405)


def test_a_body_that_is_not_declared_as_json_is_415(service: Service) -> None:
    with service.client() as client:
        response = client.post("/query", data={"sql": "SELECT 1"})
    assert (response.status_code, list(response.json())) == (415, ["error"])


def _version_status(service: Service, password: str) -> int:
    with service.client(password) as client:
        return client.get("/version").status_code


def test_a_changed_users_file_counts_from_the_next_request(own_service: Service) -> None:
    service = own_service
    for valid in (["old", "new"], ["new"]):
        replacement = service.home / "next.json"
        replacement.write_text(json.dumps({"app": [digest(each) for each in valid]}))
        replacement.replace(service.users)
        found = {each for each in ("old", "new", PASSWORD) if _version_status(service, each) == 200}
        assert found == set(valid)


def test_an_unreadable_users_file_leaves_the_last_one_in_force(own_service: Service) -> None:
    own_service.users.write_text("{")
    assert _version_status(own_service, PASSWORD) == 200
    own_service.users.unlink()
    assert _version_status(own_service, PASSWORD) == 200
    assert _version_status(own_service, "wrong") == 401


def test_more_parameters_than_a_request_may_have_are_refused(service: Service) -> None:
    response = service.post("SELECT 1", [1] * 20_000)
    assert response.status_code == 400
    assert "10000" in response.json()["error"]
    assert service.rows("SELECT len(?)", [[1] * 20_000]) == [[20_000]]
