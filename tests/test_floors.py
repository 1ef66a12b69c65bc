"""The package holds to the table of floors on the page ``docs/explanation/architecture.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

import django_jobdedup

from .rig.floors import House, read_floors

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "architecture.md"

TABLE = """
| floor | rooms | may not know |
| --- | --- | --- |
| 0 | `low` `mate` | anything of ours |
| 1 | `middle` | Celery (`celery`, `kombu`), our `hidden` |
| 2 | `left` `right` | each other, except through `middle` and `low` |
| 3 | `__init__` | |
"""


@pytest.fixture(scope="module")
def house() -> House:
    """The real package under the real table."""
    return House(Path(django_jobdedup.__path__[0]), read_floors(PAGE.read_text()))


def test_every_room_is_in_the_table_and_every_room_in_the_table_exists(house: House) -> None:
    assert house.wrong_rooms() == []


def test_imports_point_down_and_no_floor_knows_what_it_may_not(house: House) -> None:
    assert house.wrong_imports() == []


def test_the_inits_of_inner_packages_are_empty(house: House) -> None:
    assert house.full_inits() == []


def test_no_module_is_longer_than_300_lines(house: House) -> None:
    assert house.long_modules() == []


def test_no_module_is_called_utils(house: House) -> None:
    assert house.called_utils() == []


def test_every_room_is_described_on_the_page(house: House) -> None:
    described = PAGE.read_text().split("## What each room is for")[1]
    assert [room for floor in house.floors for room in floor.rooms if f"| `{room}` |" not in described] == []


def build(folder: Path, files: dict[str, str]) -> House:
    """Build a small package below the table above: the rooms of the table, and *files* over them."""
    root = folder / "django_jobdedup"
    rooms = ["low", "mate", "middle", "left", "right", "__init__"]
    for name, text in ({f"{room}.py": "" for room in rooms} | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return House(root, read_floors(TABLE))


def test_a_house_in_order_has_no_complaint(tmp_path: Path) -> None:
    house = build(
        tmp_path,
        {
            "middle.py": "import json\nfrom django_jobdedup.low import x\nfrom . import mate\n",
            "left.py": "import celery\nfrom django_jobdedup import middle, low\n",
            "__init__.py": "from django_jobdedup.left import a\nfrom .right import b\n",
        },
    )
    assert (house.wrong_rooms(), house.wrong_imports(), house.full_inits()) == ([], [], [])
    assert (house.long_modules(), house.called_utils()) == ([], [])


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("low.py", "from django_jobdedup.middle import x", "low.py:1: floor 0 imports `middle` of floor 1"),
        ("low.py", "import django_jobdedup.middle", "imports `middle` of floor 1"),
        ("low.py", "from django_jobdedup import middle", "imports `middle` of floor 1"),
        ("low.py", "from . import middle", "imports `middle` of floor 1"),
        ("low.py", "from .middle import x", "imports `middle` of floor 1"),
        ("low.py", "from django_jobdedup.mate import x", "imports `mate` of floor 0"),
        ("low.py", "from django_jobdedup import Unique", "imports `__init__` of floor 3"),
        ("low.py", "import django_jobdedup", "imports `__init__` of floor 3"),
        ("low.py", "def f():\n    import django_jobdedup.left", "low.py:2: floor 0 imports `left`"),
        ("low.py", "try:\n    from .left import x\nexcept ImportError:\n    pass", "low.py:2"),
        ("low.py", "from importlib import import_module\nimport_module('django_jobdedup.left')", "low.py:2"),
        ("middle.py", "import celery", "floor 1 may not know `celery`, but imports celery"),
        ("middle.py", "import celery.app.base as b", "may not know `celery`, but imports celery.app.base"),
        (
            "middle.py",
            "def f():\n    from kombu.pools import reset",
            "middle.py:2: floor 1 may not know `kombu`",
        ),
        ("middle.py", "from django_jobdedup.hidden import x", "may not know `hidden`"),
        ("left.py", "from django_jobdedup.right import x", "imports `right` of floor 2"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    (found,) = build(tmp_path, {file: text}).wrong_imports()
    assert complaint in found


def test_a_planted_import_in_a_package_is_found_from_any_depth(tmp_path: Path) -> None:
    house = build(tmp_path, {"deep/__init__.py": "", "deep/inner/__init__.py": "", "deep/inner/a.py": ""})
    house = House(house.root, read_floors(TABLE.replace("`low` ", "`low` `deep` ")))
    (house.root / "deep/inner/a.py").write_text(
        "from ...left import x\nfrom .. import inner\nfrom ..b import y\n"
    )
    assert house.wrong_imports() == [
        "deep/inner/a.py:1: floor 0 imports `left` of floor 2; they point down only"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .left import x",
        "import typing\nif typing.TYPE_CHECKING:\n    from .left import x",
        "import celeryish",
        "from django_jobdedup.low import x",
    ],
)
def test_what_is_allowed_is_not_found(tmp_path: Path, text: str) -> None:
    assert build(tmp_path, {"middle.py": text}).wrong_imports() == []


def test_the_else_of_type_checking_counts(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    pass\nelse:\n    from .left import x"
    assert len(build(tmp_path, {"low.py": text}).wrong_imports()) == 1


def test_a_room_outside_the_table_is_found(tmp_path: Path) -> None:
    house = build(tmp_path, {"attic.py": "", "cellar/__init__.py": "", "templates/page.html": ""})
    assert house.wrong_rooms() == ["attic: not in the table of floors", "cellar: not in the table of floors"]


def test_a_row_without_its_room_is_found(tmp_path: Path) -> None:
    house = build(tmp_path, {})
    (house.root / "right.py").unlink()
    assert house.wrong_rooms() == ["right: in the table, but not in the package"]


def test_a_room_on_two_floors_is_found(tmp_path: Path) -> None:
    house = build(tmp_path, {})
    house = House(house.root, read_floors(TABLE.replace("| `middle` |", "| `middle` `low` |")))
    assert house.wrong_rooms() == ["low: twice in the table"]


@pytest.mark.parametrize("name", ["utils.py", "left/utils/a.py", "left/time_utils.py", "left/util.py"])
def test_utils_in_any_form_is_found(tmp_path: Path, name: str) -> None:
    assert build(tmp_path, {name: ""}).called_utils() == [name]


def test_a_long_module_and_a_full_init_are_found(tmp_path: Path) -> None:
    house = build(
        tmp_path, {"low.py": "x = 1\n" * 301, "mate.py": "x = 1\n" * 300, "deep/__init__.py": "x = 1"}
    )
    assert house.long_modules() == ["low.py: 301 lines"]
    assert house.full_inits() == ["deep/__init__.py"]


def test_the_init_of_the_models_is_a_door_and_nothing_else(tmp_path: Path) -> None:
    door = '"""Door."""\nfrom django_jobdedup.models.intent import JobIntent\n__all__ = ["JobIntent"]\n'
    house = build(
        tmp_path, {"models/__init__.py": door, "deep/models/__init__.py": door, "deep/__init__.py": ""}
    )
    assert house.full_inits() == ["deep/models/__init__.py"]
    (house.root / "models/__init__.py").write_text(door + "x = 1\n")
    assert "models/__init__.py" in house.full_inits()
    (house.root / "models/__init__.py").write_text(door + "from django_jobdedup.low import x\n")
    assert "models/__init__.py" in house.full_inits()


def test_the_page_of_the_package_hides_what_the_design_says() -> None:
    """The words of the third column reach the checker as names."""
    hidden = {room: floor.hidden for floor in read_floors(PAGE.read_text()) for room in floor.rooms}
    assert {"celery", "redis", "models"} <= set(hidden["fingerprint"])
    assert "executing" in hidden["dispatching"]
    assert "call" not in hidden["dispatching"]


def test_a_page_without_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no table of floors"):
        read_floors("# Architecture\n")
