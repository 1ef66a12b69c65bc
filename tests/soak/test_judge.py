"""The judge of the soak finds what it is there for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from . import pen
from .caller import Called
from .judge import judge
from .kinds import KINDS
from .pen import Run


def call(stamp: int, kind: str = "once_late", *, id: str = "", outcome: str = "accepted") -> Called:
    """A call at the moment of its stamp, that takes one second."""
    return Called(kind, "k", stamp, id or f"id{stamp}", outcome, float(stamp), stamp + 1.0)


def run(stamp: int, at: float, kind: str = "once_late", *, id: str = "", seconds: float = 1.0) -> Run:
    """A run with the arguments of a call, that comes to its end."""
    return Run(
        kind,
        "k",
        id or f"id{stamp}",
        stamp,
        "worker",
        False,
        at,
        at + seconds,
        at + seconds,
        "returned",
        True,
    )


def cut(whole: Run) -> Run:
    """The same run, killed at its last sign of life."""
    return replace(whole, ended=None, how="", whole=False)


def judged(calls: list[Called], runs: list[Run], *told: str) -> list[str]:
    """Give the sentences without what they are about; ``told`` are those whose loss is."""
    found = judge(calls, runs, lambda id: "FAILURE" if id in told else "PENDING")
    return [text.split(": ")[0] for text in found]


def test_what_went_well_is_right() -> None:
    calls = [call(0), call(2, id="id0", outcome="suppressed"), call(9)]
    assert judged(calls, [cut(run(0, 1, seconds=3)), run(0, 5), run(9, 10)]) == []


def test_runs_of_one_lock_at_one_time_are_found_even_behind_a_shorter_one() -> None:
    runs = [run(0, 0, seconds=9), run(1, 10), run(2, 10.5)]
    assert judged([call(0), call(1), call(2)], runs) == ["k ran twice at a time, for 0.500 s"]
    runs = [run(0, 0, seconds=9), run(1, 2), run(2, 4)]
    assert judged([call(0), call(1), call(2)], runs) == ["k ran twice at a time, for 1.000 s"] * 2


def test_a_killed_run_counts_until_its_last_sign_of_life() -> None:
    assert judged([call(0), call(1)], [cut(run(0, 0)), run(0, 1), run(1, 3)]) == []


def test_a_job_without_an_end_is_lost() -> None:
    assert judged([call(0)], []) == ["k was lost"]
    assert judged([call(0)], [cut(run(0, 1))]) == ["k was lost"]


def test_an_early_one_may_be_lost_if_it_is_told() -> None:
    assert judged([call(0, "once_early")], []) == ["k was lost"]
    assert judged([call(0, "once_early")], [], "id0") == []
    assert judged([call(0)], [], "id0") == ["k was lost"]


def test_of_one_without_a_lock_before_its_start_nobody_tells() -> None:
    assert judged([call(0, "while_early")], []) == []
    assert judged([call(0, "while_early")], [cut(run(0, 1, "while_early"))]) == ["k was lost"]
    assert judged([call(0, "while_late")], []) == ["k was lost"]


def test_a_job_that_nobody_called_is_found() -> None:
    assert judged([], [run(0, 1)]) == ["k ran as a job that nobody started"]
    refused = call(0, id="unknown", outcome="suppressed")
    assert judged([refused], []) == ["k was refused in favour of a job that nobody started"]


@pytest.mark.parametrize("kind", ["rerun_late", "replace_late"])
def test_a_call_needs_a_run_that_starts_after_it(kind: str) -> None:
    calls = [call(0, kind), call(5, kind, id="id0", outcome="rerun")]
    assert judged(calls, [run(5, 6, kind, id="id0")]) == []
    assert judged(calls, [run(5, 4, kind, id="id0")]) == ["k was followed by no run"]


def test_and_one_with_arguments_as_new() -> None:
    calls = [call(0, "rerun_late"), call(5, "rerun_late", id="id0", outcome="rerun")]
    runs = [run(0, 6, "rerun_late")]
    assert judged(calls, runs) == ["k was followed by a run with older arguments"]


def test_of_two_calls_at_the_same_time_either_is_the_newest() -> None:
    second = replace(call(0, "rerun_late", id="id0", outcome="rerun"), stamp=7, before=0.5, after=1.5)
    assert judged([call(0, "rerun_late"), second], [run(0, 2, "rerun_late")]) == []


def test_a_replaced_job_is_followed_by_the_newer_one() -> None:
    calls = [call(0, "replace_late"), call(5, "replace_late")]
    assert judged(calls, [run(5, 6, "replace_late")]) == []
    assert judged(calls, [cut(run(5, 6, "replace_late"))]) == ["k was followed by no run"] * 2


def test_a_loss_that_is_told_speaks_for_the_calls_before_it() -> None:
    calls = [call(0, "rerun_early"), call(5, "rerun_early")]
    assert judged(calls, [run(0, 2, "rerun_early")], "id5") == []
    assert judged(calls, [run(0, 2, "rerun_early")], "id0") == ["k was lost", "k was followed by no run"]


def test_a_stale_copy_may_run_after_a_loss_that_was_noted() -> None:
    calls = [call(0, "rerun_early"), call(5, "rerun_early", id="id0", outcome="rerun")]
    runs = [cut(run(5, 6, "rerun_early", id="id0")), run(0, 9, "rerun_early")]
    assert judged(calls, runs) == ["k was followed by a run with older arguments"]
    assert judge(calls, runs, lambda _: "SUCCESS", noted={"id0"}) == []


def test_the_mix_has_five_hundred_keys_and_all_calls() -> None:
    assert sum(kind.keys for kind in KINDS) == 500
    assert sum(kind.share for kind in KINDS) == 100


def test_the_pen_writes_starts_signs_and_ends(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    request = SimpleNamespace(id="id1", hostname="w", delivery_info={"redelivered": True})
    with pen.recorded(str(path), request, "once_late", "k", 7) as writing:
        writing.work(3 * pen.TICK)
    with pytest.raises(SystemExit), pen.recorded(str(path), request, "once_late", "k", 7):
        raise SystemExit
    cut_off = pen.Pen(str(path))
    cut_off.write(pen.START, "once_late", "k", "id1", 8, "w", False)
    cut_off.write(pen.SIGN)

    whole, told_to_go, killed = pen.read(path)
    assert (whole.how, whole.whole, whole.redelivered, whole.stamp) == ("returned", True, True, 7)
    assert whole.ended is not None
    assert whole.ended - whole.started >= 3 * pen.TICK
    assert (told_to_go.how, told_to_go.whole) == ("SystemExit", False)
    assert (killed.ended, killed.how, killed.stamp) == (None, "", 8)
    assert killed.seen > killed.started
