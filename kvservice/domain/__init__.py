"""Pure and synchronous: standard library only, `now` is passed in, no I/O."""
