"""`python -m isochrone_collector` is the command `isochrone-collector`."""

from isochrone_collector.cli.door import main

if __name__ == "__main__":
    main()
