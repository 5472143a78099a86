"""Programs the benchmark starts, one process a measurement. Each writes one JSON object to the file it is given."""
