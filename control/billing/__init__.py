"""Money: sums of usage at the prices of their time, what a cap leaves, credits and invoices."""
