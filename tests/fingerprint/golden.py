"""Read the golden file. Run as a module it prints a new one, for a new format version only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django_jobdedup.fingerprint.digest import FORMAT, describe, shard_of

from .values import printed

FILE = Path(__file__).with_name(f"golden_v{FORMAT}.json")

NAMES = ("", "shop.tasks.build_report", "shop.tasks.sync", "a", "b", "é", "\u4e2d\u6587", "x" * 300)
SHARDS = (1, 2, 16, 64)


def made() -> dict[str, Any]:
    """Return what this version makes of every case."""
    plain = describe({"tenant": "acme"}, "shop.report", '{"tenant_id":42}')
    secret = describe({"tenant": "acme"}, "shop.report", '{"tenant_id":42}', "s3cret é")
    return {
        **json.loads(printed()),
        "whole": plain.text,
        "sha256": plain.hex,
        "hmac": secret.hex,
        "shards": {name: [shard_of(name, shards) for shards in SHARDS] for name in NAMES},
    }


def kept() -> dict[str, Any]:
    """Return what is written down for ever."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
    return found


if __name__ == "__main__":
    print(json.dumps(made(), indent=1, sort_keys=True))
