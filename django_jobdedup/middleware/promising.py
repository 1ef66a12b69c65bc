"""Promising: a call for which somebody waits met a live holder. It is published all the same.

Its task id was given by the caller, or a chain, a group, a chord, a link hangs on it: dropped, that would
wait for ever. The policy's option ``canvas`` says what its message does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from django_jobdedup.call import Call
from django_jobdedup.header import Header
from django_jobdedup.middleware.keeping import app_of
from django_jobdedup.middleware.planning import with_header
from django_jobdedup.middleware.verdict import Verdict
from django_jobdedup.outcomes import Outcome
from django_jobdedup.policies.unique import Unique

#: Result backends from which no other process can read a result, by class.
UNREADABLE: Final = frozenset(("DisabledBackend", "RPCBackend"))


def keep_promise(call: Call, header: Header, token: str) -> Verdict:
    """Return the verdict of a promised call that job ``token`` stands in the way of."""
    going = promised(header, token, _canvas(call))
    if going is header:
        return by_itself(call, header)
    return Verdict(with_header(call, going), Outcome.FOLLOWED, fingerprint=header.fingerprint)


def would_keep(call: Call) -> str:
    """Return what an observed call that is promised would have become, in one word; empty: it would run."""
    canvas = _canvas(call)
    return "" if canvas == "run" else canvas


def by_itself(call: Call, header: Header) -> Verdict:
    """Return the verdict of a promised call that does its work, behind the gate."""
    return Verdict(with_header(call, header), Outcome.BYPASSED, fingerprint=header.fingerprint)


def promised(header: Header, token: str, canvas: str) -> Header:
    """Return the header with which a promised call goes out: the very same where it does its work."""
    if canvas == "follow":
        return replace(header, follow=token)
    return replace(header, mark=token) if canvas == "mark" else header


def _canvas(call: Call) -> str:
    if not isinstance(call.policy, Unique) or call.eager:  # in its caller nothing can be waited for
        return "run"
    if call.policy.canvas == "follow" and (
        call.options.get("ignore_result") or not has_results(app_of(call), call.task_object)
    ):
        return "run"
    return call.policy.canvas


def has_results(app: Any, task_object: Any) -> bool:
    """Say whether the results of a task are kept where a worker can read them."""
    ignored = app.conf.task_ignore_result if task_object is None else task_object.ignore_result
    return not ignored and UNREADABLE.isdisjoint(cls.__name__ for cls in type(app.backend).__mro__)
