"""Many processes that dispatch at the same moment: ``python -m tests.dispatching.storm '{...}'``.

One process sets Django up, the others are forked from it, so that they start in no time. Prints, as JSON, one
list of ``[outcome, duplicate, id]`` a round; a process that fails prints its traceback and fails the whole.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import traceback
from typing import Any


def main(plan: dict[str, Any]) -> None:
    """Start the processes and gather what they saw.

    ``processes``, ``rounds``, ``task``, ``key`` (with ``{}`` for the round), ``seconds`` of a body,
    ``barrier``: whether a round begins for all at one moment.
    """
    import django

    django.setup()
    from testproject.celery import app

    app.loader.import_default_modules()  # once, before the fork
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(plan["processes"]) if plan["barrier"] else None
    pipes, children = [], []
    for number in range(plan["processes"]):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=dispatch, args=(plan, number, barrier, theirs))
        child.start()
        pipes.append(ours)
        children.append(child)
    seen = [pipe.recv() for pipe in pipes]
    for child in children:
        child.join()
    assert all(child.exitcode == 0 for child in children)
    print("TELL" + json.dumps(list(zip(*seen, strict=True))))


def dispatch(plan: dict[str, Any], number: int, barrier: Any, pipe: Any) -> None:
    """Dispatch once a round."""
    from testproject.celery import app

    try:
        task = app.tasks[plan["task"]]
        seen = []
        for turn in range(plan["rounds"]):
            if barrier is not None:
                barrier.wait(30)
            result = task.delay(plan["key"].format(turn), plan["seconds"])
            seen.append([str(result.outcome), result.duplicate, result.id])
        pipe.send(seen)
    except BaseException:
        traceback.print_exc()
        pipe.close()
        raise


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
