"""`isochrone watch`: targets from several regions on one screen, kept up to date."""
