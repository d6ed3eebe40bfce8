"""The TLS front door of a cell: the single way in to every instance."""
