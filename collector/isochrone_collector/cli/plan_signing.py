"""Keys of plans, and signatures of plan documents, for `plan key`, `apply` and `plan rollback`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from isochrone_collector.clock import now_at
from isochrone_collector.errors import SettingsError
from isochrone_common.plan_signature import SignatureError, format_key, verify
from isochrone_common.plan_signature import sign as sign_plan
from isochrone_wire.operations import PlanDocument

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

sign_option = click.option(
    "--sign",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="KEYFILE",
    help="Sign the plan with the key of `plan key`. Agents that have pinned it run no other plan.",
)


def signature_of(document: str, key_file: Path | None) -> bytes:
    """Return the signature of a document, empty without a key, and for a document with problems, which the collector
    reports. Raises `SettingsError`.
    """
    from isochrone_wire.plan_document.document import load  # noqa: PLC0415  # heavy, and only to sign

    if key_file is None:
        return b""
    key = _read_key(key_file)
    reading = load(document, version=1)
    return sign_plan(reading.plan, key, signed_at=now_at()) if reading.plan else b""


def renewed_signature(found: PlanDocument, key_file: Path) -> bytes:
    """Return a new signature of a plan that was signed with the same key: what the collector returns is not trusted.

    Raises `SettingsError`.
    """
    from isochrone_wire.plan_document.document import load  # noqa: PLC0415  # as above

    key = _read_key(key_file)
    try:
        signed = verify(found.signature, key.public_key().public_bytes_raw())
    except SignatureError as error:
        hint = "apply your own copy of its file: isochrone-collector apply --sign KEYFILE plan.yaml"
        raise SettingsError(f"plan {found.version} was not signed with this key: {error}", hint=hint) from error
    reading = load(found.document, version=0)
    if reading.plan != signed.plan:
        hint = "apply your own copy of its file; the collector may have been changed"
        raise SettingsError(f"the document of plan {found.version} is not the one that was signed", hint=hint)
    return sign_plan(signed.plan, key, signed_at=now_at())


def make_key(path: Path) -> tuple[str, bool]:
    """Make a key in a file that only its owner can read, unless there is one; return the public key, and whether it is
    new. Raises `SettingsError`.
    """
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # heavy, and only for keys
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # as above

    if path.exists():
        return format_key(_read_key(path).public_key().public_bytes_raw()), False
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}", hint="name another file") from error
    return format_key(key.public_key().public_bytes_raw()), True


def _read_key(path: Path) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  # as above
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415  # as above

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}", hint="see --sign") from error
    except (ValueError, TypeError) as error:
        raise SettingsError(f"{path} is not a private key", hint="`plan key FILE` makes one") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError(f"{path} is not an Ed25519 key", hint="`plan key FILE` makes one")
    return key
