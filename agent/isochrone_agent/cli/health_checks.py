"""What a doctor makes of what it found: a verdict, a sentence and what would help. Pure; facts come from elsewhere."""

from collections.abc import Iterable, Mapping, Sequence

from isochrone_wire.credentials import format_fingerprint
from isochrone_wire.health_check import CheckResult, fail, ok, warn

_MIB = 1 << 20
_LITTLE_BYTES = 512 * _MIB
_NOTHING_BYTES = 64 * _MIB
_NAMED = 3
_MAX_ERROR_US = 100_000


def judge_disk(free_bytes: int, *, where: str) -> CheckResult:
    """Whether a spool at `where` can grow while the collector is away."""
    sentence = f"{free_bytes / (1 << 30):.1f} GiB free at {where}"
    if free_bytes < _NOTHING_BYTES:
        return fail("disk", sentence, "make room: a sample that cannot be written is dropped")
    if free_bytes < _LITTLE_BYTES:
        return warn("disk", sentence, "make room for a collector that stays away for days")
    return ok("disk", sentence)


def judge_spool(problems: Sequence[str], *, waiting: int) -> CheckResult:
    """Whether everything in a spool can be read. `problems` are sentences."""
    if problems:
        hint = "isochrone-agent spool verify lists all; the agent salvages what it can when it starts"
        return fail("samples", "; ".join(problems[:_NAMED]), hint)
    return ok("samples", f"{waiting} wait, and all that is kept can be read")


def judge_identity_file(mode: int, *, where: str) -> CheckResult:
    """Whether a file with these permission bits keeps its secret."""
    if mode & 0o077:
        return fail("identity", f"{where} can be read by others (mode {mode:04o})", f"chmod 600 {where}")
    return ok("identity", f"{where} is its owner's alone")


def judge_certificate(presented: bytes, pinned: bytes | None) -> CheckResult:
    """Whether the collector shows the certificate that joining has pinned; both are SHA-256 of DER."""
    shown = format_fingerprint(presented)
    if pinned is None:
        return ok("certificate", f"{shown}, believed because the system's authorities vouch for it")
    if presented != pinned:
        hint = "if it was replaced on purpose, join again; if not, somebody stands between"
        return fail("certificate", f"the collector shows {shown}, not {format_fingerprint(pinned)}", hint)
    return ok("certificate", f"{shown}, as when this agent joined")


def judge_clock(synchronised: bool | None, *, max_error_us: int) -> CheckResult:  # what the kernel says
    """What the kernel knows of the wall clock; `None` where it cannot be asked."""
    if synchronised is None:
        return warn("clock", "this system does not tell whether NTP keeps it", "let NTP keep it")
    if not synchronised:
        hint = "start chrony or systemd-timesyncd; rounds of two vantages are paired by the clock"
        return warn("clock", "the kernel says that nobody keeps it", hint)
    sentence = f"kept, at most {max_error_us / 1000:.0f} ms off"
    return ok("clock", sentence) if max_error_us <= _MAX_ERROR_US else warn("clock", sentence, "look at the NTP source")


def judge_keys(missing: Mapping[str, str], present: Iterable[str]) -> CheckResult:
    """Whether the plan's targets have their keys. `missing` is target → why; keys themselves are nowhere here."""
    if missing:
        said = "; ".join(f"{target}: {why}" for target, why in sorted(missing.items()))
        return fail("keys", said, "see credentials.toml; rounds of these targets are skipped_not_ready")
    names = ", ".join(sorted(set(present)))
    return ok("keys", names or "no target needs one")


def judge_names(unresolved: Mapping[str, str], resolved: Sequence[str]) -> CheckResult:
    """Whether the hosts of the plan's targets have addresses. `unresolved` is host → why."""
    if unresolved:
        said = "; ".join(f"{host}: {why}" for host, why in sorted(unresolved.items()))
        return fail("names", said, "look at the resolver, /etc/resolv.conf, and the plan's base_url")
    return ok("names", f"{', '.join(sorted(resolved)) or 'none'}")
