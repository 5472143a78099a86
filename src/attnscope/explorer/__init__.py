"""The explorer: a web app that shows runs. It reads only their files, and draws the figures of `figures/`."""
