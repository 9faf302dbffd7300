"""`python -m isochrone_agent` is `isochrone-agent`."""

from isochrone_agent.cli.main import main

main()
