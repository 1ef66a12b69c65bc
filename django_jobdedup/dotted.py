"""Classes of a project's own by dotted path: the form in which they travel."""

from __future__ import annotations

from django.utils.module_loading import import_string


def imported(path: str) -> object:
    """Return what stands at a dotted path. Raises ImportError with the end of a sentence."""
    try:
        found: object = import_string(path)
    except Exception as error:  # the module may raise anything as it is imported
        raise ImportError(f"cannot be imported: {type(error).__name__}: {error}") from error
    return found


def path_of(found: type) -> str:
    """Return the dotted path of a class.

    Raises ValueError, with the end of a sentence, for one that another process could not import by it.
    """
    path = f"{found.__module__}.{found.__qualname__}"
    if found.__module__ == "__main__" or "." in found.__qualname__:
        raise ValueError(
            f"travels by its dotted path, and {path} cannot be imported by it: put the class at the top of a "
            "module"
        )
    return path
