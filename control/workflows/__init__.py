"""The workflows of the control plane. `control.work.collect` finds all that is in here."""
