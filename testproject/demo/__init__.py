"""``python -m testproject.demo``: a storm of equal calls, a killed worker, and what came of it.

It starts everything itself (Redis, an SQLite database, a worker), looks at the shop's own log of what ran,
and exits with 1 if a duplicate ran or a job was lost.
"""

from __future__ import annotations
