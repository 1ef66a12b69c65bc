"""Timings of the product, as ratios measured side by side in one run."""
