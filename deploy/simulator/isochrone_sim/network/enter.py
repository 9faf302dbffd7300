"""Run a command in namespaces: python -m isochrone_sim.network.enter PATH … -- COMMAND …

The command takes the place of this process.
"""

import os
import sys

from isochrone_sim.network.kernel import enter_namespace, open_namespace


def main() -> None:
    """Enter the namespaces in their order and run the command. Raises `OSError`."""
    end = sys.argv.index("--")
    # All are opened first: from within the first one the paths of the others may not be readable.
    for namespace in [open_namespace(path) for path in sys.argv[1:end]]:
        enter_namespace(namespace)
    command = sys.argv[end + 1 :]
    os.execvp(command[0], command)  # noqa: S606  # the caller's command


if __name__ == "__main__":
    main()
