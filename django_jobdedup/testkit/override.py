"""``override_jobdedup``: a test with locks of its own, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from inspect import signature
from typing import Any, Never

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.test.utils import TestContextDecorator, override_settings

from django_jobdedup.conf import BY_NAME, PREFIX, SETTINGS, conf
from django_jobdedup.dispatching.confirm import confirmer
from django_jobdedup.middleware import mistake
from django_jobdedup.suggestion import suggest
from django_jobdedup.testkit.kit import Kit
from django_jobdedup.testkit.memory import Stores

#: Puts settings in force for as long as its context is entered.
Overriding = Callable[[Mapping[str, Any]], AbstractContextManager[Any]]


@contextmanager
def kit_of_a_test(overriding: Overriding, options: Mapping[str, Any]) -> Iterator[Kit]:
    """Give a kit, its settings in force within the block, those in ``options`` among them.

    Raises ImproperlyConfigured where the app is not installed.
    """
    if not (apps.ready and apps.is_installed("django_jobdedup")):
        raise ImproperlyConfigured(
            "override_jobdedup() needs 'django_jobdedup' in INSTALLED_APPS, and a Django that is set up "
            "(by manage.py test, by pytest-django, or by django.setup())."
        )
    kit = Kit()
    memory = Stores(kit.clock)
    settings = {"JOBDEDUP_MODE": "enforce", "JOBDEDUP_EAGER": "enforce", **options}
    settings["JOBDEDUP_STORES"] = memory.setting(settings.get("JOBDEDUP_STORES", conf.STORES) or ["default"])
    confirmer.flush()
    with memory.on_the_shelf(), overriding(settings), kit.listening():
        mistake.forget()
        try:
            yield kit
        finally:
            # What was accepted here must be confirmed here, not in whatever store comes next.
            confirmer.flush()


class override_jobdedup(TestContextDecorator):  # noqa: N801 - named as Django's override_settings
    """Give a test locks of its own: in memory, empty at its start, gone at its end.

    A context manager, ``with override_jobdedup() as jobdedup:``; a decorator of ``unittest.TestCase``
    classes, each of whose tests finds its ``Kit`` as ``self.jobdedup`` (``attr_name`` names it otherwise);
    a decorator of functions, to which ``kwarg_name="jobdedup"`` hands it. Other arguments are settings of
    this app, ``JOBDEDUP_TASKS={...}``; eager calls lock unless ``JOBDEDUP_EAGER="bypass"`` stands there.
    Raises TypeError for a setting of another app, and for one that does not exist.
    """

    def __init__(
        self,
        *unasked: Never,
        attr_name: str | None = "jobdedup",
        kwarg_name: str | None = None,
        **settings: Any,
    ) -> None:
        if unasked:
            raise TypeError("Write @override_jobdedup(), with parentheses, and settings by their names.")
        foreign = [name for name in settings if not name.startswith(PREFIX)]
        if foreign:
            raise TypeError(
                f"override_jobdedup() takes settings that begin with {PREFIX}, not {', '.join(foreign)}: "
                "use Django's override_settings for those."
            )
        for name in settings:
            if name.removeprefix(PREFIX) not in BY_NAME:
                known = [each.full_name for each in SETTINGS]
                raise TypeError(
                    f"override_jobdedup() got {name}, and there is no such setting; {suggest(name, known)}"
                )
        super().__init__(attr_name=attr_name, kwarg_name=kwarg_name)
        self._settings = settings
        self._entered: list[ExitStack] = []

    def decorate_callable(self, func: Any) -> Any:
        """Decorate a function; pytest, which reads its signature, must not see what is filled here."""
        inner: Any = super().decorate_callable(func)
        if self.kwarg_name:
            whole = signature(func)
            rest = [each for name, each in whole.parameters.items() if name != self.kwarg_name]
            inner.__signature__ = whole.replace(parameters=rest)
        return inner

    def enable(self) -> Kit:
        """Begin; return the kit. Raises ImproperlyConfigured where the app is not installed."""
        entered = ExitStack()
        kit = entered.enter_context(kit_of_a_test(lambda named: override_settings(**named), self._settings))
        self._entered.append(entered)
        return kit

    def __enter__(self) -> Kit:  # type: ignore[override] # the annotations know two subclasses
        return self.enable()

    def disable(self) -> None:
        """End: settings and stores are those from before."""
        self._entered.pop().close()
