"""What benchmarks/atom_mapping.py is put together from."""
