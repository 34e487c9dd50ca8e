"""What the studies of benchmarks/studies.py read: sentences and reactions that were written for them."""
