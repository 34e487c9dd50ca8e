"""What benchmarks/declaration.py is put together from."""
