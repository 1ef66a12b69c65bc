"""The error of a reading that could not be done in full and surely."""

from __future__ import annotations

from django_jobdedup.exceptions import JobDedupError


class Unreadable(JobDedupError):  # noqa: N818 - a fact, as the family names them
    """The messages of the broker cannot be read in full and surely; ``reason`` says why and what helps."""

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason)

    @property
    def reason(self) -> str:
        """Return the sentence."""
        return str(self)
