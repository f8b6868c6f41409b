"""Networks. Everything here needs torch and does no input or output of its own."""
