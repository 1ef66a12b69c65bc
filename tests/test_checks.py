"""System checks: each finds its mistake, names it by id, and is quiet where there is none."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from celery import current_app
from celery.signals import import_modules
from django.core import checks as django_checks
from django.core import mail
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from redis import Redis

import django_jobdedup.checks
from django_jobdedup.checks import eager, eviction, middleware, register, stores
from django_jobdedup.checks import settings as of_settings
from django_jobdedup.checks.ids import OTHER_IDS, SETTING_IDS
from django_jobdedup.checks.messages import TAG
from django_jobdedup.conf import LATER, SETTINGS
from django_jobdedup.middleware.base import Middleware
from django_jobdedup.middleware.locking import LockingMiddleware
from django_jobdedup.policies.unique import Unique
from django_jobdedup.strategies.wait import Wait

REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
DJANGOS = "django.core.cache.backends.redis.RedisCache"
MEMORY = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}

WRONG = {
    "MODE": "on",
    "STORES": [],
    "NAMESPACE": "a:b",
    "SCOPE": 3,
    "TASKS": [],
    "DEFAULTS": "ttl",
    "MIDDLEWARE": "a.b",
    "REQUIRE_WORKER": 1,
    "CONFIRM_WITHIN": 0,
    "SHARDS": 0,
    "GRACE": True,
    "FINGERPRINT_SECRET": "",
    "RETENTION": "a week",
    "EAGER": True,
    "HISTORY": "all",
}


class Own(Middleware):
    """A middleware that locks nothing."""


class Locking(LockingMiddleware):
    """A locking middleware of a project's own."""


def tenant():
    return "acme"


def tenant_of(request):
    return request


def ids(found):
    return [message.id for message in found]


# Settings


def test_the_settings_of_the_tests_are_fine():
    for check in register.CHECKS:
        assert list(check(app_configs=None)) == []


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_wrong_value_is_reported_under_the_id_of_its_setting(settings, setting):
    setattr(settings, setting.full_name, WRONG[setting.name])
    (found,) = of_settings.check_settings()

    assert found.id == f"jobdedup.{SETTING_IDS[setting.name]}"
    assert found.level == django_checks.ERROR
    assert setting.full_name in found.msg
    assert repr(setting.default) in found.hint


def test_all_wrong_values_are_reported_at_once(settings):
    for setting in SETTINGS:
        setattr(settings, setting.full_name, WRONG[setting.name])

    assert ids(of_settings.check_settings()) == [f"jobdedup.{number}" for number in SETTING_IDS.values()]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_a_wrong_value_is_reported_by_one_check_only(settings, setting):
    setattr(settings, setting.full_name, WRONG[setting.name])

    assert [message.id for check in register.CHECKS for message in check()] == [
        f"jobdedup.{SETTING_IDS[setting.name]}"
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("JOBDEDUP_NAMESPCE", "Did you mean JOBDEDUP_NAMESPACE?"),
        ("JOBDEDUP_STORE", "Did you mean JOBDEDUP_STORES?"),
        ("JOBDEDUP_LEASE", "An option of all policies is written JOBDEDUP_DEFAULTS = {'lease': ...}."),
        ("JOBDEDUP_COLOUR", "Known: JOBDEDUP_MODE, JOBDEDUP_STORES"),
    ],
)
def test_a_setting_that_does_not_exist_is_warned_of(settings, name, hint):
    setattr(settings, name, 1)
    (found,) = of_settings.check_setting_names()

    assert found.id == "jobdedup.W105"
    assert found.msg == f"There is no setting {name}: it does nothing."
    assert hint in found.hint


@pytest.mark.parametrize("name", LATER)
def test_a_setting_of_a_later_version_is_said_to_be_one(settings, name):
    setattr(settings, f"JOBDEDUP_{name}", True)
    (found,) = of_settings.check_setting_names()

    assert found.id == "jobdedup.W105"
    assert f"JOBDEDUP_{name} is not built yet" in found.msg


# JOBDEDUP_TASKS and JOBDEDUP_DEFAULTS


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"unique": {"tl": 3}}, "JOBDEDUP_TASKS['shop.*']: Unique has no option 'tl'"),
        ({"unique": {"ttl": -3}}, "JOBDEDUP_TASKS['shop.*']: Unique option ttl needs"),
        ({"unique": "until_executed"}, "JOBDEDUP_TASKS['shop.*']: unique= needs True, False, a dict"),
        ({"unique": {"policy": "unique", "tl": 3}}, "JOBDEDUP_TASKS['shop.*']: Unique has no option 'tl'"),
        ({"ttl": 3}, "JOBDEDUP_TASKS['shop.*'] has the unknown key 'ttl'"),
        ({"throttle": True}, "JOBDEDUP_TASKS['shop.*']: throttle= is not built yet"),
        (True, "JOBDEDUP_TASKS['shop.*'] needs a dict"),
    ],
)
def test_an_entry_of_tasks_that_is_no_policy_is_reported(settings, entry, part):
    settings.JOBDEDUP_TASKS = {"shop.*": entry, "fine.*": {"unique": True}}
    (found,) = of_settings.check_task_settings()

    assert found.id == "jobdedup.E101"
    assert part in found.msg


@pytest.mark.parametrize(
    "said",
    [
        True,
        False,
        None,
        {"keep_on_failure": True},
        {"lock": "until_expired"},
        {"on_conflict": "raise"},
        Unique(ttl=3),
        {"policy": "unique", "ttl": 3},
    ],
)
def test_an_entry_may_hold_options_that_only_the_task_completes(settings, said):
    settings.JOBDEDUP_TASKS = {"shop.*": {"unique": said}}

    assert of_settings.check_task_settings() == []


@pytest.mark.parametrize(
    ("defaults", "part"),
    [
        ({"tl": 3}, "JOBDEDUP_DEFAULTS: Unique has no option 'tl'"),
        ({"lease": "3"}, "JOBDEDUP_DEFAULTS: Unique option lease needs"),
        ({"lock_name": "all"}, "JOBDEDUP_DEFAULTS cannot set lock_name"),
    ],
)
def test_a_default_that_is_no_option_is_reported(settings, defaults, part):
    settings.JOBDEDUP_DEFAULTS = defaults
    (found,) = of_settings.check_default_options()

    assert found.id == "jobdedup.E102"
    assert part in found.msg


def test_defaults_that_are_options_are_fine(settings):
    settings.JOBDEDUP_DEFAULTS = {"ttl": 60, "on_conflict": "log"}

    assert of_settings.check_default_options() == []


# JOBDEDUP_SCOPE


@pytest.mark.parametrize("scope", ["nowhere.tenant", "tenant", tenant_of, "django.VERSION"])
def test_a_scope_that_cannot_be_called_without_arguments_is_reported(settings, scope):
    settings.JOBDEDUP_SCOPE = scope
    (found,) = of_settings.check_scope()

    assert found.id == "jobdedup.E106"
    assert repr(scope) in found.msg
    assert "without arguments" in found.hint


@pytest.mark.parametrize("scope", [tenant, f"{__name__}.tenant", lambda: 1, "builtins.dict"])
def test_a_scope_that_can_be_called_is_fine(settings, scope):
    """``dict`` does not tell its signature: then it is given the benefit of the doubt."""
    settings.JOBDEDUP_SCOPE = scope

    assert of_settings.check_scope() == []


# JOBDEDUP_MIDDLEWARE


@pytest.mark.parametrize("path", ["nowhere.Middleware", "django_jobdedup.middleware.nothing", "Middleware"])
def test_a_middleware_that_cannot_be_imported_is_reported(settings, path):
    settings.JOBDEDUP_MIDDLEWARE = [path]
    (found,) = middleware.check_middleware()

    assert found.id == "jobdedup.E105"
    assert f"cannot import '{path}'" in found.msg


@pytest.mark.parametrize("path", ["builtins.dict", f"{__name__}.tenant"])
def test_a_path_that_is_no_middleware_is_reported(settings, path):
    settings.JOBDEDUP_MIDDLEWARE = [path]
    (found,) = middleware.check_middleware()

    assert found.id == "jobdedup.E105"
    assert f"'{path}' is no middleware" in found.msg
    assert "Subclass" in found.hint


@pytest.mark.parametrize("paths", [[], [f"{__name__}.Own"]])
def test_middleware_that_locks_nothing_is_warned_of(settings, paths):
    settings.JOBDEDUP_MIDDLEWARE = paths
    (found,) = middleware.check_middleware()

    assert found.id == "jobdedup.W101"
    assert "nothing is locked" in found.msg
    assert "LockingMiddleware" in found.hint


def test_a_locking_middleware_of_ones_own_locks(settings):
    settings.JOBDEDUP_MIDDLEWARE = [f"{__name__}.Own", f"{__name__}.Locking"]

    assert middleware.check_middleware() == []


# Stores


def test_locks_on_a_cache_of_their_own_are_fine(settings):
    settings.CACHES = {"default": MEMORY, "jobdedup": REDIS}

    assert stores.check_stores() == []


@pytest.mark.parametrize("others", [{}, {"jobdedup": MEMORY}])
def test_locks_on_the_default_cache_are_warned_of(settings, others):
    settings.CACHES = {"default": REDIS, **others}
    (found,) = stores.check_stores()

    assert found.id == "jobdedup.W102"
    assert "clear() frees them, its eviction forgets them" in found.msg
    assert "'jobdedup': {'BACKEND': 'django_redis.cache.RedisCache'" in found.hint


@pytest.mark.parametrize("others", [{}, {"default": REDIS}])
def test_an_alias_of_ours_with_another_backend_is_named(settings, others):
    settings.CACHES = {"jobdedup": {"BACKEND": DJANGOS, "LOCATION": "redis://127.0.0.1:1/0"}, **others}
    (found,) = stores.check_stores()

    assert found.id == ("jobdedup.W102" if others else "jobdedup.E107")
    assert f"The cache alias \"jobdedup\" cannot keep locks: its BACKEND is '{DJANGOS}'" in found.msg
    assert "'jobdedup': {'BACKEND': 'django_redis.cache.RedisCache'" in found.hint


@pytest.mark.parametrize("backend", [MEMORY, {"BACKEND": "nowhere.Cache"}])
def test_no_redis_at_all_is_an_error(settings, backend):
    settings.CACHES = {"default": backend}
    (found,) = stores.check_stores()

    assert found.id == "jobdedup.E107"
    assert "'jobdedup': {'BACKEND': 'django_redis.cache.RedisCache'" in found.hint


@pytest.mark.parametrize(
    "entry", ["redis://", {}, {"BACKEND": "nowhere.Store"}, {"BACKEND": "builtins.dict", "TIMEOUT": 3}]
)
def test_an_alias_that_is_no_store_is_reported(settings, entry):
    settings.JOBDEDUP_STORES = {"locks": entry}
    (found,) = stores.check_stores()

    assert found.id == "jobdedup.E108"
    assert "JOBDEDUP_STORES['locks']" in found.msg


@pytest.mark.parametrize("location", ["redis://127.0.0.1:6379/1", "nowhere", "", "plain"])
def test_a_location_that_django_redis_does_not_serve_is_reported(settings, location):
    settings.CACHES = {"default": REDIS, "plain": {"BACKEND": DJANGOS, "LOCATION": "redis://127.0.0.1:1/0"}}
    settings.JOBDEDUP_STORES = {
        "locks": {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": location}
    }
    (found,) = stores.check_stores()

    assert found.id == "jobdedup.E108"
    assert "JOBDEDUP_STORES['locks'][\"LOCATION\"] is " in found.msg
    assert repr(location) in found.msg


@pytest.fixture
def outside_tests(monkeypatch):
    """Let the checks believe that no test runs."""
    monkeypatch.delattr(mail, "outbox")


@pytest.mark.parametrize(("debug", "expected"), [(True, []), (False, ["jobdedup.W103"])])
def test_the_memory_store_without_debug_is_warned_of(settings, outside_tests, debug, expected):
    settings.DEBUG = debug
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}

    assert ids(stores.check_stores()) == expected


def test_the_memory_store_is_not_warned_of_in_tests(settings):
    settings.DEBUG = False
    settings.JOBDEDUP_STORES = {"default": {"BACKEND": "django_jobdedup.stores.memory.MemoryStore"}}

    assert stores.check_stores() == []


@pytest.fixture
def redis_of_locks(settings, lock_server):
    """The server of the locks, with a bound on its memory."""
    settings.CACHES = {"jobdedup": {**REDIS, "LOCATION": lock_server.url}}
    with Redis.from_url(lock_server.url) as client:
        client.config_set("maxmemory", "100mb")
        yield client


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-random"])
def test_a_redis_that_evicts_keys_is_warned_of(redis_of_locks, policy):
    """Case U46 (a): what is evicted opens the lock, so the check says it before."""
    redis_of_locks.config_set("maxmemory-policy", policy)
    (found,) = eviction.check_eviction()

    assert found.id == "jobdedup.W110"
    assert f"The Redis of the store 'default' evicts keys when memory is short ({policy})" in found.msg
    assert "maxmemory-policy noeviction" in found.hint
    assert "W110" not in str(django_checks.run_checks(tags=["jobdedup"])), "asked with --deploy alone"


def test_a_redis_that_keeps_its_keys_is_fine(redis_of_locks):
    assert eviction.check_eviction() == []
    redis_of_locks.config_set("maxmemory-policy", "volatile-lru")
    redis_of_locks.config_set("maxmemory", "0")
    assert eviction.check_eviction() == [], "nothing is evicted without a bound"


def test_a_redis_that_does_not_answer_says_nothing_of_eviction(settings):
    settings.CACHES = {"jobdedup": REDIS}
    assert eviction.check_eviction() == []


# Eager


@pytest.fixture
def always_eager():
    current_app.conf.task_always_eager = True
    yield
    current_app.conf.task_always_eager = False


@pytest.mark.parametrize(("debug", "expected"), [(True, []), (False, ["jobdedup.W107"])])
def test_always_eager_without_debug_is_warned_of(settings, outside_tests, always_eager, debug, expected):
    settings.DEBUG = debug

    assert ids(eager.check_eager()) == expected


def test_always_eager_is_not_warned_of_in_tests(settings, always_eager):
    settings.DEBUG = False

    assert eager.check_eager() == []


def test_a_project_that_publishes_is_not_warned_of(settings, outside_tests):
    settings.DEBUG = False

    assert eager.check_eager() == []


# Tasks


@pytest.fixture
def declared():
    """Register a task for the time of a test."""
    made = []

    def declare(**options):
        @current_app.task(name="tests.declared", shared=False, **options)
        def declared(tenant_id, period="2026-08"):
            pass

        current_app.tasks.register(declared)
        made.append(declared.name)

    yield declare
    for name in made:
        del current_app.tasks[name]


def check_command(capsys):
    """Run ``manage.py check --tag jobdedup`` and return what it says."""
    try:
        call_command("check", "--tag", "jobdedup")
    except SystemCheckError as error:
        return str(error)
    printed = capsys.readouterr()
    return printed.out + printed.err


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"unique": Unique(key="tenant")}, "key names 'tenant', which the task does not take"),
        ({"unique": {"key": ["tenant_id", "perod"]}}, "did you mean 'period'?"),
        ({"unique": {"ttl": "an hour"}}, "policy of 'tests.declared': Unique option ttl needs"),
        ({"unique": {"lock": "until_expired"}}, 'The lock "until_expired" is freed by its ttl alone'),
        ({"unique": "until_executed"}, "task 'tests.declared': unique= needs True, False, a dict"),
        ({"debounce": True}, "task 'tests.declared': debounce= is not built yet"),
    ],
)
def test_a_task_whose_policy_cannot_work_is_reported(declared, capsys, options, part):
    declared(**options)
    said = check_command(capsys)

    assert "(jobdedup.E103)" in said
    assert part in said


def test_a_start_that_would_wait_longer_than_the_broker_is_reported(declared, capsys, monkeypatch):
    waiting = Unique("while_executing", on_conflict=Wait(30))
    declared(unique=waiting)
    assert "no issues" in check_command(capsys)

    monkeypatch.setitem(current_app.conf, "broker_transport_options", {"visibility_timeout": 60})
    said = check_command(capsys)
    assert "(jobdedup.E103)" in said
    assert (
        "task 'tests.declared': Wait(30) is above a third of the broker's visibility timeout (60 s)" in said
    )


@pytest.mark.parametrize("options", [{}, {"unique": True}, {"unique": Unique(key=["tenant_id"])}])
def test_tasks_with_a_policy_that_works_or_none_are_fine(declared, capsys, options):
    declared(**options)

    assert "no issues" in check_command(capsys)


def test_a_task_that_names_an_unknown_store_is_reported(declared, capsys):
    declared(unique={"store": "locks"})
    said = check_command(capsys)

    assert "(jobdedup.E109)" in said
    assert "names the store 'locks', which JOBDEDUP_STORES does not have" in said
    assert "Known stores: default" in said


def test_a_project_that_lists_its_stores_is_told_to_list_the_default_as_well(declared, capsys, settings):
    memory = "django_jobdedup.stores.memory.MemoryStore"
    declared(unique=True)
    settings.JOBDEDUP_STORES = {"durable": {"BACKEND": memory}}
    said = check_command(capsys)

    assert "names the store 'default', which JOBDEDUP_STORES does not have" in said
    assert 'add "default": {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": ' in said


def test_a_task_under_wrong_settings_is_left_to_the_check_of_the_settings(declared, capsys, settings):
    declared(unique=True)
    settings.JOBDEDUP_DEFAULTS = "ttl"
    said = check_command(capsys)

    assert "(jobdedup.E006)" in said
    assert "E103" not in said


@pytest.mark.parametrize("defaults", [{"lock_name": "all"}, {"tl": 3}, {"ttl": "an hour", "lease": 3}])
def test_a_wrong_default_is_reported_once_and_not_for_each_task(declared, capsys, settings, defaults):
    declared(unique=True)
    settings.JOBDEDUP_DEFAULTS = defaults
    said = check_command(capsys)

    assert said.count("(jobdedup.E102)") == 1
    assert "E103" not in said


def test_the_other_defaults_still_count_beside_a_wrong_one(declared, capsys, settings):
    declared(unique={"lock": "until_expired"})
    settings.JOBDEDUP_DEFAULTS = {"ttl": 60, "tl": 3}
    said = check_command(capsys)

    assert "(jobdedup.E102)" in said
    assert "E103" not in said


def test_a_wrong_entry_of_tasks_is_reported_once_and_not_for_each_task(declared, capsys, settings):
    declared(unique={"ttl": "an hour"})
    settings.JOBDEDUP_TASKS = {"tests.*": {"unique": {"tl": 3}}}
    said = check_command(capsys)

    assert said.count("Unique has no option 'tl'") == 1
    assert "E103" not in said


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("tests.declred", "Did you mean 'tests.declared'? If it is"),
        ("legacy.*", "If it is for a task of other workers"),
        ("celery.*", "If it is for a task of other workers"),
    ],
)
def test_a_key_of_tasks_that_matches_no_task_is_warned_of(declared, capsys, settings, key, hint):
    declared()
    settings.JOBDEDUP_TASKS = {key: {"unique": True}, "tests.decl*": {"unique": True}, "tests.declared": {}}
    said = check_command(capsys)

    assert said.count("(jobdedup.W106)") == 1
    assert f"JOBDEDUP_TASKS['{key}'] matches no task." in said
    assert hint in said


# What beat sends


@pytest.fixture
def schedules(settings):
    """Give entries to beat, for the time of a test."""

    def give(**tasks):
        entries = {name: {"task": task, "schedule": 60.0} for name, task in tasks.items()}
        current_app.conf.beat_schedule = entries

    yield give
    current_app.conf.beat_schedule = {}


def test_a_task_that_beat_does_not_import_is_warned_of(declared, schedules, capsys):
    """Case U10: sent by name it goes past its policy, as far as the worker."""
    declared(unique=True)
    schedules(seen="tests.declared", unseen="app.sync", own="celery.backend_cleanup")
    said = check_command(capsys)

    assert said.count("(jobdedup.W109)") == 1
    assert "Beat's entry 'unseen' sends 'app.sync', which nothing here imports" in said
    assert "write JOBDEDUP_TASKS['app.sync']" in said


def test_a_policy_in_the_settings_is_known_to_beat(schedules, capsys, settings):
    schedules(unseen="app.sync")
    settings.JOBDEDUP_TASKS = {"app.*": {"unique": {"key": "pk"}}}

    assert "W109" not in check_command(capsys)


def test_a_task_module_that_cannot_be_imported_is_reported(capsys):
    def discover(**_):
        import_module("tests.no_such_module")

    import_modules.connect(discover, weak=False)
    try:
        said = check_command(capsys)
    finally:
        import_modules.disconnect(discover)

    assert "(jobdedup.E104)" in said
    assert "ModuleNotFoundError: No module named 'tests.no_such_module'" in said
    assert ", line " in said


def test_other_commands_do_not_look_at_tasks(declared):
    """They run all checks first, and would import every task module."""
    declared(unique={"ttl": "an hour"})

    assert django_checks.run_checks(tags=["jobdedup"]) == []


def run(source):
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_other_commands_import_no_task_module():
    said = run(
        "import os, sys; os.environ['DJANGO_SETTINGS_MODULE'] = 'testproject.settings'\n"
        "import django; django.setup()\n"
        "from django.core.checks import run_checks; print(run_checks())\n"
        "print('testproject.shop.tasks' in sys.modules)\n"
    )

    assert said.split() == ["[]", "False"]


def test_a_project_without_a_celery_app_is_warned():
    said = run(
        "from django.conf import settings\n"
        "settings.configure(INSTALLED_APPS=['django_jobdedup'], CACHES={'default': "
        f"{MEMORY}, 'jobdedup': {REDIS}}})\n"
        "import django; django.setup()\n"
        "from django.core.management import call_command; call_command('check', '--tag', 'jobdedup')\n"
    )

    assert "(jobdedup.W104) No Celery app is loaded, so no task was checked." in said
    assert "Import your Celery app in the __init__.py" in said


# Ids


def test_every_setting_has_an_id_of_its_own():
    assert list(SETTING_IDS) == [setting.name for setting in SETTINGS]
    numbers = [*SETTING_IDS.values(), *OTHER_IDS]
    assert len(set(numbers)) == len(numbers)


SOURCE = "".join(path.read_text() for path in Path(django_jobdedup.checks.__path__[0]).glob("*.py"))


def test_every_id_in_the_code_is_listed_and_every_listed_one_is_used():
    used = re.findall(r'\b(?:error|warning)\(\s*"([EW]\d{3})"', SOURCE)

    assert set(used) == set(OTHER_IDS)


def test_an_id_says_by_its_letter_whether_it_is_an_error():
    assert all(number[0] == "E" for number in re.findall(r'\berror\(\s*"(\w+)"', SOURCE))
    assert all(number[0] == "W" for number in re.findall(r'\bwarning\(\s*"(\w+)"', SOURCE))


def test_every_check_is_registered_under_the_tag():
    register.register_checks()
    registered = [each for each in django_checks.registry.registry.get_checks(True) if TAG in each.tags]

    assert set(registered) == set(register.CHECKS)
    assert len(registered) == len(register.CHECKS)
