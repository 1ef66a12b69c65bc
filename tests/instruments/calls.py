"""A sender in a process of its own: ``python -m tests.instruments.calls <app module> <key> <queue>``."""

from __future__ import annotations

import importlib
import json
import sys

from celery import chain, chord, group


def main(name: str, key: str, queue: str) -> None:
    """Call in every way, and print ``[way, outcome, id]`` of each."""
    module = importlib.import_module(f"tests.instruments.{name}")
    import django

    django.setup()
    if name == "otel_app":
        module.instrument()
    from django_jobdedup import dispatch_many, outcome_of
    from django_jobdedup.dispatching.confirm import confirmer
    from tests.dispatching import jobs
    from tests.jobs import tasks

    def two(way: str, call: object) -> None:
        for _ in range(2):
            result = call()  # type: ignore[operator]
            said.append([way, str(outcome_of(result)), result.id])

    said: list[list[str]] = []
    task, at = tasks.until_executed, {"queue": queue}
    two("apply_async", lambda: task.apply_async((f"{key}-apply",), **at))
    two("send_task", lambda: module.app.send_task(task.name, (f"{key}-send",), **at))
    two("signature", lambda: task.s(f"{key}-sign").set(**at).apply_async())
    two("bulk", lambda: dispatch_many([task.s(f"{key}-bulk").set(**at)])[0])
    two("headers", lambda: task.apply_async((f"{key}-head",), headers={"mine": "1"}, **at))
    result = jobs.traced.apply_async((f"{key}-retry",), **at)
    said.append(["retry", str(result.outcome), result.id])
    steps = [task.si(f"{key}-step-{number}").set(**at) for number in range(3)]
    said.append(["chain", "", chain(*steps).apply_async().id])
    member = task.si(f"{key}-member", 1.0).set(**at)
    for number, result in enumerate(group(member.clone() for _ in range(3)).apply_async()):
        said.append([f"group {number}", "", result.id])
    part, body = task.si(f"{key}-part", 1.0).set(**at), jobs.summing.s(f"{key}-body").set(**at)
    said.append(["chord", "", chord([part, part.clone()], body).apply_async().id])
    said.append(["replace", "", jobs.giving_way.apply_async((f"{key}-replace",), **at).id])
    confirmer.flush()
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
