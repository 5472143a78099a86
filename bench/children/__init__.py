"""Programs that the benchmark starts, one process per measurement. Each writes one JSON object to the given file."""
