"""The front door of the room: Django finds the models of an app here and nowhere else."""

from django_jobdedup.models.counter import Counter
from django_jobdedup.models.event import LockEvent
from django_jobdedup.models.intent import JobIntent
from django_jobdedup.models.presence import WorkerPresence

__all__ = ["Counter", "JobIntent", "LockEvent", "WorkerPresence"]
