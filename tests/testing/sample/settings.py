"""Settings of a project with locks, broker and results on one Redis; here it is on a closed port."""

import os

REDIS_URL = os.environ["REDIS_URL"]

SECRET_KEY = "a sample"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_jobdedup", "reports"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "jobdedup": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL},
}

CELERY_BROKER_URL = REDIS_URL
CELERY_RESULT_BACKEND = REDIS_URL

JOBDEDUP_STORES = {
    "default": {"BACKEND": "django_jobdedup.stores.redis.store.RedisStore", "LOCATION": "jobdedup"},
    "durable": {"BACKEND": "django_jobdedup.stores.database.store.DatabaseStore", "LOCATION": "default"},
}
