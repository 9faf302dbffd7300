"""The renewal of an identity: its instant, and its result."""

import os
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isochrone_common import identity_file
from isochrone_common.address import Address
from isochrone_common.credentials import Credential, derive_successor, fingerprint_of
from isochrone_common.identity_file import Identity
from isochrone_common.trust import PLAIN, Trust
from isochrone_wire.operations import Role
from isochrone_wire.v1 import fleet_pb2

OLD, NEW = (str(Credential(id=number, secret=bytes(32))) for number in (1, 2))
FIRST, SECOND = (ssl.DER_cert_to_PEM_cert(der) for der in (b"first", b"second"))
PINNED = Trust(roots=FIRST, server_name="isochrone-collector")
IDENTITY = Identity(
    address=Address("127.0.0.1", 1),
    name="ida",
    role=Role.READER,
    trust=PINNED,
    credential=OLD,
    renew_at=100,
    expires_at=150,
)


@pytest.mark.parametrize(
    ("identity", "now_at", "due"),
    [
        (IDENTITY, 99, False),
        (IDENTITY, 100, True),
        (replace(IDENTITY, renew_at=None, expires_at=None), 10**18, False),
        (replace(IDENTITY, trust=PLAIN), 100, False),
    ],
)
def test_a_credential_is_renewed_when_that_is_due(identity: Identity, now_at: int, *, due: bool) -> None:
    """It is due from the named instant on, never without a lifetime, and never in plain text."""
    assert identity_file.is_due(identity, now_at=now_at) is due
    assert identity_file.request_of(identity, now_at=now_at).credential is due


def test_a_response_gives_credential_and_certificates() -> None:
    """The credential is replaced if there is one; certificates are pinned only where one is pinned already."""
    both = fleet_pb2.RenewResponse(credential=NEW, expires_at=300, renew_at=250, certificates=[FIRST, SECOND])
    later = identity_file.renewed(IDENTITY, both)
    assert (later.credential, later.expires_at, later.renew_at) == (NEW, 300, 250)
    assert later.trust.pins == (FIRST, SECOND)
    switched = identity_file.renewed(later, fleet_pb2.RenewResponse(certificates=[SECOND]))
    assert (switched.credential, switched.trust.pins) == (NEW, (SECOND,))
    by_authority = replace(IDENTITY, trust=Trust(roots=FIRST))
    assert identity_file.renewed(by_authority, both).trust == by_authority.trust


@pytest.mark.parametrize(
    "response", [fleet_pb2.RenewResponse(credential="x"), fleet_pb2.RenewResponse(certificates=["not PEM"])]
)
def test_a_response_that_cannot_be_used_changes_nothing(response: fleet_pb2.RenewResponse) -> None:
    """A credential or certificate that is not valid never replaces a valid one."""
    with pytest.raises(ValueError, match=r"credential|PEM|header"):
        identity_file.renewed(IDENTITY, response)


def test_other_pins_are_noticed() -> None:
    """A certificate that is announced, or no longer presented, differs from the pins; without pins nothing does."""
    first, second = fingerprint_of(FIRST), fingerprint_of(SECOND)
    assert not identity_file.has_other_pins(IDENTITY, [first])
    assert identity_file.has_other_pins(IDENTITY, [first, second])
    assert not identity_file.has_other_pins(IDENTITY, [])
    assert not identity_file.has_other_pins(replace(IDENTITY, trust=Trust()), [second])


def test_a_file_that_was_replaced_meanwhile_stays(tmp_path: Path) -> None:
    """`join` during a renewal wins."""
    path = tmp_path / "identity.json"
    other = replace(IDENTITY, credential=str(Credential(id=3, secret=bytes(32))))
    identity_file.write(path, other)
    assert not identity_file.store(path, IDENTITY, replace(IDENTITY, credential=NEW))
    assert identity_file.read(path) == other


def test_a_successor_takes_both_secrets() -> None:
    """It is the same for the same key, and another one for another key or another credential."""
    credential = Credential(id=1, secret=bytes(32))
    made = {derive_successor(credential, key) for key in (b"a", b"a", b"b")}
    assert len(made | {derive_successor(Credential(id=1, secret=bytes(31) + b"x"), b"a")}) == 3


@pytest.mark.parametrize(
    "prepare",
    [
        Path.stat,
        lambda path: path.chmod(0o400),
        Path.unlink,
        lambda path: os.utime(path, (1, 1)),
    ],
)
def test_a_command_does_not_fail_with_its_renewal(tmp_path: Path, prepare: Callable[[Path], Any]) -> None:
    """No collector, a file that cannot be written, no file: the present identity is used on."""
    path = tmp_path / "identity.json"
    now_at = time.time_ns() // 1000
    identity = replace(IDENTITY, renew_at=now_at - 1, expires_at=now_at + 10**9)
    identity_file.write(path, identity)
    prepare(path)
    assert identity_file.renew_if_due(path, identity) == identity
