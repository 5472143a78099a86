"""What each page shows, computed from a run: one module per page. Importing them takes a second, so it is done late."""
