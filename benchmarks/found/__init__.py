"""Heads found by their scores alone: measures and figures of benchmarks/found_blind.py."""
