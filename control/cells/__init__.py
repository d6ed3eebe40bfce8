"""What the control plane asks of cells: signed requests, and what the answers mean."""
