"""The deterministic simulator: the real domain and the real worker side, everything around them made of one seed."""
