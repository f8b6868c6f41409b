"""Procedures: what they are made of, and how they are read, written, exchanged and drawn."""
