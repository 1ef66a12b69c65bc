"""Sessions over the supported versions: ``nox -l`` lists them, ``nox -s lint`` runs one."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "typing", "docs", "tests"]

DJANGO = {"5.2": "django~=5.2.0", "6.0": "django~=6.0.0", "6.1": "django~=6.1.0"}
CELERY = {
    # The extra [redis] of 5.5 pins redis-py below 6; it runs with 6.4, so pip is told without the extra.
    "5.5": ("celery~=5.5.0", "kombu~=5.5.0", "redis~=6.4.0"),
    "5.6": ("celery[redis]~=5.6.0",),
    "5.7": ("celery[redis]~=5.7.0",),
}
TESTED = [
    (python, django, celery)
    for python in ("3.11", "3.12", "3.13")
    for django in DJANGO
    for celery in CELERY
    if not (python == "3.11" and django.startswith("6"))  # Django 6 needs Python 3.12
]


def groups(session: nox.Session, *names: str) -> None:
    """Install the package and dependency groups of pyproject.toml."""
    session.install("--upgrade", "pip")  # --group needs pip 25.1
    session.install("-e", ".", *(word for name in names for word in ("--group", name)))


@nox.session
@nox.parametrize(("python", "django", "celery"), TESTED)
def tests(session: nox.Session, django: str, celery: str) -> None:
    """Run the suite on one combination of versions."""
    groups(session, "test")
    session.install(DJANGO[django], *CELERY[celery])
    session.run("python", "runtests.py", *session.posargs)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install("--upgrade", "pip")
    session.install("--group", "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python="3.11")
def typing(session: nox.Session) -> None:
    """Check types, strictly."""
    groups(session, "typing")
    session.run("mypy")
    session.run("mypy", "tests/typing/api.py")


@nox.session(python="3.11")
def docs(session: nox.Session) -> None:
    """Build the docs; a warning or a broken reference is an error."""
    groups(session, "docs")
    options = ["-E", "-W", "-n", "--keep-going", "-b", "html"]
    session.run("python", "-m", "sphinx", *options, "docs", "docs/_build/html")


@nox.session(python="3.11")
def bench(session: nox.Session) -> None:
    """Measure what a dispatch and an execution cost, as ratios to plain Celery."""
    groups(session, "test")
    session.run("python", "-m", "benchmarks", *session.posargs)
