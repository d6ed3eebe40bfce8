"""Data that comes into instances from elsewhere: files that are sent, and servers that run."""
