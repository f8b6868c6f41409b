"""What pages that are served share: access, limits, errors, streams."""
