"""Calls of the Linux kernel that Python 3.11 lacks: namespaces, TUN devices and their addresses.

`python -m isochrone_sim.network.kernel PATH … -- COMMAND …` runs a command in the namespaces, in place of this process.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEW_NETWORK = 0x40000000
_NEW_USER = 0x10000000
_TUNSETIFF = 0x400454CA
_TUN_WITHOUT_HEADER = 0x1001
_SIOCSIFFLAGS = 0x8914
_SIOCSIFADDR = 0x8916
_SIOCSIFNETMASK = 0x891C
_UP_AND_RUNNING = 0x41
_TUN = "/dev/net/tun"


def enter_new_network() -> None:
    """Move this process into a new network namespace, without any privilege where that is not needed.

    Without the privilege to create one, this process first becomes the owner of a new user namespace, in which its user
    and group stay what they are. Raises `OSError`.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _NEW_NETWORK)
    except PermissionError:
        _call("unshare", _NEW_USER | _NEW_NETWORK)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123  # one write, as the kernel demands
                file.write(text)


def open_namespace(path: str) -> int:
    """Return a descriptor of the namespace at `path`, which keeps it in existence. Raises `OSError`."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def enter_namespace(descriptor: int) -> None:
    """Move this process into a namespace of any kind. Raises `OSError`."""
    _call("setns", descriptor, 0)


def create_device(name: str) -> int:
    """Create a TUN device in this network namespace; return its descriptor, which keeps it. Raises `OSError`."""
    descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN_WITHOUT_HEADER))
    return descriptor


def set_address(device: str, address: str, mask: str) -> None:
    """Assign an IPv4 address to a device of this network namespace. Raises `OSError`."""
    for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, mask)):
        packed = struct.pack("16sHH4s16x", device.encode(), socket.AF_INET, 0, socket.inet_aton(value))
        _configure(request, packed)


def set_up(device: str) -> None:
    """Activate a device of this network namespace. Raises `OSError`."""
    _configure(_SIOCSIFFLAGS, struct.pack("16sH22x", device.encode(), _UP_AND_RUNNING))


def _configure(request: int, packed: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, request, packed)


def _call(function: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), function)


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
