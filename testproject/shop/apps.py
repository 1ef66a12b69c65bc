"""The shop: tenants, their invoices, and what is computed from them."""

from __future__ import annotations

from django.apps import AppConfig


class ShopConfig(AppConfig):
    """The only app of the project."""

    name = "testproject.shop"
    default_auto_field = "django.db.models.BigAutoField"
