"""A soft time limit that strikes inside of us: it is meant for the body, which has to end now."""

from __future__ import annotations

from celery.exceptions import SoftTimeLimitExceeded


def let_pass(error: BaseException) -> None:
    """Raise a soft time limit again; return for any other error, which is for its catcher to answer."""
    if isinstance(error, SoftTimeLimitExceeded):
        raise error
