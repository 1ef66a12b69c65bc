"""Settings of the tests: the shop, the jobs of the rig, and one random namespace for every key.

``TEST_NAMESPACE`` is set by the rig (``tests/rig/plugin.py`` for this process, ``tests/rig/environment.py``
for the workers of one test). Broker, results, locks and journal all live below it, so that no test ever
flushes a server and two runs may share one.
"""

from __future__ import annotations

import os

import pymysql

from testproject.settings import *  # noqa: F403
from testproject.settings import (
    CELERY_BROKER_TRANSPORT_OPTIONS,
    CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS,
    INSTALLED_APPS,
    REDIS_URL,
    from_environment,
)
from testproject.settings import (
    DATABASES as SHOP_DATABASES,
)

TEST_NAMESPACE = os.environ["TEST_NAMESPACE"]

# Django's backend for MySQL and MariaDB imports MySQLdb and looks at its version: PyMySQL stands in for it.
pymysql.version_info = (2, 2, 7, "final", 0)  # type: ignore[assignment]
pymysql.install_as_MySQLdb()

JOURNAL_URL = os.environ.get("JOURNAL_URL", REDIS_URL)

INSTALLED_APPS = [*INSTALLED_APPS, "tests.jobs"]

CELERY_BROKER_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{TEST_NAMESPACE}:",
    **CELERY_BROKER_TRANSPORT_OPTIONS,
}
CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS = {
    "global_keyprefix": f"{TEST_NAMESPACE}:",
    **CELERY_RESULT_BACKEND_TRANSPORT_OPTIONS,
}
JOBDEDUP_NAMESPACE = TEST_NAMESPACE
# Most tests dispatch without a worker; the tests of the presence key turn this on.
JOBDEDUP_REQUIRE_WORKER = False
# Most tests have no tables in their default database; those of the history turn this on.
JOBDEDUP_HISTORY = "off"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

globals().update(from_environment("TESTPROJECT_SETTINGS"))
# What a test adds stands beside the databases of the shop.
DATABASES = {**SHOP_DATABASES, **globals()["DATABASES"]}
