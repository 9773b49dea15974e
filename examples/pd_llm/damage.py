"""Negative controls by name: ways to spoil a transfer, so that a run can show that its checks would notice."""

import enum


class Damage(enum.StrEnum):
    """What `--break` takes. The first two strike the last rank of the decode engine alone."""

    REVERSE_PAGES = "reverse-pages"
    """Offer the destination pages in the reverse order."""
    SKIP_LAST_VALUE_PAGE = "skip-last-value-page"
    """Leave the last page of the last layer's values as if it had not been written."""
    NO_MOVER = "no-mover"
    """Prefill's mover says that writes are done and writes nothing."""
