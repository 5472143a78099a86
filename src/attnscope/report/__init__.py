"""The report: one HTML page that opens anywhere, with the figures, their numbers and what they rest on."""
