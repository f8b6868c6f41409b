"""One page that shows a run: scores, timelines, delays, and images of what went wrong."""
