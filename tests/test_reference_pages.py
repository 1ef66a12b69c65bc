"""The reference pages say what the code says; each test fails when one of the two moves alone."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from inspect import getsource
from pathlib import Path
from typing import get_args

import pytest

from django_jobdedup import exceptions, signals
from django_jobdedup.checks.ids import OTHER_IDS, SETTING_IDS
from django_jobdedup.conf import SETTINGS
from django_jobdedup.exceptions import JobDedupError, PolicyError
from django_jobdedup.lock_types.registry import LOCK_TYPES
from django_jobdedup.outcomes import Block, Dead, Decision, PutOff, Refuse, Suppress
from django_jobdedup.policies.options import READERS
from django_jobdedup.policies.unique import Unique
from django_jobdedup.strategies.registry import STRATEGIES
from django_jobdedup.strategies.reschedule import JITTER, Reschedule
from django_jobdedup.strategies.wait import Wait

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "reference"
STATES = {"P": "pending", "W": "waiting", "R": "running", "K": "kept"}


def table(page, first_column):
    """Give the rows of the table whose head begins with this cell."""
    lines = (PAGES / page).read_text().splitlines()
    (start,) = [number for number, line in enumerate(lines) if line.startswith(f"| {first_column} |")]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def ticked(text):
    return re.findall(r"`([^`]+)`", text)


# Settings


def test_the_page_of_settings_lists_every_setting_with_kind_default_check_and_line():
    assert table("settings.md", "setting") == [
        [
            f"`{setting.full_name}`",
            setting.kind,
            "two, see below" if setting.name == "MIDDLEWARE" else f"`{setting.default!r}`",
            f"`jobdedup.{SETTING_IDS[setting.name]}`",
            setting.line,
        ]
        for setting in SETTINGS
    ]


def test_the_page_of_settings_shows_the_default_middleware():
    shown = re.search(r"JOBDEDUP_MIDDLEWARE = (\[.*?\])", (PAGES / "settings.md").read_text(), re.DOTALL)
    default = next(setting.default for setting in SETTINGS if setting.name == "MIDDLEWARE")

    assert tuple(ast.literal_eval(shown[1])) == default


# Checks


def test_the_page_of_checks_lists_every_id():
    assert table("checks.md", "id") == [
        *([f"`jobdedup.{n}`", f"`JOBDEDUP_{name}` has a wrong value."] for name, n in SETTING_IDS.items()),
        *([f"`jobdedup.{n}`", line] for n, line in OTHER_IDS.items()),
    ]


# Signals


def sent():
    """Give every signal that the package sends with the names of what it sends, one entry a place."""
    for path in (ROOT / "django_jobdedup").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("send", "signals.send"):
                name = ast.unparse(node.args[0]).removeprefix("signals.")
                yield name, [keyword.arg for keyword in node.keywords]


def test_the_page_of_signals_lists_every_signal():
    assert [ticked(row[0]) for row in table("signals.md", "signal")] == [[name] for name in signals.SIGNALS]


def test_the_page_of_signals_lists_what_is_sent():
    page = {ticked(row[0])[0]: ticked(row[1]) for row in table("signals.md", "signal")}
    places = list(sent())

    assert {name for name, _ in places} == set(page)
    for name, arguments in places:
        assert arguments == page[name]


def test_the_comments_in_the_code_list_the_same_arguments():
    found = re.findall(r"#: .*Arguments: (.*)\n(\w+) = Signal", getsource(signals))
    comments = {name: re.sub(r"\(.*?\)", "", said) for said, name in found}
    page = {ticked(row[0])[0]: ticked(row[1]) for row in table("signals.md", "signal")}

    assert {name: re.findall(r"``(\w+)``", said) for name, said in comments.items()} == page


def test_the_page_of_signals_lists_every_action_of_the_log():
    """The three that a signal comes with have its name."""
    sources = [path.read_text() for path in (ROOT / "django_jobdedup").rglob("*.py")]
    said = {action for source in sources for action in re.findall(r'"action": "(\w+)"', source)}
    levels = {
        action: level.upper()
        for source in sources
        for level, action in re.findall(
            r'logger\.(\w+)\([^"]*"(?:(?!logger\.).)*?"action": "(\w+)"', source, re.DOTALL
        )
    }

    assert {ticked(row[0])[0]: row[1] for row in table("signals.md", "`action`")} == {
        action: levels[action] for action in said - set(signals.SIGNALS)
    }


def test_the_page_of_signals_maps_all_thirteen_reflections_to_signals_that_exist():
    rows = table("signals.md", "reflection")

    assert len({row[0] for row in rows}) == len(rows) == 13
    for _, here in rows:
        assert here.startswith("none") or ticked(here)[0] in signals.SIGNALS


# Errors


def family():
    return [
        value
        for value in vars(exceptions).values()
        if isinstance(value, type) and issubclass(value, JobDedupError)
    ]


def test_the_page_of_errors_lists_the_family_with_parents_and_attributes():
    rows = {ticked(row[0])[0]: row for row in table("errors.md", "error")}

    assert list(rows) == [error.__name__ for error in family()]
    for error in family():
        _, also, attributes, raised = rows[error.__name__]
        parents = [parent.__name__ for parent in error.__bases__ if parent is not JobDedupError]
        assert ticked(also) == parents
        assert ticked(attributes) == list(vars(error()))
        assert raised


def test_the_tree_in_the_code_lists_the_family():
    tree = exceptions.__doc__.split("::")[1]

    assert re.findall(r"(?:──|\n    )\s?([A-Z]\w+)", tree) == [error.__name__ for error in family()]


# Lock types and strategies


def test_the_table_of_lock_types_lists_all_with_taken_and_freed():
    assert [ticked(row[0])[0] for row in table("lock-types-and-strategies.md", "lock | taken")] == list(
        LOCK_TYPES
    )


def test_the_table_of_lock_types_lists_what_they_ask_of_the_store():
    assert table("lock-types-and-strategies.md", "lock | refuses a dispatch while another is") == [
        [
            f"`{each.name}`",
            ", ".join(STATES[state] for state in each.counts) or "never",
            "yes" if each.gated else "no",
            "yes" if each.keeps else "no",
            ", ".join(each.conflicts),
        ]
        for each in LOCK_TYPES.values()
    ]


def test_a_lock_without_a_seat_at_dispatch_is_taken_at_start():
    for name, taken, _ in table("lock-types-and-strategies.md", "lock | taken"):
        assert LOCK_TYPES[ticked(name)[0]].at_dispatch == taken.startswith("at dispatch")


def test_the_table_of_strategies_lists_all_with_their_sides():
    rows = table("lock-types-and-strategies.md", "strategy | at")

    assert [[row[0], row[1]] for row in rows] == [
        [f"`{name}`", ", ".join(each.sides)] for name, each in STRATEGIES.items()
    ]


def test_the_table_of_every_combination_says_where_a_strategy_may_stand():
    rows = table("lock-types-and-strategies.md", "lock | `skip`")
    names = list(STRATEGIES)

    assert [ticked(row[0])[0] for row in rows] == list(LOCK_TYPES)
    for lock, *cells in rows:
        assert cells == [", ".join(stands(ticked(lock)[0], name)) or "no" for name in names]


def stands(lock, name):
    """Give the sides at which a lock takes a strategy."""
    strategy = Wait(5) if name == "wait" else STRATEGIES[name]()
    ttl = {"ttl": 60} if LOCK_TYPES[lock].keeps else {}
    sides = LOCK_TYPES[lock].conflicts
    for side in sides:
        on_conflict = {side: strategy} if len(sides) > 1 else strategy
        try:
            policy = Unique(lock, on_conflict=on_conflict, **ttl)
        except PolicyError:
            continue
        assert getattr(policy, f"{side}_strategy") == strategy
        yield side


def test_the_table_of_every_combination_has_every_strategy():
    page = (PAGES / "lock-types-and-strategies.md").read_text()
    (head,) = [line for line in page.splitlines() if line.startswith("| lock | `skip`")]

    assert ticked(head) == list(STRATEGIES)


@pytest.mark.parametrize("decision", [Suppress(), Refuse(), PutOff(1), Dead("why"), Block(1, Suppress())])
def test_the_table_of_decisions_has_every_decision(decision):
    shown = [ticked(row[0])[0].partition("(")[0] for row in table("lock-types-and-strategies.md", "decision")]

    assert type(decision).__name__ in shown
    assert len(shown) == len(get_args(Decision))


def test_the_page_shows_the_defaults_of_reschedule():
    page = (PAGES / "lock-types-and-strategies.md").read_text()
    default = Reschedule()

    assert (
        f"### `Reschedule(after={default.after:g}, up_to={default.up_to:g}, times={default.times})`" in page
    )
    assert f"spread by {JITTER:.0%}".replace("%", " %") in page


def test_the_page_names_the_strategies_in_force_by_default():
    page = (PAGES / "lock-types-and-strategies.md").read_text()
    policy = Unique()

    assert (
        f"The default is `{policy.dispatch_strategy.name}` where a dispatch conflicts, "
        f"`{policy.execution_strategy.name}` where a start does."
    ) in page


# Policies


def test_the_page_of_policies_lists_every_option_with_its_default():
    rows = table("policies.md", "option")

    assert [ticked(row[0])[0] for row in rows] == list(READERS)
    for name, default, values in rows:
        assert ast.literal_eval(ticked(default)[0]) == getattr(Unique(), ticked(name)[0])
        assert values


@pytest.mark.parametrize("source", [ticked(row[0])[0] for row in table("policies.md", "refused")])
def test_what_the_page_says_is_refused_is_refused(source):
    with pytest.raises(PolicyError):
        eval(source, {"Unique": Unique, "Reschedule": Reschedule})


def test_the_policies_that_the_page_shows_can_be_made():
    page = (PAGES / "policies.md").read_text()
    shown = re.findall(r"@shared_task\(unique=(.*)\)\s+#", page)

    assert len(shown) == 5
    for source in shown:
        made = eval(source, {"Unique": Unique, "timedelta": timedelta})
        assert made is True or isinstance(made if isinstance(made, Unique) else Unique(**made), Unique)
