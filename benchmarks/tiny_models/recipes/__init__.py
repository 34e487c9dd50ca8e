"""Recipes of single types and families, one file a family."""
