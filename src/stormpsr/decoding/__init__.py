"""From evidence to step events: the decoders."""
