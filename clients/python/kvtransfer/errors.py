"""What can go wrong."""


class KVTransferError(Exception):
    """Root of all errors of this package."""


class InvalidField(KVTransferError, ValueError):
    """An argument is not acceptable. The message begins with the field's name and quotes its value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
