"""The call of a message that was delivered: what would publish it again."""

from __future__ import annotations

from typing import Any

from django_jobdedup.call import Call, Execution
from django_jobdedup.header import HEADER
from django_jobdedup.middleware.as_sent import ADDED, as_sent


def delivered(execution: Execution, *, retries: int) -> Call:
    """Return the call of a delivery, without what the delivery and our header have added.

    ``retries`` is how many retries the body shall believe to have behind it.
    """
    task: Any = execution.task_object
    signature = task.signature_from_request(task.request, retries=retries, countdown=None)
    options = {name: value for name, value in signature.options.items() if value is not None}
    given = task.request.headers or {}
    headers = {name: value for name, value in given.items() if name not in (HEADER, *ADDED)}
    # Stored or published within this very task, a job without a parent would become a child of its own.
    headers["parent_id"] = task.request.parent_id
    options |= {"headers": headers, **as_sent(task.request)}
    args, kwargs = tuple(signature.args or ()), dict(signature.kwargs or {})
    return Call(execution.task, execution.id, args, kwargs, options, task_object=task)
