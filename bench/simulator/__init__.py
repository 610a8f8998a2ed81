"""The real engine in virtual time, on an account that has the documented limits of the service."""
