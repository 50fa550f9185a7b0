"""The papers' tables as data, their runner and their results. Entry point: `python -m experiments`."""
