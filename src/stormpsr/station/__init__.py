"""The station: a live page that ticks off the work instruction, warns, and keeps the record of every unit."""
