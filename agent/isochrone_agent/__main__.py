from isochrone_agent.cli.main import main

main()
