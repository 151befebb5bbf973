"""A package, as tests/client has files of the same names."""
