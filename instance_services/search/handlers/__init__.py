"""One module per tag of the document; a function per operation."""
