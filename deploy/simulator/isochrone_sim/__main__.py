"""`python -m isochrone_sim` is `isochrone-sim`."""

from isochrone_sim.cli import main

main()
