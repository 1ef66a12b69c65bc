"""All strategies by name."""

from __future__ import annotations

from django_jobdedup.strategies.log import Log
from django_jobdedup.strategies.raise_ import Raise
from django_jobdedup.strategies.reading import STRATEGIES, strategy
from django_jobdedup.strategies.reject import Reject
from django_jobdedup.strategies.replace import KeepSoonest, Replace
from django_jobdedup.strategies.rerun import Rerun
from django_jobdedup.strategies.reschedule import Reschedule
from django_jobdedup.strategies.skip import Skip
from django_jobdedup.strategies.wait import Wait

__all__ = ["STRATEGIES", "strategy"]

for _each in (Skip, Log, Raise, Reject, Replace, KeepSoonest, Rerun, Reschedule, Wait):
    STRATEGIES[_each.name] = _each
