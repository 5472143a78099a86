"""Runs: cells measured in batches into a folder, and the tables written from them."""
