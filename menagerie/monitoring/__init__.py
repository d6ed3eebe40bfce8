"""The operator's metrics and traces: what instruments and measures tell, for those who run this."""
