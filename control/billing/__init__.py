"""How credits are granted and applications decided, whoever it is that does so."""
