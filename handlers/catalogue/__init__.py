"""The catalogue: engines, plans, regions and sizes; and the service itself."""
