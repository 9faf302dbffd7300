from isochrone_sim.cli import main

main()
