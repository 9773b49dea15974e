"""What engines have of their own, to measure against. Each is installed into an environment of its own."""
