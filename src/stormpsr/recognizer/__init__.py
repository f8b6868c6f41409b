"""The recogniser: pictures in, step events out. Streaming, batched, and what is needed to tune and judge it."""
