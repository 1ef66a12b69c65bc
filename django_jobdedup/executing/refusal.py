"""A worker does not start with a policy that cannot work."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_jobdedup.exceptions import PolicyError
from django_jobdedup.policies.resolve import check_against, policy_of, refuse_unbuilt
from django_jobdedup.policies.unique import Unique
from django_jobdedup.stores.handler import stores


def check_policies(app: Any) -> None:
    """Refuse wrong policies of an app's tasks, all in one message. Raises SystemExit."""
    wrong = [sentence for name in sorted(app.tasks) if (sentence := _wrong(name, app.tasks[name]))]
    if wrong:
        lines = "\n  ".join(wrong)
        raise SystemExit(
            "django_jobdedup: this worker does not start, its tasks have policies that cannot work:"
            f"\n  {lines}"
        )


def _wrong(name: str, task: Any) -> str:
    if name.startswith("celery."):
        return ""
    try:
        refuse_unbuilt(name, task, {})
        policy = policy_of(name, getattr(task, "unique", None))
        if isinstance(policy, Unique):
            check_against(policy, task.run, name)
            stores[policy.store]
    except (PolicyError, ImproperlyConfigured) as error:
        return str(error)
    return ""
