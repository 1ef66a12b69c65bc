"""The ids of the checks. Projects silence them: an id never changes its meaning and is never used again."""

from __future__ import annotations

from typing import Final

#: Setting to the id of the check of its value.
SETTING_IDS: Final = {
    "MODE": "E001",
    "STORES": "E002",
    "NAMESPACE": "E003",
    "SCOPE": "E004",
    "TASKS": "E005",
    "DEFAULTS": "E006",
    "MIDDLEWARE": "E007",
    "REQUIRE_WORKER": "E008",
    "CONFIRM_WITHIN": "E009",
    "SHARDS": "E010",
    "GRACE": "E011",
    "FINGERPRINT_SECRET": "E012",
    "RETENTION": "E013",
    "EAGER": "E014",
    "HISTORY": "E015",
}
#: The other checks: id to what is wrong.
OTHER_IDS: Final = {
    "E101": "`JOBDEDUP_TASKS` holds something that is no policy.",
    "E102": "`JOBDEDUP_DEFAULTS` holds something that is no option.",
    "E103": "A task has a policy that cannot work.",
    "E104": "A task module cannot be imported.",
    "E105": "A path in `JOBDEDUP_MIDDLEWARE` is no middleware.",
    "E106": "`JOBDEDUP_SCOPE` is no function without arguments.",
    "E107": "There is no Redis for the locks.",
    "E108": "An alias in `JOBDEDUP_STORES` is no store, or its `LOCATION` cannot keep locks.",
    "E109": "A task names a store that does not exist.",
    "W101": "The locking middleware is missing: nothing is locked.",
    "W102": "The locks share the `default` cache.",
    "W103": "The memory store is in use although `DEBUG` is off.",
    "W104": "No Celery app is loaded, so no task was checked.",
    "W105": "A setting that begins with `JOBDEDUP_` does not exist, or not yet.",
    "W106": "A key of `JOBDEDUP_TASKS` matches no task.",
    "W107": "Celery runs every call in its caller (always-eager) although `DEBUG` is off.",
    "W108": "The tables of the database store, or of dead jobs, are missing.",
    "W109": "Beat sends a task that it has not imported, so past its policy.",
    "W110": "The Redis of a store evicts keys; asked by `check --deploy` alone.",
}
