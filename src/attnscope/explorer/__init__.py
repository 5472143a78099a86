"""The explorer: a web app over runs. Reads their files alone; what it shows are the figures of `figures/`."""
