"""Sphinx: MyST pages, the furo theme, and every reference checked (``-W -n``)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()  # autodoc imports modules that read settings and models

project = "django_jobdedup"
author = "The django_jobdedup authors"
project_copyright = "The django_jobdedup authors"
release = version = "0.1.0"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "django_jobdedup"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_member_order = "bysource"

# Names of other projects have no target here: the build must work without a network.
nitpick_ignore_regex = [(r"py:.*", r"(?!django_jobdedup\b).*")]
