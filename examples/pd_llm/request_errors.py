"""What a request can run into, each with the HTTP status that says so."""


class RequestError(Exception):
    """Root of these; the message is for the caller."""

    status = 500


class BadRequest(RequestError):
    """It cannot be served. The message names the field and its value."""

    status = 400


class RoomInUse(RequestError):
    """A request for the same room is here already."""

    status = 409


class TransferFailed(RequestError):
    """Its KV did not arrive, or its answer was given up."""

    status = 502


class Busy(RequestError):
    """As many rooms are held as may be."""

    status = 503
