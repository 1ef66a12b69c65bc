"""Read the table of floors from the docs and hold the imports of the package against it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "django_jobdedup"
FRONT_DOOR = "__init__"
LONGEST = 300
ROW = re.compile(r"^\| (\d+) \| (.+?) \| (.*?) ?\|$", re.MULTILINE)
MODELS = "models/__init__.py"
"""The only door inside: Django finds the models of an app in it."""
BY_NAME = frozenset({"import_module", "import_string", "__import__"})


@dataclass(frozen=True, slots=True)
class Floor:
    """One row: its number, its rooms, and what they may not know (rooms of ours or foreign modules)."""

    number: int
    rooms: tuple[str, ...]
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Import:
    """One import: where it stands and the full dotted name it reaches for."""

    line: int
    name: str

    def reaches(self, module: str) -> bool:
        """Whether it imports *module* or something inside."""
        return f"{self.name}.".startswith(f"{module}.")


def read_floors(page: str) -> list[Floor]:
    """Read the rows ``| number | `room` ... | may not know |`` of the page.

    In the third column names in backticks are data, but after "except"; the words around them are for
    readers.
    """
    floors = []
    for number, rooms, hidden in ROW.findall(page):
        names = ticked(hidden.split("except")[0])
        others = ticked(rooms) if "each other" in hidden else ()
        floors.append(Floor(int(number), ticked(rooms), (*names, *others)))
    if not floors:
        raise ValueError("The page has no table of floors: | floor | rooms | may not know |")
    return floors


def ticked(text: str) -> tuple[str, ...]:
    """Give the names in backticks."""
    return tuple(re.findall(r"`([^`]+)`", text))


def rooms_of(root: Path) -> set[str]:
    """Give the rooms of the package at *root*: modules and folders with Python in them."""
    modules = {path.stem for path in root.glob("*.py")}
    folders = {path.name for path in root.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    return modules | folders


def room_of(path: Path, root: Path) -> str:
    """Give the room in which a file stands."""
    inside = path.relative_to(root)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def imports_of(path: Path, root: Path) -> Iterator[Import]:
    """Give every import of a file: at the top, in functions, by a literal name; not under TYPE_CHECKING."""
    package = [PACKAGE, *path.relative_to(root).parent.parts]
    yield from _imports_in(ast.parse(path.read_text()), package)


def _imports_in(node: ast.AST, package: list[str]) -> Iterator[Import]:
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for part in node.orelse:
            yield from _imports_in(part, package)
        return
    if isinstance(node, ast.Import):
        yield from (Import(node.lineno, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])
        source = base if node.level else node.module
        yield from (Import(node.lineno, f"{source}.{alias.name}") for alias in node.names)
    elif isinstance(node, ast.Call):
        yield from _import_by_name(node)
    for child in ast.iter_child_nodes(node):
        yield from _imports_in(child, package)


def _import_by_name(node: ast.Call) -> Iterator[Import]:
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    literal = node.args[0] if node.args else None
    if called in BY_NAME and isinstance(literal, ast.Constant) and isinstance(literal.value, str):
        yield Import(node.lineno, literal.value)


class House:
    """The package at *root*, seen with the floors of the table."""

    def __init__(self, root: Path, floors: list[Floor]) -> None:
        self.root = root
        self.floors = floors
        self._floor_of = {room: floor for floor in floors for room in floor.rooms}

    def files(self) -> list[Path]:
        """Give every Python file of the package."""
        return sorted(self.root.rglob("*.py"))

    def wrong_rooms(self) -> list[str]:
        """Give the rooms that only the table or only the package has, and those on two floors."""
        named = [room for floor in self.floors for room in floor.rooms]
        found = rooms_of(self.root)
        return [
            *(f"{room}: not in the table of floors" for room in sorted(found - set(named))),
            *(f"{room}: in the table, but not in the package" for room in sorted(set(named) - found)),
            *(f"{room}: twice in the table" for room in sorted({r for r in named if named.count(r) > 1})),
        ]

    def wrong_imports(self) -> list[str]:
        """Give the imports that point up or sideways, or to what the floor may not know."""
        return [
            f"{path.relative_to(self.root)}:{found.line}: {complaint}"
            for path in self.files()
            for found in imports_of(path, self.root)
            for complaint in self._complaints(room_of(path, self.root), found)
        ]

    def full_inits(self) -> list[str]:
        """Give the inner ``__init__`` files with something in them; the models' may import its own room."""
        inner = [path for path in self.files() if path.name == "__init__.py" and path.parent != self.root]
        full = [path for path in inner if path.read_text().strip() and not self._is_door(path)]
        return [str(path.relative_to(self.root)) for path in full]

    def long_modules(self) -> list[str]:
        """Give the modules over 300 lines."""
        lengths = {path: len(path.read_text().splitlines()) for path in self.files()}
        return [f"{path.relative_to(self.root)}: {n} lines" for path, n in lengths.items() if n > LONGEST]

    def called_utils(self) -> list[str]:
        """Give the modules and folders with "utils" in their name."""
        names = [path.relative_to(self.root) for path in self.files()]
        return [str(name) for name in names if re.search(r"(^|[/_])utils?([/_.]|$)", str(name))]

    def _is_door(self, path: Path) -> bool:
        """Whether this is the models' ``__init__``, with imports of its room and ``__all__`` and no more."""
        if path.relative_to(self.root).as_posix() != MODELS:
            return False
        _, *body = ast.parse(path.read_text()).body  # behind the docstring
        return all(
            (isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{PACKAGE}.models."))
            or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
            for node in body
        )

    def _complaints(self, room: str, found: Import) -> Iterator[str]:
        floor = self._floor_of.get(room)
        if floor is None:
            return  # reported by wrong_rooms
        target = self._target(found)
        if target == room:
            return
        if target is not None:
            other = self._floor_of.get(target)
            if other is not None and other.number >= floor.number:
                yield f"floor {floor.number} imports `{target}` of floor {other.number}; they point down only"
                return
        for name in floor.hidden:
            if found.reaches(f"{PACKAGE}.{name}") or found.reaches(name):
                yield f"floor {floor.number} may not know `{name}`, but imports {found.name}"

    def _target(self, found: Import) -> str | None:
        """Give the room of ours that is imported; None for a foreign module."""
        if not found.reaches(PACKAGE):
            return None
        parts = found.name.split(".")
        hidden = {name for floor in self.floors for name in floor.hidden}
        known = rooms_of(self.root) | set(self._floor_of) | hidden
        return parts[1] if len(parts) > 1 and parts[1] in known else FRONT_DOOR
