"""The report: what was paid, and how much in all."""

from __future__ import annotations

from calls import ask

_, book = ask("/payments")
for payment in book["payments"]:
    print(f"{payment['to']:<8} {payment['cents'] / 100:>10.2f}")
print(f"{'total':<8} {book['cents'] / 100:>10.2f}  in {len(book['payments'])} payments")
