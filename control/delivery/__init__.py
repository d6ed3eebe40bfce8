"""Delivery: what is told to receivers outside of the installation, in order and never lost.

A `LaneTarget` is one kind of receivers (`control/webhooks`); each receiver has a lane, whose
deliveries are sent one after the other. A `Deliverer` takes lanes by lease and runs them. What it
sends goes through `guarded`, which connects to nobody within.
"""
