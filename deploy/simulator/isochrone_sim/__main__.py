"""Entry point of `python -m isochrone_sim`, the same as `isochrone-sim`."""

from isochrone_sim.cli import main

main()
