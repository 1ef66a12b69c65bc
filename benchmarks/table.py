"""Timings to ratios, and their table."""

from __future__ import annotations

import statistics

#: Seconds per call of each round, by case; the first case is the plain one.
Timings = dict[str, list[float]]


def table(timings: Timings) -> dict[str, dict[str, float]]:
    """Return microseconds and ratios to the first case, round by round."""
    plain = next(iter(timings.values()))
    return {name: _row(values, plain) for name, values in timings.items()}


def _row(values: list[float], plain: list[float]) -> dict[str, float]:
    ratios = sorted(value / base for value, base in zip(values, plain, strict=True))
    quarter = len(ratios) // 4
    return {
        "us": statistics.median(values) * 1e6,
        "ratio": statistics.median(ratios),
        "low": ratios[quarter],
        "high": ratios[-1 - quarter],
    }


def show(title: str, rows: dict[str, dict[str, float]]) -> None:
    """Print one table."""
    print(f"\n{title:30}       time  ratio  half of the rounds between")
    for name, row in rows.items():
        ratio, low, high = row["ratio"], row["low"], row["high"]
        print(f"  {name:28} {row['us']:7.0f} us  x{ratio:.2f}  {low:.2f} and {high:.2f}", flush=True)
