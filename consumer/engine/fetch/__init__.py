"""Fetching: sessions, buffers, and the collection of records for the application."""
