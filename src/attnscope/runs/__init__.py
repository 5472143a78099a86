"""Runs: cells measured one by one into a folder, and the tables made of them."""
