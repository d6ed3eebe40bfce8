"""The records of the catalogue: cells, from which it follows."""
