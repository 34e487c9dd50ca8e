"""Attention itself: the seam where everything happens, and a readable implementation of the mechanisms."""
