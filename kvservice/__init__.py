"""The KVTransfer service: a control plane for KV-cache transfers. No GPU, no torch, no NIXL."""
