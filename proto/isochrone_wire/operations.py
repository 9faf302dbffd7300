"""The values a collector answers operators with. Units as in `isochrone_wire.model`."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a credential is good for: pushing as one vantage, asking, or asking and operating."""

    VANTAGE = "vantage"
    READER = "reader"
    OPERATOR = "operator"


class AccessState(StrEnum):
    """An invitation nobody has used yet, or what has become of a credential."""

    INVITED = "invited"
    ACTIVE = "active"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """What applying a plan did, or would do on a dry run. `problems` is empty unless the document was refused;
    the daily figures are those of one vantage, the spend only of targets whose price is known.
    """

    version: int = 0
    changed: bool = False
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    usd_per_day: float | None = None
    requests_per_day: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVersion:
    """One plan of the history. `restores` is the version whose document it brought back, if it is a rollback."""

    version: int
    applied_at: int
    applied_by: str
    targets: int
    restores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHistory:
    """Plans, the newest first."""

    plans: tuple[PlanVersion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument:
    """One plan as it was written, and where it comes from; `restores` as of a `PlanVersion`."""

    version: int
    document: str
    applied_at: int
    applied_by: str
    restores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """A one-time join token, as it is handed to whoever joins, and when it expires."""

    token: str
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What a join token was traded for. The credential is shown this once; `region` is a vantage's."""

    credential: str
    role: Role
    name: str
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One credential, or one open invitation; never the secret."""

    id: int
    name: str
    role: Role
    state: AccessState
    created_at: int
    region: str | None = None
    expires_at: int | None = None
    revoked_at: int | None = None
    last_used_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessList:
    """Everybody who may come in, or could."""

    access: tuple[Access, ...] = ()
