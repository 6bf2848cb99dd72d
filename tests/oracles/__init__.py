"""The slow, obvious version of every formula, in plain Python on lists."""
