"""`python -m isochrone_client` is `isochrone`."""

from isochrone_client.cli import main

main()
