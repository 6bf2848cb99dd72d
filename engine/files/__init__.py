"""Memories in files: JSON lines, Parquet and Arrow, compressed or not, read in batches and written."""
