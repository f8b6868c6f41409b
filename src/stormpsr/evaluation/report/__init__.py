"""One page that shows a run: scores, timelines, delays, and pictures of what went wrong."""
