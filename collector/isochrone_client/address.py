"""Which collectors may be asked, given that nothing is encrypted yet."""

from isochrone_client.errors import AddressError
from isochrone_wire.address import DEFAULT_PORT, parse_address

DEFAULT_COLLECTOR = f"127.0.0.1:{DEFAULT_PORT}"


def loopback_address(text: str) -> str:
    """`host:port` of a collector on this machine; the port may be left out.

    Raises `AddressError` for what is no address, and for an address of another machine: without TLS nothing said to it
    would be private or genuine.
    """
    try:
        address = parse_address(text)
    except ValueError as error:
        raise AddressError(str(error), hint=f"for example --collector {DEFAULT_COLLECTOR}") from error
    if not address.is_loopback:
        there = f"127.0.0.1:{address.port}"
        raise AddressError(
            f"{address} is not on this machine, and without TLS nothing said to it would be private or genuine",
            hint=f"forward the port, `ssh -L {address.port}:{there} {address.host}`, and ask {there}",
        )
    return str(address)
