from isochrone_client.cli import main

main()
