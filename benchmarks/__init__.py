"""What is measured, against what. Each benchmark is a module of its own with `add_arguments` and `run`."""
