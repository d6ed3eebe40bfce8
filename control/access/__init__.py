"""What people and programs may do in an organization, from what its records say."""
