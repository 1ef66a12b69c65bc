"""A plain random walk: ten times as fast as one that Hypothesis draws, but it finds no shortest way."""

from __future__ import annotations

from random import Random
from typing import Any

from .walking import Walk

LONGEST = 40
"""Steps of one walk, at most."""


def stroll(machine: type[Walk], seed: int, *, walks: int = 0, steps: int = 0) -> None:
    """Take so many walks, or as many as so many steps need, by the same ways for the same seed.

    Raises what a broken promise raises, with the way to it in its notes.
    """
    random = Random(seed)
    found = [getattr(machine, name) for name in sorted(dir(machine))]
    every = [each for each in found if hasattr(each, "choices")]
    tally = machine.tally
    while tally.walks < walks or tally.steps < steps:
        walk = machine()
        walk.start(random.choice(machine.policies), random.choice(machine.late))
        share = random.uniform(0.3, 1.0)  # each walk leaves some of the steps out
        way = [f"seed {seed}, walk {tally.walks}: {walk}"]
        try:
            take(walk, [step for step in every if random.random() < share], random, way)
        except BaseException as error:
            error.add_note("\n".join(way))
            raise


def take(walk: Walk, steps: list[Any], random: Random, way: list[str]) -> None:
    """Take one walk to its end."""
    for _ in range(LONGEST):
        possible = [step for step in steps if step.when is None or step.when(walk)]
        if not possible:
            break
        step = random.choice(possible)
        chosen = {name: random.choice(options) for name, options in step.choices.items()}
        way.append(f"{step.__name__}({', '.join(f'{name}={value!r}' for name, value in chosen.items())})")
        step(walk, **chosen)
        walk.promises_hold()
    way.append("the end")
    walk.teardown()
