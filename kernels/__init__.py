"""One formula a file, compiled with Numba: flat arrays in, flat arrays out.

Import the file of the formula (``from jiyi.kernels import mmr``); this package alone imports neither NumPy nor Numba.
"""
