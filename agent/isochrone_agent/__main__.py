"""`python -m isochrone_agent` runs `isochrone-agent`."""

from isochrone_agent.cli.main import main

main()
