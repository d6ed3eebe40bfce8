"""Pure rules: permissions, plans, sizes, prices, the catalogue, orders. No I/O."""
