"""Work of the catalogue: what cells run, asked again and again."""
