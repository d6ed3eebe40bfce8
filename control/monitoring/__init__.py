"""What is told of the whole installation to those who run it."""
