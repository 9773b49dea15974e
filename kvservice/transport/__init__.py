"""gRPC: each call is converted, made and converted back."""
