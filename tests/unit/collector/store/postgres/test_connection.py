"""Parameters of connections."""

import pytest

from isochrone_collector.store.postgres.connection import parameters, unverified_hosts


def test_a_lost_host_is_noticed() -> None:
    """The kernel gives up a lost host within about ten seconds, and the operator's parameters stay."""
    chosen = parameters("postgresql://db/isochrone")
    assert chosen["tcp_user_timeout"] == 10_000
    assert chosen["keepalives_idle"] + chosen["keepalives_interval"] * chosen["keepalives_count"] <= 12
    assert "target_session_attrs" not in chosen
    chosen = parameters("postgresql://db/isochrone?keepalives_idle=60&connect_timeout=2&application_name=x")
    assert not {"keepalives_idle", "connect_timeout", "application_name"} & set(chosen)


@pytest.mark.parametrize(
    ("url", "wanted"),
    [
        ("postgresql://a,b/isochrone", "read-write"),
        ("postgresql:///isochrone?host=/a,/b", "read-write"),
        ("postgresql://a,b/isochrone?target_session_attrs=any", None),
        ("postgresql://a/isochrone", None),
    ],
)
def test_of_several_hosts_the_primary(url: str, wanted: str | None) -> None:
    """With several hosts, connections are made to the one that accepts writes, unless the URL chooses another."""
    assert parameters(url).get("target_session_attrs") == wanted


@pytest.mark.parametrize(
    ("url", "environment", "hosts"),
    [
        ("postgresql:///isochrone", {}, []),
        ("postgresql:///isochrone?host=/run/postgresql", {}, []),
        ("postgresql://localhost,127.0.0.1,[::1]/isochrone", {}, []),
        ("postgresql://db/isochrone", {}, ["db"]),
        ("postgresql://localhost,db/isochrone?sslmode=require", {}, ["db"]),
        ("postgresql://db/isochrone?sslmode=verify-ca", {}, ["db"]),
        ("postgresql://db/isochrone?sslmode=verify-full", {}, []),
        ("postgresql://db/isochrone", {"PGSSLMODE": "verify-full"}, []),
        ("postgresql:///isochrone", {"PGHOST": "db"}, ["db"]),
        ("postgresql:///isochrone?hostaddr=192.0.2.1", {}, ["192.0.2.1"]),
    ],
)
def test_a_remote_server_should_be_verified(
    monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], hosts: list[str]
) -> None:
    """Only `verify-full` verifies a server of another machine; this machine needs no TLS."""
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert unverified_hosts(url) == hosts
