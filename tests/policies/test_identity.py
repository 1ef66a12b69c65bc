"""The identity of a call that has none: the error names the task and the argument."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from django_jobdedup.exceptions import FingerprintError
from django_jobdedup.policies.identity import identify
from django_jobdedup.policies.unique import Unique

NAME = "shop.tasks.export"


class Task:
    """What ``identify`` asks of a task."""

    @staticmethod
    def run(tenant_id: int, n: object = None) -> None: ...


def of(policy: Unique, *args: object, task: Any = Task, **kwargs: object) -> object:
    return identify(policy, NAME, task, args, kwargs, "celery")


@pytest.mark.parametrize(
    ("policy", "args", "argument", "sentence"),
    [
        (Unique(), (1, object()), "n", "Argument n is of type builtins.object"),
        (Unique(key=lambda *_: object()), (1,), "key()", "Argument key() is of type builtins.object"),
        (Unique(key="tenant"), (1,), "tenant", "key names 'tenant', which the task does not take"),
        (Unique(scope=lambda *_: object()), (1,), "scope", "Argument scope is of type builtins.object"),
    ],
    ids=["argument", "key function", "unknown name", "scope"],
)
def test_an_error_names_task_and_argument(
    policy: Unique, args: tuple[object, ...], argument: str, sentence: str
) -> None:
    with pytest.raises(FingerprintError) as caught:
        of(policy, *args)

    assert str(caught.value).startswith(f"{NAME}: {sentence}")
    assert caught.value.argument == argument


def test_the_error_survives_pickling() -> None:
    with pytest.raises(FingerprintError) as caught:
        of(Unique(), 1, n=object())
    again = pickle.loads(pickle.dumps(caught.value))

    assert (str(again), again.argument) == (str(caught.value), "n")


def test_arguments_that_do_not_fit_keep_the_error_of_the_call() -> None:
    with pytest.raises(TypeError) as caught:
        of(Unique(), 1, 2, 3)

    assert type(caught.value) is TypeError


def test_a_task_that_is_unknown_here_is_left_to_its_worker() -> None:
    assert of(Unique(key="n"), 1, task=None) is None
