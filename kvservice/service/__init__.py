"""The asyncio shell around the domain: owns the clock, the expiry task and the watchers."""
