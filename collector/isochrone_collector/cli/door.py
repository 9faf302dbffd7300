"""The door of the command: says which extra to install before anything heavy is imported.

A base install (what an agent needs) has this command too, but not the libraries it stands on.
"""

import sys
from importlib.util import find_spec

_NEEDED = (
    *("alembic", "cryptography", "grpc_health", "grpc_reflection", "numpy", "psycopg", "psycopg_pool", "pydantic"),
    *("scipy", "starlette", "uvicorn", "yaml"),
)
_EXIT_FAILED = 1


def missing_modules() -> list[str]:
    """The modules of the extra `collector` that are not installed here."""
    return [name for name in _NEEDED if find_spec(name) is None]


def main() -> None:
    """Run `isochrone-collector`, or exit 1 naming the extra that is missing."""
    missing = missing_modules()
    if missing:
        sys.stderr.write(
            f"error: isochrone-collector needs {', '.join(missing)}\n"
            "hint: pip install 'isochrone[collector]', or 'isochrone[collector,embedded]' with a PostgreSQL in it\n"
        )
        sys.exit(_EXIT_FAILED)
    from isochrone_collector.cli.main import main as run  # noqa: PLC0415  # only now is it known that this import works

    run()
