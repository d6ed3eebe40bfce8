"""What usage costs: sums of records at the prices of their time, and what a cap leaves."""
