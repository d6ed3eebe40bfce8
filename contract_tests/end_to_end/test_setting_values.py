"""A setting whose value cannot be used is one clear line at the start: what is allowed there."""

import subprocess
from pathlib import Path

import pytest
from annotated_types import Le, Lt

from contract_tests.end_to_end.test_home import MENAGERIE, refused
from menagerie.errors import SettingsError
from menagerie.inherited_settings import environment
from menagerie.settings import Settings, load

UNUSABLE = [
    ("port", "x", "port: must be a whole number"),
    ("port", "99999", "port: must be at most 65535"),
    ("worker_threads", "0", "worker_threads: must be at least 1"),
    ("overcommit_cpu", "-1", "overcommit_cpu: must be more than 0"),
    ("overcommit_cpu", "much", "overcommit_cpu: must be a number"),
    ("rate_limits", "perhaps", "rate_limits: must be true or false"),
    ("cell_placement", "safe", "cell_placement: must be 'shared' or 'secure'"),
    ("baa_text", "/nowhere/baa.md", "baa_text: /nowhere/baa.md cannot be read: No such file"),
    ("log_format", "xml", "log_format: must be 'text' or 'json'"),
    ("region", "Ä", "region: must be a lowercase letter and up to 30 letters, digits and hyphens"),
    ("gateway_mysql_version", "ten", "gateway_mysql_version: must be a version that begins with"),
    ("acme_directory", "ftp://x", "acme_directory: must be a URL that begins with https://"),
    ("trusted_proxies", "10.0.0.0/8", 'trusted_proxies: must be a list such as ["10.0.0.0/8"]'),
    ("trusted_proxies", '["x"]', "trusted_proxies: 'x' is not an address or a network such as"),
    ("gateway_proxy_cidrs", '["x"]', "gateway_proxy_cidrs: 'x' is not an address or a network"),
    ("dns_servers", '["x"]', "dns_servers: 'x' is not an address such as"),
    ("oidc_issuers", "https://gitlab.com", "oidc_issuers: must be a list such as"),
    ("oidc_issuers", '["http://gitlab.com"]', "oidc_issuers: 'http://gitlab.com' is not the URL"),
    ("oidc_issuers", '["http://127.0.0.1.example.com"]', "is not the URL of an issuer such as"),
    ("oidc_issuers", '["https://gitlab.com/"]', "without a slash at its end"),
    ("oidc_issuers", '["https://a@gitlab.com"]', "is not the URL of an issuer such as"),
    ("oidc_issuers", '["https://gitlab.com?a=b"]', "is not the URL of an issuer such as"),
    ("oidc_issuers", '["https://"]', "is not the URL of an issuer such as"),
    ("oidc_issuers", '["https://[x"]', "is not the URL of an issuer such as"),
    ("workload_key_ttl_s", "3601", "workload_key_ttl_s: must be at most 3600"),
    ("base_url", "api.example.com", "base_url: must be a URL that begins with https://"),
    ("base_url", "https:///v1", "base_url: must be a URL that begins with https://"),
    ("database_url", "menagerie:hush", "database_url: must be a URL such as postgresql://"),
    ("database_url", "mysql://x:hush@y/z", "database_url: must be a URL such as postgresql://"),
]


def test_each_time_has_a_longest() -> None:
    """Without one, a date past the year 9999 is an error of each request that computes it."""
    fields = {
        name: each
        for name, each in Settings.model_fields.items()
        if name.endswith("_s") and not name.endswith("_per_s")
    }
    assert len(fields) > 5
    assert [
        name
        for name, each in fields.items()
        if not any(isinstance(bound, Le | Lt) for bound in each.metadata)
    ] == []


@pytest.mark.parametrize(("name", "value", "said"), UNUSABLE, ids=lambda value: str(value)[:20])
def test_what_is_allowed_is_said_in_plain_words(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"MENAGERIE_{name.upper()}", value)
    with pytest.raises(SettingsError) as told:
        load()
    assert said in str(told.value)
    assert str(told.value).endswith("(see docs/configuration.md)")
    assert not any(words in str(told.value) for words in ("hush", "Input", "pattern", "^", "\n"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trusted_proxies", '["10.0.0.0/8", "::1", "10.1.2.3/16"]'),
        ("dns_servers", '["9.9.9.9", "127.0.0.1:5353", "[::1]:5353", "::1"]'),
        ("oidc_issuers", "[]"),
        ("oidc_issuers", '["https://ci.example.com:8443/a", "http://127.0.0.1:1", "http://[::1]"]'),
        ("workload_key_ttl_s", "900"),
        ("base_url", "http://127.0.0.1:8080"),
        ("base_url", "https://[::1]/menagerie"),
        ("database_url", "postgresql://menagerie:p%40ss@/menagerie?host=/run/postgresql"),
        ("database_url", "postgresql+psycopg://a@b:5432/c"),
        ("database_url", "sqlite:////tmp/menagerie.db"),
        ("acme_directory", ""),
    ],
    ids=lambda value: value[:20],
)
def test_what_can_be_used_is_let_in(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"MENAGERIE_{name.upper()}", value)
    load()


@pytest.mark.nightly
def test_a_start_says_it_in_one_line(tmp_path: Path) -> None:
    command = [*MENAGERIE, "serve", "--home", str(tmp_path)]
    told = refused(command, MENAGERIE_DATABASE_URL="menagerie", MENAGERIE_PORT="x")
    assert told.count("\n") == 1
    assert told.startswith("menagerie serve: ")
    assert "database_url: must be" in told
    assert "port: must be" in told


def test_a_list_in_the_file_is_a_list(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('trusted_proxies = ["127.0.0.1/32"]\n')
    assert load(home=tmp_path).trusted_proxies == ("127.0.0.1/32",)
    (tmp_path / "config.toml").write_text('trusted_proxies = "127.0.0.1/32"\n')
    with pytest.raises(SettingsError, match="trusted_proxies: must be a list such as"):
        load(home=tmp_path)


@pytest.mark.nightly
def test_a_host_that_does_not_resolve_is_what_is_named(tmp_path: Path) -> None:
    command = [*MENAGERIE, "serve", "--home", str(tmp_path), "--gateway-port", "0"]
    ran = subprocess.run(
        [*command, "--port", "0"],
        env={"PATH": "/usr/bin:/bin", "MENAGERIE_GATEWAY_LISTEN": "nosuch.invalid"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert "gateway_listen" in ran.stderr
    assert "choose another with --gateway-https-port" not in ran.stderr


@pytest.mark.parametrize(
    ("url", "inherited"),
    [
        ("sqlite:///x.db?timeout=1", "sqlite:////here/x.db?timeout=1"),
        ("sqlite:////there/x.db", "sqlite:////there/x.db"),
        (
            "postgresql://u@h/d?sslrootcert=ca.pem&x=1",
            "postgresql://u@h/d?sslrootcert=/here/ca.pem&x=1",
        ),
        ("postgresql://u@h/d?sslrootcert=system", "postgresql://u@h/d?sslrootcert=system"),
        ("postgresql://u@h/d?a=b&sslkey=/k.pem", "postgresql://u@h/d?a=b&sslkey=/k.pem"),
    ],
)
def test_processes_that_work_elsewhere_find_the_same_files(
    url: str, inherited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = environment(load(home=tmp_path / "home", database_url=url))
    assert given["MENAGERIE_DATABASE_URL"] == inherited.replace("/here", str(tmp_path))
