"""The few pages people see: templates, what they need, and what keeps them safe."""
