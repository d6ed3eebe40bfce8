"""The rules and the machinery of the control plane."""
