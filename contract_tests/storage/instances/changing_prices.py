"""Prices that change twice in the time of the tests, and differ by region."""

from control.policy.price_lists import PACKAGED, read

LATER = """
[[prices]]
from = 2031-01-21T03:00:00Z
storage_gb_month = 17.000001
domain_month = 31
[prices.sizes]
s0 = 999
m2 = 12_345.678901
[[prices]]
from = 2031-02-01T09:00:00Z
egress_gb = 0.000001
seat_month = 7
[prices.regions.local]
percent = 133
backup_gb_month = 5.5
"""


BOOK = read(PACKAGED.read_text(encoding="utf-8") + LATER)
