"""Work of billing: metering by the hour, and watching over spending caps."""
