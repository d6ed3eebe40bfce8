"""The documentation as a static site: guides, decisions and API reference, without any network."""
