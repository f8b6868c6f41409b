"""The recogniser: images in, step events out. Streaming, batched, and what is needed to tune and evaluate it."""
