"""A lag is as long as the instance has not been where the source was."""

from cell.engines.wal_sources import LogPlace
from cell.migrations.lag import SourceLag


def test_it_counts_from_when_the_source_was_there() -> None:
    lag = SourceLag[int]()
    assert lag.seconds(100.0, 5, 5) == 0.0
    assert lag.seconds(101.0, 5, 9) == 1.0, "at most a second too much, and never none"
    assert lag.seconds(102.0, 5, 12) == 2.0
    assert lag.seconds(103.0, 9, 12) == 2.0, "it was at 9 two seconds ago"
    assert lag.seconds(104.0, 12, 12) == 0.0
    assert lag.seconds(200.0, 12, 13) == 96.0, "nobody looked meanwhile"


def test_places_in_files_are_ordered_by_file() -> None:
    lag = SourceLag[LogPlace]()
    assert lag.seconds(1.0, LogPlace(1, 900), LogPlace(1, 900)) == 0.0
    assert lag.seconds(3.0, LogPlace(1, 900), LogPlace(2, 4)) == 2.0
    assert lag.seconds(4.0, LogPlace(2, 4), LogPlace(2, 4)) == 0.0
