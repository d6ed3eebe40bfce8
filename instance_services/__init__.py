"""Servers of ours for engines that are libraries: one package each, with its own document."""
